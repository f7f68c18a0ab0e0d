"""A TaskManager of a real cluster is slow: its tasks run a second time on another one, and each counts once (R67)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.kit.cluster.busy_programs import READERS, SPECULATION, busy
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.cluster.slowed import slowed
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

SECONDS = 2.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    options = {
        "taskmanager.spark.enabled": "false",
        "taskmanager.numberOfTaskSlots": "4",
        "restart-strategy.type": "none",
    }
    with ScriptCluster(options, workers=2) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        reached(lambda: made.get("/overview")["slots-available"] == 8, "both TaskManagers are there")
        yield made


def attempts(client: FlinklikeClient, job_id: JobId, name: str) -> list[dict[str, Any]]:
    """All attempts of the subtasks of a vertex."""
    vertices = client.get(f"/jobs/{job_id}/attempts")["vertices"]
    found: list[dict[str, Any]] = next(one["attempts"] for one in vertices if one["name"] == name)
    return found


def test_slow_tasks_run_a_second_time_elsewhere_and_count_once(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    slow_pid = cluster.pids()["taskmanager"][0]
    job_id = new_job_id()
    with slowed(slow_pid):
        client.submit(busy(SECONDS, SPECULATION), job_id=job_id)
        done = client.wait_for_result(job_id).value
    assert sorted(one["reader"] for one in done) == list(range(READERS)), "each counts once"
    told = attempts(client, job_id, "work")
    second = [one for one in told if one["attempt"] == 1]
    assert second, "some were slow"
    first = {one["subtask"]: one for one in told if one["attempt"] == 0}
    for one in second:
        assert one["taskmanager-id"] != first[one["subtask"]]["taskmanager-id"]
        assert {one["status"], first[one["subtask"]]["status"]} == {"FINISHED", "CANCELED"}
    finished = [one for one in told if one["status"] == "FINISHED"]
    assert len(finished) == READERS
    assert client.get(f"/jobs/{job_id}")["state"] == "FINISHED"
    assert not client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]


def test_without_the_option_each_task_runs_once(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    job_id = new_job_id()
    with slowed(cluster.pids()["taskmanager"][0]):
        client.submit(busy(0.2, {}), job_id=job_id)
        client.wait_for_result(job_id)
    assert {one["attempt"] for one in attempts(client, job_id, "work")} == {0}


def test_what_the_option_leaves_out_is_named(client: FlinklikeClient) -> None:
    told = client.submit(busy(0.0, SPECULATION), job_id=new_job_id())
    (warning,) = [one for one in told.warnings if "speculative" in one]
    assert "'gather' is exclusive" in warning
