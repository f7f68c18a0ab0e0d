"""TaskManagers of a real cluster are drained and stopped: no job fails, although its strategy allows no restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from tests.kit.cluster.gated_jobs import GatedJobs
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "4",
    "taskmanager.drain-timeout": "2 s",
    "restart-strategy.type": "none",
}


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[GatedJobs]:
    with ScriptCluster(OPTIONS, job_masters=1, workers=2) as cluster, cluster.connect() as client:
        yield GatedJobs(cluster, client, tmp_path)


def task_managers(jobs: GatedJobs) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in jobs.client.get("/taskmanagers")["taskmanagers"]}


def place(jobs: GatedJobs, job_id: JobId) -> str:
    """The TaskManager that runs the job's task, "" while none does."""
    (vertex,) = jobs.client.get(f"/jobs/{job_id}")["vertices"]
    (subtask,) = jobs.client.get(f"/jobs/{job_id}/vertices/{vertex['id']}")["subtasks"]
    return str(subtask["taskmanager-id"]) if subtask["status"] == "RUNNING" else ""


def causes(jobs: GatedJobs, job_id: JobId) -> list[str]:
    entries = jobs.client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    return [entry["exceptionName"] for entry in entries]


def finished(jobs: GatedJobs, *ids: JobId) -> None:
    reached(lambda: set(jobs.states(ids)) == {"FINISHED"}, "all jobs finish")


def test_a_drained_task_manager_lets_go_of_its_tasks_and_is_used_again(jobs: GatedJobs) -> None:
    ids = [jobs.submit(name) for name in ("quick", "slow")]
    reached(lambda: len({place(jobs, one) for one in ids} - {""}) == 2, "each TaskManager runs one")
    away = place(jobs, ids[1])
    assert jobs.cluster.cli("taskmanagers", "drain", away).returncode == 0
    assert task_managers(jobs)[away]["state"] in {"draining", "drained"}
    third = jobs.submit("third")
    assert place(jobs, third) != away, "it takes no more"
    reached(lambda: task_managers(jobs)[away]["state"] == "drained", "it has let go of everything")
    reached(lambda: place(jobs, ids[1]) == place(jobs, ids[0]), "its task runs elsewhere")
    assert causes(jobs, ids[1]) == ["TaskManagerDrained"]
    reached(lambda: jobs.count("slow", "begins") == 2, "and begins there")
    assert jobs.count("slow", "ends") == 0
    assert jobs.cluster.cli("taskmanagers", "undrain", away).returncode == 0
    reached(lambda: task_managers(jobs)[away]["freeSlots"] == 4, "it is used again")
    fourth = jobs.submit("fourth")
    assert place(jobs, fourth) == away
    for name in ("quick", "slow", "third", "fourth"):
        jobs.open_gate(name)
    finished(jobs, *ids, third, fourth)
    assert causes(jobs, ids[0]) == []


def test_the_script_that_drains_waits_for_tasks_and_the_one_that_stops_does_not(jobs: GatedJobs) -> None:
    ids = [jobs.submit(name) for name in ("one", "two")]
    reached(lambda: len({place(jobs, one) for one in ids} - {""}) == 2, "each TaskManager runs one")
    begun = time.monotonic()
    stopped = jobs.cluster.script("taskmanager.sh", "stop")
    assert stopped.returncode == 0, stopped
    print(f"stopped after {time.monotonic() - begun:.1f} s")
    assert "Killing it" not in stopped.stdout
    assert len(task_managers(jobs)) >= 1
    reached(lambda: "" not in {place(jobs, one) for one in ids}, "both run on the one that is left")
    assert sorted(map(len, (causes(jobs, one) for one in ids))) == [0, 1]
    jobs.open_gate("one")
    drained = jobs.cluster.script("taskmanager.sh", "drain", *jobs.cluster.dynamic)
    assert (drained.returncode, "Draining taskmanager" in drained.stdout) == (0, True), drained
    assert "Killing it" not in drained.stdout
    finished(jobs, ids[0])
    assert jobs.cluster.script("taskmanager.sh", "start", *jobs.cluster.dynamic).returncode == 0
    jobs.open_gate("two")
    finished(jobs, ids[1])
