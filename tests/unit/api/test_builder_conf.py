"""Static Spark conf in the text of a script."""

from __future__ import annotations

import pytest

from airflow_flinklike.api.builder_conf import builder_conf

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
