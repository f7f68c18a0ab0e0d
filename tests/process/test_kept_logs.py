"""Logs of attempts outlive their TaskManager: it keeps its name, others of its host find them, or REST says where."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from airflow_flinklike.api.handle import JobHandle
from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "1"}


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=1, workers=0) as started:
        yield started


def start(cluster: ScriptCluster) -> None:
    done = cluster.script("taskmanager.sh", "start", *cluster.dynamic)
    assert done.returncode == 0, done.stdout + done.stderr


def names(client: FlinklikeClient) -> list[str]:
    return [one["id"] for one in client.get("/taskmanagers")["taskmanagers"]]


def run(client: FlinklikeClient) -> dict[JobId, str]:
    """Two jobs at once, one for each slot; their TaskManagers' names."""
    ids = [new_job_id(), new_job_id()]
    for job_id in ids:
        client.submit(job_graph("talk", "tests.kit.cluster.talking:talk", params={"seconds": 1}), job_id=job_id)
    found = {}
    for job_id in ids:
        job = JobHandle(client, job_id)
        assert job.result() is None
        (vertex,) = job.details()["vertices"]
        (subtask,) = client.get(f"/jobs/{job_id}/vertices/{vertex['id']}")["subtasks"]
        found[job_id] = subtask["taskmanager-id"]
    return found


def test_logs_are_read_after_a_stop_and_start(cluster: ScriptCluster) -> None:
    start(cluster)
    start(cluster)
    with cluster.connect() as client:
        before = names(client)
        jobs = run(client)
        assert sorted(jobs.values()) == sorted(before)
    assert cluster.stop().returncode == 0
    cluster.start()
    for job_id in jobs:
        told = cluster.cli("logs", job_id)
        assert told.stdout == ""
        where = re.search(r"on host 127\.0\.0\.1 in (log/attempts/\S+) of the run directory", told.stderr)
        assert where is not None, told.stderr
        assert f"talks in {job_id}" in (cluster.run / "run" / where[1] / "stdout").read_text()
    start(cluster)
    with cluster.connect() as client:
        assert names(client) == [before[0]], "the first one has the name of the first one"
        for job_id in jobs:
            assert f"talks in {job_id}" in cluster.cli("logs", job_id).stdout, "also what the second one has run"
        start(cluster)
        reached(lambda: sorted(names(client)) == sorted(before), "both have their names")
