"""Must show 5: five bad jobs, each ends with its cause in words, and the job in the other slot notices nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike import function_job
from airflow_flinklike.api.handle import JobHandle
from airflow_flinklike.client import FlinklikeClient
from runtime.common.states import JobStatus
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.host.slowdown import slowdown

pytestmark = [pytest.mark.process, pytest.mark.spark]

JOBS = """
from airflow_flinklike import function_job


def raising(spark):
    assert spark.range(10).count() == 10
    raise LookupError("no such day: 2026-02-30")


def segfaulting():
    import ctypes
    ctypes.string_at(0)


def leaving():
    import os
    os._exit(7)


def hungry():
    import time
    hog = []
    while len(hog) < 1000:
        hog.append(b"x" * 4_000_000)
        time.sleep(0.005)


def endless():
    import time
    while True:
        time.sleep(3600)


def endless_spark(spark):
    spark.range(0, 10**12, 1, 1).where("id % 3 = 5").count()


def deaf():
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


JOBS = {
    function.__name__: function_job(function)
    for function in (raising, segfaulting, leaving, hungry, endless, endless_spark, deaf)
}
for _name in JOBS:
    globals()["job_" + _name] = JOBS[_name]
"""


def neighbour(ctx: Any, stop: str) -> dict[str, Any]:
    """Works all the time, with Spark and without, until `stop` exists."""
    import time
    from pathlib import Path

    rounds, longest = 0, 0.0
    while not Path(stop).exists():
        begin = time.monotonic()
        assert ctx.spark.range(1000).selectExpr("sum(id)").first()[0] == 499500
        longest = max(longest, time.monotonic() - begin)
        rounds += 1
        ctx.report_progress(0.5, f"round {rounds}")
    return {"rounds": rounds, "longest": longest, "attempt": ctx.attempt_number}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bad")
    (directory / "bad_jobs.py").write_text(JOBS)
    return directory


@pytest.fixture(scope="module")
def other_job(spark_cluster: ScriptCluster, jobs: Path) -> Iterator[JobHandle]:
    """A job in the other slot during all tests of this module; afterwards it must be well."""
    stop = jobs / "stop"
    program = function_job(neighbour, args=[str(stop)])
    handle = program.submit(spark_cluster.url, token=spark_cluster.token, detached=True)
    reached(lambda: rounds_of(handle) > 1, "the neighbour works")
    yield handle
    stop.touch()
    with handle:
        found = handle.result()
    print("neighbour:", found)
    assert found["attempt"] == 0


def rounds_of(handle: JobHandle) -> int:
    progress = handle.details()["vertices"][0].get("progress") or {}
    return int(str(progress.get("text", "")).partition(" ")[2] or 0)


@pytest.mark.parametrize(
    ("job", "class_name", "words"),
    [
        ("raising", "LookupError", ["no such day: 2026-02-30"]),
        ("segfaulting", "SlotProcessExitError", ["SIGSEGV"]),
        ("leaving", "SlotProcessExitError", ["exit code 7", "os._exit"]),
        ("hungry", "MemoryLimitExceededError", ["MiB of memory", "limit of 320.0 MiB", "taskmanager.memory.task.size"]),
    ],
)
def test_a_bad_job_fails_with_its_cause_and_the_other_goes_on(
    job: str, class_name: str, words: list[str], spark_cluster: ScriptCluster, jobs: Path, other_job: JobHandle
) -> None:
    done = spark_cluster.cli("run", "--quiet", f"bad_jobs:job_{job}", cwd=jobs)
    assert done.returncode == 1, done.stdout + done.stderr
    said = [line for line in done.stderr.splitlines() if "has been submitted" not in line]
    assert said[0].startswith(class_name), done.stderr
    assert all(word in said[0] for word in words), done.stderr
    assert "FAILED" in said[-1], done.stderr
    is_well(other_job)


def is_well(other: JobHandle) -> None:
    assert other.status().status is JobStatus.RUNNING
    now = rounds_of(other)
    reached(lambda: rounds_of(other) > now, "the neighbour goes on", timeout=10)


def test_the_cause_is_in_rest_too(
    spark_cluster: ScriptCluster, spark_client: FlinklikeClient, jobs: Path, other_job: JobHandle
) -> None:
    done = spark_cluster.cli("run", "--json", "bad_jobs:job_leaving", cwd=jobs)
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"]) == (1, "FAILED")
    exceptions = spark_client.get(f"/jobs/{document['job_id']}/exceptions")
    entry = exceptions["exceptionHistory"]["entries"][0]
    assert entry["exceptionName"] == "SlotProcessExitError"
    assert "exit code 7" in entry["stacktrace"]
    assert entry["taskManagerId"]


@pytest.mark.parametrize("job", ["endless", "endless_spark", "deaf"])
def test_an_endless_job_is_canceled_within_two_seconds(
    job: str, spark_cluster: ScriptCluster, spark_client: FlinklikeClient, jobs: Path, other_job: JobHandle
) -> None:
    """On a machine that has time for it; a busy one may take as much longer as it is slower."""
    done = spark_cluster.cli("run", "-d", "--json", f"bad_jobs:job_{job}", cwd=jobs)
    assert done.returncode == 0, done.stderr
    with slowdown() as machine:
        spent = seconds_to_cancel(JobHandle(spark_client, json.loads(done.stdout)["job_id"]), job)
    print(f"{job}: canceled after {spent:.2f} s, on a machine that is {machine.factor:.1f} times as slow as idle")
    assert spent < 2.0 * machine.factor
    is_well(other_job)


def seconds_to_cancel(handle: JobHandle, job: str) -> float:
    reached(lambda: vertex(handle)["status"] == "RUNNING", "the endless job runs")
    if job == "endless_spark":
        reached(lambda: vertex(handle)["progress"]["spark-tasks-total"], "Spark works for it")
    begin = time.monotonic()
    handle.cancel()
    assert handle.wait().status is JobStatus.CANCELED
    return time.monotonic() - begin


def vertex(handle: JobHandle) -> Any:
    return handle.details()["vertices"][0]
