"""What is wrong with an option of `flinklike run` is one sentence that says what to do, with no frame of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.spark]

USES_SPARK = "from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate().range(3).count()\n"
REFUSED = {
    "secret": (("--secret", "NOPE"), r"start the TaskManagers with a directory"),
    "negative": (("--conf", "spark.sql.shuffle.partitions=-3"), "must be positive"),
    "no-number": (("--conf", "spark.sql.shuffle.partitions=many"), "spark.sql.shuffle.partitions"),
    "unknown": (("--nmae", "nightly"), "--name"),
    "no-pair": (("--conf", "spark.x"), "expected key=value"),
    "no-file": (("--files", "gone.csv"), "'gone.csv' does not exist"),
    "directory": (("--files", "."), "is a directory"),
    "parallelism": (("-p", "-1"), "-p"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_wrong_option_is_one_clear_sentence(spark_cluster: ScriptCluster, tmp_path: Path, wrong: str) -> None:
    options, words = REFUSED[wrong]
    (tmp_path / "etl.py").write_text(USES_SPARK)
    done = spark_cluster.cli("run", *options, "etl.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert words in done.stderr.splitlines()[-1], done.stderr
    assert "taskexecutor/" not in done.stderr
    assert "airflow_flinklike/" not in done.stderr
