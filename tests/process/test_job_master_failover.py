"""JobMaster processes of a real cluster die: their jobs go on under other owners, and no task restarts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from tests.kit.levels import reached
from tests.kit.naps import attempts, run_naps
from tests.kit.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.timeout(180)]

JOBS = 6
OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "8"}
PATIENT = {**OPTIONS, "high-availability.lease-timeout": "60 s", "heartbeat.timeout": "120 s"}
"""No silence is long enough to be noticed: who is killed is found dead."""


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(PATIENT) as made:
        yield made


@pytest.fixture
def impatient() -> Iterator[ScriptCluster]:
    with ScriptCluster({**OPTIONS, "high-availability.lease-timeout": "3 s"}) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def states(client: FlinklikeClient, ids: Sequence[JobId]) -> set[str]:
    return {job["state"] for job in client.get("/jobs/overview")["jobs"] if job["jid"] in ids}


def owners(client: FlinklikeClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/jobmasters")["jobmasters"]
    return found


def takeovers(client: FlinklikeClient, job_id: JobId) -> list[str]:
    return [one["reason"] for one in client.get(f"/jobs/{job_id}")["takeovers"]]


def test_a_killed_job_master_restarts_no_task(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    ids = run_naps(client, JOBS)
    before = attempts(client, ids)
    os.kill(cluster.pids()["jobmaster"][0], signal.SIGKILL)
    reached(lambda: [one["jobs-running"] for one in owners(client)] == [JOBS], "the other one owns all", timeout=30)
    reached(lambda: len(attempts(client, ids)) == JOBS, "all are taken over", timeout=30)
    assert attempts(client, ids) == before
    assert {reason for job_id in ids for reason in takeovers(client, job_id)} == {"its JobMaster process was lost"}
    client.cancel(ids[0])
    reached(lambda: states(client, ids[:1]) == {"CANCELED"}, "a cancel reaches the new owner")


def test_without_another_process_jobs_wait_and_the_next_one_takes_them(
    cluster: ScriptCluster, client: FlinklikeClient
) -> None:
    ids = run_naps(client, JOBS)
    before = attempts(client, ids)
    for pid in cluster.pids()["jobmaster"]:
        os.kill(pid, signal.SIGKILL)
    reached(lambda: owners(client) == [], "all registrations are gone", timeout=30)
    started = cluster.script("start-jobmaster.sh", "start", *cluster.dynamic)
    assert started.returncode == 0, started.stderr
    reached(lambda: [one["jobs-running"] for one in owners(client)] == [JOBS], "the new one owns all", timeout=30)
    reached(lambda: len(attempts(client, ids)) == JOBS, "all are taken over", timeout=30)
    assert attempts(client, ids) == before


def test_a_frozen_owner_is_replaced_and_has_no_say_when_it_wakes(impatient: ScriptCluster) -> None:
    """What ends while it is frozen waits in its sockets: it wakes, believes it, and is refused (R1, R5, R10)."""
    with impatient.connect() as client:
        short, long = run_naps(client, 3, seconds=4), run_naps(client, 3)
        before = attempts(client, long)
        assert [one["jobs-running"] for one in owners(client)] == [3, 3], "each has some of both"
        frozen = impatient.pids()["jobmaster"][0]
        os.kill(frozen, signal.SIGSTOP)
        try:
            reached(lambda: len(owners(client)) == 1, "its lease has ended", timeout=30)
            reached(lambda: states(client, short) == {"FINISHED"}, "what ended meanwhile counts", timeout=30)
            reached(lambda: len(attempts(client, long)) == 3, "all are taken over", timeout=30)
        finally:
            os.kill(frozen, signal.SIGCONT)
        reached(lambda: sorted(one["jobs-running"] for one in owners(client)) == [0, 3], "it is back", timeout=30)
        assert attempts(client, long) == before
        assert states(client, short) == {"FINISHED"}
        run_naps(client, 2)
        reached(lambda: min(one["jobs-running"] for one in owners(client)) == 2, "it takes jobs again")
