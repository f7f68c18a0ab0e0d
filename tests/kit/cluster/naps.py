"""Jobs of one sleeping task on a real cluster, and which attempts their tasks are in."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.benchmarks.cluster import job_graph
from tests.kit.host.levels import reached


def run_naps(client: FlinklikeClient, count: int, *, seconds: float = 600) -> list[JobId]:
    """So many jobs, all RUNNING."""
    ids = [new_job_id() for _ in range(count)]
    nap = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": seconds})
    for job_id in ids:
        client.submit(nap, job_id=job_id)
    reached(lambda: [state for _, state in attempts(client, ids)] == ["RUNNING"] * count, "every task runs")
    return ids


def attempts(client: FlinklikeClient, ids: Sequence[JobId]) -> list[tuple[str, str]]:
    """Id and state of the current attempt of each task; those of jobs that are being taken over are not known."""
    found = []
    for job_id in ids:
        for vertex in client.get(f"/jobs/{job_id}")["vertices"]:
            (subtask,) = client.get(f"/jobs/{job_id}/vertices/{vertex['id']}")["subtasks"]
            found.append((subtask["attempt-id"], subtask["status"]))
    return found
