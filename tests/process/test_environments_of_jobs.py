"""R53: a job that asks for static Spark conf runs with it, on a real cluster; the next one finds it warm."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.spark]

SCRIPT = """
import json
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = (SparkSession.builder.appName("own").config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
    .config("spark.executor.memory", "9g").getOrCreate())
double = udf(lambda n: 2 * n, "long")
runtime = spark._jvm.java.lang
print(json.dumps({
    "serializer": spark.sparkContext.getConf().get("spark.serializer"),
    "jvm": runtime.ProcessHandle.current().pid(),
    "memory": spark.conf.get("spark.driver.memory"),
    "heap": runtime.Runtime.getRuntime().maxMemory() >> 20,
    "sum": spark.range(10).select(double("id")).groupBy().sum().first()[0],
}))
"""


def run(cluster: ScriptCluster, *arguments: str) -> tuple[dict[str, object], str]:
    command = [str(ROOT / "bin" / "flinklike"), "run", *arguments]
    done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found, done.stderr


def test_static_conf_of_options_and_of_the_script_is_there(
    spark_cluster: ScriptCluster, spark_client: FlinklikeClient, tmp_path: Path
) -> None:
    script = tmp_path / "own.py"
    script.write_text(SCRIPT)
    first, told = run(spark_cluster, "--driver-memory", "655360k", str(script))
    assert (first["serializer"], first["heap"], first["sum"], first["memory"]) == (
        "org.apache.spark.serializer.KryoSerializer",
        640,
        90,
        "655360k",
    )
    assert "starts a Spark environment for the job's static conf" in told
    assert "spark.executor.memory has no effect: Spark's tasks run in the driver's JVM here" in told
    second, told = run(spark_cluster, "--driver-memory", "640m", str(script))
    assert (second["jvm"], "starts a Spark environment" in told) == (first["jvm"], False)
    (manager,) = spark_client.get("/taskmanagers")["taskmanagers"]
    assert [one["memory-bytes"] >> 20 for one in manager["spark-environments"]] == [640 + 512]
    default, _ = run(spark_cluster, str(_without_conf(script)))
    assert default["jvm"] != first["jvm"]


def _without_conf(script: Path) -> Path:
    plain = script.with_name("plain.py")
    plain.write_text(SCRIPT.replace('.config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")', ""))
    return plain
