"""JobMaster processes of a real cluster die: their jobs go on under other owners, and no task restarts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.benchmarks.cluster import job_graph
from tests.kit.levels import reached
from tests.kit.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.timeout(180)]

JOBS = 6
OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "8"}


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def run_naps(client: FlinklikeClient, seconds: float) -> list[JobId]:
    """Jobs of one task that sleeps, all RUNNING."""
    ids = [new_job_id() for _ in range(JOBS)]
    for job_id in ids:
        nap = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": seconds})
        client.submit(nap, job_id=job_id)
    reached(lambda: [state for _, state in attempts(client, ids)] == ["RUNNING"] * JOBS, "every task runs")
    return ids


def attempts(client: FlinklikeClient, ids: Sequence[JobId]) -> list[tuple[str, str]]:
    """Id and state of the current attempt of each task; those of jobs that are being taken over are not known."""
    found = []
    for job_id in ids:
        for vertex in client.get(f"/jobs/{job_id}")["vertices"]:
            (subtask,) = client.get(f"/jobs/{job_id}/vertices/{vertex['id']}")["subtasks"]
            found.append((subtask["attempt-id"], subtask["status"]))
    return found


def states(client: FlinklikeClient, ids: Sequence[JobId]) -> set[str]:
    return {job["state"] for job in client.get("/jobs/overview")["jobs"] if job["jid"] in ids}


def owners(client: FlinklikeClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/jobmasters")["jobmasters"]
    return found


def test_a_killed_job_master_restarts_no_task(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    ids = run_naps(client, 600)
    before = attempts(client, ids)
    os.kill(cluster.pids()["jobmaster"][0], signal.SIGKILL)
    reached(lambda: [one["jobs-running"] for one in owners(client)] == [JOBS], "the other one owns all", timeout=30)
    reached(lambda: len(attempts(client, ids)) == JOBS, "all are taken over", timeout=30)
    assert attempts(client, ids) == before
    client.cancel(ids[0])
    reached(lambda: states(client, ids[:1]) == {"CANCELED"}, "a cancel reaches the new owner")


def test_without_another_process_jobs_wait_and_the_next_one_takes_them(
    cluster: ScriptCluster, client: FlinklikeClient
) -> None:
    ids = run_naps(client, 600)
    before = attempts(client, ids)
    for pid in cluster.pids()["jobmaster"]:
        os.kill(pid, signal.SIGKILL)
    reached(lambda: owners(client) == [], "all registrations are gone", timeout=30)
    started = cluster.script("start-jobmaster.sh", "start", *cluster.dynamic)
    assert started.returncode == 0, started.stderr
    reached(lambda: [one["jobs-running"] for one in owners(client)] == [JOBS], "the new one owns all", timeout=30)
    reached(lambda: len(attempts(client, ids)) == JOBS, "all are taken over", timeout=30)
    assert attempts(client, ids) == before
