"""TaskManagers of a real cluster die: their tasks run elsewhere as soon as their guard is gone (R13)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.aio.entropy import SystemEntropy
from runtime.common.ids import Incarnation, JobId
from runtime.highavailability.kv.key_value_store import KeyValueStore
from runtime.highavailability.leadership.registration import TaskManagerRegistry
from tests.kit.cluster.naps import run_naps
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.etcd.stored_keys import KEYS, ask_store
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

JOBS = 6
PATIENT = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "6",
    "heartbeat.timeout": "120 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.delay": "0 s",
}
"""No silence reaches these timeouts: a killed process is proved dead."""


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(PATIENT, workers=2) as made:
        yield made


@pytest.fixture
def silent() -> Iterator[ScriptCluster]:
    """A silence is noticed soon."""
    with ScriptCluster({**PATIENT, "heartbeat.interval": "500 ms", "heartbeat.timeout": "3 s"}) as made:
        yield made


def places(client: FlinklikeClient, ids: list[JobId]) -> dict[JobId, str]:
    """The TaskManager of each job's one task, if it runs."""
    found = {}
    for job_id in ids:
        for vertex in client.get(f"/jobs/{job_id}")["vertices"]:
            (subtask,) = client.get(f"/jobs/{job_id}/vertices/{vertex['id']}")["subtasks"]
            if subtask["status"] == "RUNNING":
                found[job_id] = subtask["taskmanager-id"]
    return found


def task_managers(client: FlinklikeClient) -> set[str]:
    return {one["id"] for one in client.get("/taskmanagers")["taskmanagers"]}


def kill(watcher: int, *whom: str) -> None:
    """At once: they stand still first, so that none of them acts on the end of another."""
    (guard,) = psutil.Process(watcher).children()
    (main,) = guard.children()
    pids = [{"watcher": watcher, "guard": guard.pid, "main": main.pid}[name] for name in whom]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)


EACH_TIME = [("main",), ("main", "guard")]
OTHERS = [("guard",), ("watcher",), ("main", "watcher")]


@pytest.mark.parametrize(
    "whom",
    [*EACH_TIME, *(pytest.param(one, marks=pytest.mark.extended) for one in OTHERS)],
    ids=" and ".join,
)
def test_its_tasks_run_elsewhere(cluster: ScriptCluster, whom: tuple[str, ...]) -> None:
    with cluster.connect() as client:
        ids = run_naps(client, JOBS)
        before = places(client, ids)
        assert len(set(before.values())) == 2, before
        kill(cluster.pids()["taskmanager"][0], *whom)
        reached(lambda: len(task_managers(client)) == 1, "one is gone")
        (other,) = task_managers(client)
        lost = [job_id for job_id, place in before.items() if place != other]
        reached(lambda: set(places(client, ids).values()) == {other} and len(places(client, ids)) == JOBS, "all run")
        for job_id in ids:
            history = client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
            assert len(history) == (job_id in lost)
            if history:
                assert f"TaskManager {before[job_id]} on host 127.0.0.1: its process died" in history[0]["stacktrace"]


def stored(cluster: ScriptCluster) -> set[Incarnation]:
    """The TaskManagers that have a key."""

    async def read(kv: KeyValueStore) -> set[Incarnation]:
        return set(await TaskManagerRegistry(kv, KEYS, SystemEntropy(), timeout=5.0).task_managers())

    return ask_store(cluster, read)


def test_both_guards_killed_at_once_prove_nothing_before_the_next_start(silent: ScriptCluster) -> None:  # R30
    with silent.connect() as client:
        (before,) = stored(silent)
        kill(silent.pids()["taskmanager"][0], "watcher", "guard", "main")
        reached(lambda: not task_managers(client), "it is lost by its silence")
        assert stored(silent) == {before}, "nobody says that it is dead"
        silent.start_task_manager()
        reached(lambda: len(task_managers(client)) == 1, "the next one has come")
        (after,) = stored(silent)
        assert after != before, "which has reaped what was left, and said so"
