"""Stops with a savepoint on a real cluster: through bin/, and with the JobMaster killed in the middle (R61)."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.exceptions import JobConflictError
from runtime.checkpoint.savepoint.savepoint_files import read_savepoint
from tests.kit.cluster.gated_streams import GatedStream
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.spark, pytest.mark.timeout(600)]

PATIENT = {"high-availability.lease-timeout": "60 s", "heartbeat.timeout": "120 s"}
"""No silence reaches these timeouts: a killed process is proved dead."""
FIRST, SECOND = "1" * 32, "2" * 32


@pytest.fixture(scope="module")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster({**SPARK, **PATIENT}, class_archive=class_archive) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def test_a_job_is_stopped_with_a_savepoint_and_an_owner_that_dies_fails_the_stop(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    job = GatedStream(cluster, client, tmp_path)
    before = job.attempts()
    job.begin(1)
    job.wait(lambda: {one["status"] for one in client.get(f"/jobs/{job.job_id}")["vertices"]} == {"RUNNING"}, "it runs")
    target = str(tmp_path / "savepoints")
    client.post(f"/jobs/{job.job_id}/stop", {"triggerId": FIRST, "targetDirectory": target})
    assert job.operation(FIRST)["status"]["id"] == "IN_PROGRESS"
    (owner,) = [one for one in client.get("/jobmasters")["jobmasters"] if one["jobs-running"]]
    (pid,) = [pid for pid in cluster.pids()["jobmaster"] if str(pid) in owner_pids(cluster, owner)]
    os.kill(pid, signal.SIGKILL)
    cause = job.outcome(FIRST)["failure-cause"]["stack-trace"]
    assert "JobMaster of the job was lost" in cause
    job.open(1)
    job.begin(2)
    assert job.attempts() == before, "the same attempt goes on"
    job.open(2)
    job.wait(lambda: "2 3" in job.written(), "the batch behind the stop that failed")
    stopped = cluster.cli("stop", job.job_id, "--savepoint", target, "--trigger-id", SECOND, "--json")
    assert stopped.returncode == 0, stopped.stderr
    location = json.loads(stopped.stdout)["location"]
    path = Path(urlsplit(location).path)
    (query,) = read_savepoint(path).queries
    assert (query.uid, query.snapshot.batch_id) == ("each", 2)
    reached(lambda: client.status(job.job_id).status.value == "FINISHED", "the end of the job")
    job.rows(9)
    assert job.written() == ["0 1", "1 2", "2 3"]
    assert [one.name for one in (tmp_path / "savepoints").iterdir()] == [path.name], "nothing of the failed one is left"
    assert job.operation(SECOND)["operation"] == {"location": location}
    client.post(f"/jobs/{job.job_id}/stop", {"triggerId": SECOND, "targetDirectory": target})
    for path_of, body in (("stop", {"targetDirectory": "/other"}), ("savepoints", {"target-directory": target})):
        with pytest.raises(JobConflictError, match="is taken by another operation"):
            client.post(f"/jobs/{job.job_id}/{path_of}", {"triggerId": SECOND, **body})
    goes_on(job, path)
    with pytest.raises(JobConflictError, match="is FINISHED"):
        client.post(f"/jobs/{job.job_id}/stop", {"targetDirectory": target})


def goes_on(job: GatedStream, savepoint: Path) -> None:
    """Another job, which begins behind the savepoint: with what came after the stop, and nothing before."""
    program = f"{job.place / 'job.py'}:build"
    run = job.cluster.cli("run", "-d", "--from-savepoint", str(savepoint), "--param", f"place={job.place}", program)
    assert run.returncode == 0, run.stderr
    job.open(3)
    job.wait(lambda: "3 9" in job.written(), "the batch behind the savepoint")
    assert job.written() == ["0 1", "1 2", "2 3", "3 9"]


def owner_pids(cluster: ScriptCluster, owner: dict[str, Any]) -> set[str]:
    """The process that listens at the owner's address."""
    import psutil

    port = int(str(owner["address"]).rpartition(":")[2])
    return {
        str(pid)
        for pid in cluster.pids()["jobmaster"]
        for one in psutil.Process(pid).net_connections(kind="tcp")
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port
    }
