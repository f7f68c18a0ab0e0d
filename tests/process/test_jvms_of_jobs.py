"""R53: `taskmanager.slot.isolation: jvm` on a real cluster: each job has a JVM of its own, which ends with it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.etcd, pytest.mark.timeout(900)]
PATIENCE = 600
ONE_JVM = 768 + 512
OPTIONS = {
    **SPARK,
    "taskmanager.numberOfTaskSlots": "3",
    "taskmanager.slot.isolation": "jvm",
    "taskmanager.memory.spark.total": f"{2 * ONE_JVM} mb",
}
PROGRAM = """
import json, pathlib, time
from airflow_flinklike import Pipeline

here = pathlib.Path(__file__).parent


def jvm(ctx):
    java = ctx.spark._jvm.java.lang
    rows = ctx.spark.range(10).count()
    return {"jvm": java.ProcessHandle.current().pid(), "seen": java.System.getProperty("mine"), "rows": rows}


def first(ctx):
    found = jvm(ctx)
    ctx.spark._jvm.java.lang.System.setProperty("mine", ctx.job_id)
    told = pathlib.Path(ctx.params["told"])
    told.with_suffix(".new").write_text(json.dumps(found))
    told.with_suffix(".new").rename(told)
    while not pathlib.Path(ctx.params["gate"]).exists():
        time.sleep(0.05)
    return ctx.spark.range(3)


pipeline = Pipeline("of-its-own")
pipeline.source("first", first).gather().sink("second", lambda ctx, df: {**jvm(ctx), "sum": df.count()})
"""
SCRIPT = """
import json
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print(json.dumps({"jvm": spark._jvm.java.lang.ProcessHandle.current().pid(), "rows": spark.range(10).count()}))
"""


class Job:
    """One that holds its JVM until its gate opens."""

    def __init__(self, cluster: ScriptCluster, directory: Path, name: str) -> None:
        self.told, self.gate = directory / f"{name}.json", directory / f"{name}.open"
        (directory / "program.py").write_text(PROGRAM)
        params = ("--param", f"told={self.told}", "--param", f"gate={self.gate}")
        done = cluster.cli("run", "-d", "--json", *params, "program.py:pipeline", cwd=directory)
        assert done.returncode == 0, done.stdout + done.stderr
        self.job_id = JobId(json.loads(done.stdout)["job_id"])

    def begun(self) -> dict[str, Any]:
        """What its first task has found, once it has."""
        reached(self.told.exists, "its first task has touched Spark", timeout=PATIENCE)
        found: dict[str, Any] = json.loads(self.told.read_text())
        return found

    def result(self, client: FlinklikeClient) -> dict[str, Any]:
        """What its second task has found, when the job is over."""
        self.gate.touch()
        done = client.wait_for_result(self.job_id)
        assert done.status is JobStatus.FINISHED, done
        found: dict[str, Any] = done.value
        return found


@pytest.fixture(scope="module")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, class_archive=class_archive) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def memory_of_jvms(client: FlinklikeClient) -> list[int]:
    (manager,) = client.get("/taskmanagers")["taskmanagers"]
    return [one["memory-bytes"] >> 20 for one in manager["spark-environments"]]


def jvms(cluster: ScriptCluster) -> set[int]:
    """Those of jobs: the class archive is made by another one."""
    return {pid for pid, line in cluster.processes().items() if "SparkSubmit" in line and "/spark-" in line}


def test_no_job_sees_the_jvm_of_another_and_each_ends_with_its_job(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    assert jvms(cluster) == set(), "none is kept for everybody"
    (manager,) = client.get("/taskmanagers")["taskmanagers"]
    assert (manager["spark"], manager["warm"]) == (True, False)
    one, other = (Job(cluster, tmp_path, name) for name in ("one", "other"))
    first, second = one.begun(), other.begun()
    assert first["jvm"] != second["jvm"]
    assert (first["seen"], second["seen"]) == (None, None)
    assert jvms(cluster) == {first["jvm"], second["jvm"]}
    assert memory_of_jvms(client) == [ONE_JVM, ONE_JVM]

    late = Job(cluster, tmp_path, "late")
    wait = "no room for its Spark environment: those of other jobs are in use on all 1 TaskManagers"
    reached(lambda: wait in json.dumps(client.get(f"/jobs/{late.job_id}")), "it waits for room", timeout=PATIENCE)
    ended = one.result(client)
    assert (ended["jvm"], ended["sum"]) == (first["jvm"], 3), "its tasks have one JVM"
    reached(lambda: first["jvm"] not in cluster.processes(), "its JVM has ended with it", timeout=PATIENCE)
    assert late.begun()["seen"] is None
    assert late.begun()["jvm"] not in {first["jvm"], second["jvm"]}
    for job in (other, late):
        job.result(client)
    reached(lambda: not (memory_of_jvms(client) or jvms(cluster)), "all have ended", timeout=PATIENCE)


def test_another_owner_of_the_job_finds_the_same_jvm(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    job = Job(cluster, tmp_path, "job")
    first = job.begun()
    for pid in cluster.pids()["jobmaster"]:
        os.kill(pid, signal.SIGKILL)
    started = cluster.script("start-jobmaster.sh", "start", *cluster.dynamic)
    assert started.returncode == 0, started.stderr
    reached(lambda: client.get(f"/jobs/{job.job_id}")["takeovers"], "another process owns it", timeout=PATIENCE)
    assert job.result(client)["jvm"] == first["jvm"]
    reached(lambda: not jvms(cluster), "its JVM has ended with it", timeout=PATIENCE)


def test_a_job_may_ask_for_a_jvm_of_its_own_where_others_share_one(
    spark_cluster: ScriptCluster, spark_client: FlinklikeClient, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    own = ("--conf", "spark.flinklike.isolation=jvm")
    before = memory_of_jvms(spark_client)  # other tests of the cluster may have left environments that are kept
    found = []
    for options in ((), own, own, ()):
        done = spark_cluster.cli("run", *options, "script.py", cwd=tmp_path, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(json.loads(done.stdout)["jvm"])
    assert found[0] == found[3]
    assert len(set(found)) == 3
    reached(lambda: not {*found[1:3]} & spark_cluster.processes().keys(), "they end with their jobs", timeout=PATIENCE)
    reached(lambda: len(memory_of_jvms(spark_client)) <= len(before), "and so does their room", timeout=PATIENCE)
