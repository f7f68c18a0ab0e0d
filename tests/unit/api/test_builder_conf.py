"""Static Spark conf in the text of a script."""

from __future__ import annotations

import pytest

from airflow_flinklike.api.builder_conf import builder_conf, builder_settings

KRYO = {"spark.serializer": "org.Kryo"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("spark = SparkSession.builder.appName('x').config('spark.serializer', 'org.Kryo').getOrCreate()", KRYO),
        ("b = SparkSession.builder\nb = b.config('spark.serializer', 'org.Kryo')", KRYO),
        ("SparkSession.builder.config(map={'spark.serializer': 'org.Kryo', 'spark.sql.shuffle.partitions': 3})", KRYO),
        ("conf = SparkConf().setAppName('x').set('spark.serializer', 'org.Kryo')", KRYO),
        ("SparkConf().setAll([('spark.serializer', 'org.Kryo'), ('spark.x', 1)])", KRYO),
        ("SparkSession.builder.config('spark.eventLog.enabled', True)", {"spark.eventLog.enabled": "true"}),
        ("SparkSession.builder.enableHiveSupport()", {"spark.sql.catalogImplementation": "hive"}),
        ("SparkSession.builder.config(key='spark.serializer', value='org.Kryo')", KRYO),
        ("SparkSession.builder.config('spark.serializer', value='org.Kryo')", KRYO),
        ("SparkConf().setAll([['spark.serializer', 'org.Kryo']])", KRYO),
        ("SparkSession.builder.config('spark.serializer', 'a').config('spark.serializer', 'org.Kryo')", KRYO),
        ("spark.conf.set('spark.serializer', 'org.Kryo')", {}),
        ("SparkSession.builder.config('spark.serializer', name())", {}),
        ("SparkSession.builder.config(conf=conf).config('spark.sql.shuffle.partitions', 4).master('yarn')", {}),
        ("SparkSession.builder.config(f'spark.{x}', 'y').config(**more).config()", {}),
        ("def (", {}),
        ("\0", {}),
        ("x" + "(" * 5000, {}),
        ("s = set('ab')\nset('spark.serializer', 'x')", {}),
    ],
)
def test_literal_conf_is_found(source: str, expected: dict[str, str]) -> None:
    assert builder_conf(source, {}) == expected


def test_options_win_over_what_has_no_effect_under_spark_submit() -> None:
    source = "SparkSession.builder.config('spark.driver.memory', '1g').config('spark.serializer', 'org.Kryo')"
    assert builder_conf(source, {"spark.driver.memory": "4g", "spark.serializer": "java"}) == KRYO
    assert builder_conf(source, KRYO) == {"spark.driver.memory": "1g"}


HIVE = {"spark.sql.catalogImplementation": "hive"}
USED = "import sys\nfrom pyspark.sql import SparkSession\nb = SparkSession.builder\n"


@pytest.mark.parametrize(
    ("source", "is_certain"),
    [
        ("b.enableHiveSupport()", True),
        ("if __name__ == '__main__':\n    b.enableHiveSupport()", True),
        ("with open('x') as file:\n    b.enableHiveSupport()", True),
        ("try:\n    b.enableHiveSupport()\nexcept ValueError:\n    pass", True),
        ("def main():\n    b.enableHiveSupport()\nif __name__ == '__main__':\n    main()", True),
        ("def session():\n    b.enableHiveSupport()\ndef main():\n    session()\nmain()", True),
        ("class Job:\n    def run(self):\n        b.enableHiveSupport()\nJob().run()", True),
        ("if '--hive' in sys.argv:\n    b.enableHiveSupport()", False),
        ("if '--local' in sys.argv:\n    pass\nelse:\n    b.enableHiveSupport()", False),
        ("b.enableHiveSupport() if sys.argv else b", False),
        ("sys.argv and b.enableHiveSupport()", False),
        ("for _ in sys.argv:\n    b.enableHiveSupport()", False),
        ("try:\n    pass\nexcept ValueError:\n    b.enableHiveSupport()", False),
        ("def main():\n    if sys.argv:\n        return\n    b.enableHiveSupport()\nmain()", False),
        ("def main():\n    b.enableHiveSupport()\nif sys.argv:\n    main()", False),
        ("@command\ndef main():\n    b.enableHiveSupport()", False),
        ("class Job(Base):\n    def run(self):\n        b.enableHiveSupport()\nJob().main()", False),
        ("def main():\n    b.enableHiveSupport()\nglobals()['main']()", False),
        ("def main():\n    b.enableHiveSupport()", None),
        ("def session():\n    b.enableHiveSupport()\ndef main():\n    session()", None),
        ("if False:\n    b.enableHiveSupport()", None),
        ("if not True:\n    pass\nelse:\n    b.stop()\nif __name__ != '__main__':\n    b.enableHiveSupport()", None),
        ("if __name__ == '__main__':\n    pass\nelse:\n    b.enableHiveSupport()", None),
    ],
)
def test_what_never_runs_sets_nothing_and_what_may_run_is_told_apart(source: str, is_certain: bool | None) -> None:
    found = builder_settings(USED + source, {})
    assert builder_conf(USED + source, {}) == ({} if is_certain is None else HIVE)
    assert [one.is_certain for one in found.values()] == ([] if is_certain is None else [is_certain])
    assert [(USED + source).splitlines()[one.line - 1].count("Hive") for one in found.values()] == [1] * len(found)


def test_conf_of_the_job_wins_over_hive_support_and_over_what_may_not_run() -> None:
    assert builder_conf(f"{USED}b.enableHiveSupport()", {"spark.sql.catalogImplementation": "in-memory"}) == {}
    branch = f"{USED}if sys.argv:\n    b.config('spark.serializer', 'org.Kryo')"
    assert builder_conf(branch, {}) == KRYO
    assert builder_conf(branch, {"spark.serializer": "java"}) == {}


def test_of_two_values_the_one_that_surely_counts_is_taken() -> None:
    source = f"{USED}b.config('spark.serializer', 'org.Kryo')\nif sys.argv:\n    b.config('spark.serializer', 'java')"
    assert builder_conf(source, {}) == KRYO
