"""Queries of a TaskManager that is drained or stopped end between two batches, and go on elsewhere."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient
from tests.kit.cluster.gated_streams import GatedStream
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.spark, pytest.mark.timeout(600)]

OPTIONS = {**SPARK, "taskmanager.drain-timeout": "120 s", "restart-strategy.type": "none"}


@pytest.fixture
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=1, workers=2, class_archive=class_archive) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def place(client: FlinklikeClient, job: GatedStream) -> str:
    """The TaskManager that runs the query, "" while none does."""
    (vertex,) = client.get(f"/jobs/{job.job_id}")["vertices"]
    (subtask,) = client.get(f"/jobs/{job.job_id}/vertices/{vertex['id']}")["subtasks"]
    return str(subtask["taskmanager-id"]) if subtask["status"] == "RUNNING" else ""


def causes(client: FlinklikeClient, job: GatedStream) -> list[str]:
    entries: list[dict[str, Any]] = client.get(f"/jobs/{job.job_id}/exceptions")["exceptionHistory"]["entries"]
    return [str(entry["exceptionName"]) for entry in entries]


def process_of(cluster: ScriptCluster, client: FlinklikeClient, task_manager: str) -> int:
    """The TaskManager's process that scripts know."""
    (address,) = [one["path"] for one in client.get("/taskmanagers")["taskmanagers"] if one["id"] == task_manager]
    port = int(str(address).rpartition(":")[2])
    for pid in cluster.pids()["taskmanager"]:
        for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
            if any(one.laddr.port == port for one in process.net_connections(kind="tcp") if one.status == "LISTEN"):
                return pid
    raise AssertionError(address)


def test_a_query_ends_between_two_batches_and_goes_on_elsewhere(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    job = GatedStream(cluster, client, tmp_path)
    job.begin(1)
    job.wait(lambda: place(client, job), "it runs")
    first, attempts = place(client, job), job.attempts()
    assert cluster.cli("taskmanagers", "drain", first).returncode == 0
    assert job.attempts() == attempts, "the batch that runs is not cut short"
    job.open(1)
    job.wait(lambda: place(client, job) not in {"", first}, "it goes on elsewhere")
    assert causes(client, job) == ["TaskManagerDrained"]
    assert job.written() == ["0 1", "1 2"]
    assert cluster.cli("taskmanagers", "undrain", first).returncode == 0
    second = place(client, job)
    os.kill(process_of(cluster, client, second), signal.SIGTERM)
    job.wait(lambda: place(client, job) == first, "it is back")
    job.open(2)
    job.begin(2)
    job.wait(lambda: "2 3" in job.written(), "a batch behind both moves")
    assert job.written() == ["0 1", "1 2", "2 3"]
    assert len(job.attempts()) == len(attempts) + 2
