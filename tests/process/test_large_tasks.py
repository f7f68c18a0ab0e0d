"""Tasks that take several slots, beside what runs for long, through the scripts (D-141)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.task.size": "512 mb",
    "slotmanager.queue.tiny.max-slots": "1",
}
JOBS = """
import time
from pathlib import Path

from airflow_flinklike import Pipeline, ResourceSpec

HERE = Path({folder!r})
LARGE = ResourceSpec(memory_bytes=400 << 20)  # a slot has 256 MB


def stay(name):
    def until_told(ctx):
        (HERE / f"{{name}}-{{ctx.subtask_index}}").touch()
        while not (HERE / f"{{name}}-go").exists():
            time.sleep(0.05)
        return [1]

    return until_told


others = Pipeline("others")
others.source("others", stay("others"), parallelism=3)

both = Pipeline("both")
both.source("large", stay("large"), resources=LARGE, slot_sharing_group="large")
both.source("small", stay("small"), slot_sharing_group="small")

tiny = Pipeline("tiny")
tiny.source("large", stay("tiny"), resources=LARGE)

absurd = Pipeline("absurd")
absurd.source("absurd", stay("absurd"), resources=ResourceSpec(memory_bytes=2**63))
"""


class Jobs:
    """The jobs of one folder, run through the command."""

    def __init__(self, cluster: ScriptCluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        (folder / "jobs.py").write_text(JOBS.format(folder=str(folder)))

    def run(self, name: str, *options: str) -> JobId:
        done = self._cluster.cli("run", "-d", "--json", *options, f"jobs.py:{name}", cwd=self._folder)
        assert done.returncode == 0, done.stderr
        return JobId(json.loads(done.stdout)["job_id"])

    def refused(self, name: str) -> str:
        done = self._cluster.cli("run", "-d", f"jobs.py:{name}", cwd=self._folder)
        assert done.returncode, done.stdout
        return done.stderr

    def has_begun(self, *names: str) -> bool:
        return all((self._folder / name).exists() for name in names)

    def go(self, name: str) -> None:
        (self._folder / f"{name}-go").touch()


def free_slots(client: FlinklikeClient) -> int:
    return sum(one["freeSlots"] for one in client.get("/taskmanagers")["taskmanagers"])


def attempts(client: FlinklikeClient, job_id: JobId) -> list[dict[str, Any]]:
    vertices = [one["id"] for one in client.get(f"/jobs/{job_id}")["vertices"]]
    return [one for vertex in vertices for one in client.get(f"/jobs/{job_id}/vertices/{vertex}")["subtasks"]]


def test_a_new_leader_gives_a_job_its_large_slot_beside_its_small_one(tmp_path: Path) -> None:
    with ScriptCluster(OPTIONS, workers=2) as cluster, cluster.connect() as client:
        jobs = Jobs(cluster, tmp_path)
        assert "must not have more than" in jobs.refused("absurd")
        others = jobs.run("others")
        reached(lambda: jobs.has_begun("others-0", "others-1", "others-2"), "three slots are in use")
        tiny = jobs.run("tiny", "--queue", "tiny")
        both = jobs.run("both")
        reached(lambda: jobs.has_begun("small-0"), "the last slot is in use")
        os.kill(cluster.pids()["jobmanager"][0], signal.SIGKILL)
        started = cluster.script("jobmanager.sh", "start", *cluster.dynamic)
        assert started.returncode == 0, started.stdout + started.stderr
        reached(lambda: len(client.get("/taskmanagers")["taskmanagers"]) == 2, "both TaskManagers are back")
        jobs.go("others")
        assert client.wait_for_result(others).status is JobStatus.FINISHED
        reached(lambda: jobs.has_begun("large-0"), "it has two slots, and keeps the one that it had")
        for pid in cluster.pids()["jobmaster"]:
            os.kill(pid, signal.SIGKILL)
        started = cluster.script("start-jobmaster.sh", *cluster.dynamic)
        assert started.returncode == 0, started.stdout + started.stderr
        reached(lambda: client.get(f"/jobs/{both}")["takeovers"], "another JobMaster process has it")
        reached(lambda: client.status(both).status is JobStatus.RUNNING, "its tasks are found, and go on")
        assert free_slots(client) == 1
        assert {one["attempt"] for one in attempts(client, both)} == {0}
        jobs.go("small")
        jobs.go("large")
        assert client.wait_for_result(both).status is JobStatus.FINISHED
        reached(lambda: free_slots(client) == 4, "nothing is kept for a job whose queue may have one slot")
        reason = "queue tiny holds 0 of 1 slot it may have at most, and a task takes 2"
        reached(lambda: reason in client.get(f"/jobs/{tiny}")["pending-reason"], "its reason says so")
        others = jobs.run("others")
        assert client.wait_for_result(others).status is JobStatus.FINISHED
