"""`resourcemanager.profiles`: a real TaskManager of the profile that a job asks for comes, and goes (D-141)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from airflow_flinklike.client import new_job_id
from runtime.common.states import JobStatus
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "2",
    "taskmanager.memory.task.size": "512 mb",
    "resourcemanager.driver": "process",
    "slotmanager.number-of-slots.max": "4",
    "resourcemanager.taskmanager-timeout": "2 s",
    "resourcemanager.profiles.gpu.taskmanager.labels": "gpu:a100",
    "resourcemanager.profiles.gpu.taskmanager.numberOfTaskSlots": "1",
}
NAP = "tests.benchmarks.programs:nap"


WAITING_JOB = """
import time
from pathlib import Path

from airflow_flinklike import Pipeline, ResourceSpec

HERE = Path({folder!r})


def wait(ctx):
    (HERE / "{name}-began").touch()
    while not (HERE / "{name}-go").exists():
        time.sleep(0.05)
    return 1


pipeline = Pipeline("{name}")
pipeline.source("wait", wait, resources=ResourceSpec(labels={labels!r}))
"""


def test_a_label_brings_a_task_manager_of_its_profile_and_idle_ones_go(tmp_path: Path) -> None:
    """Each is looked at while its task runs: after that it may be gone at once."""
    seen: dict[str, tuple[list[str], int]] = {}
    with ScriptCluster(OPTIONS) as cluster, cluster.connect() as client:
        assert client.get("/resourcemanager")["workers"] == []
        for name, labels, profile in (("plain", (), "default"), ("labelled", ("gpu=a100",), "gpu")):
            (tmp_path / f"{name}.py").write_text(WAITING_JOB.format(folder=str(tmp_path), name=name, labels=labels))
            done = cluster.cli("run", "-d", "--json", f"{name}.py:pipeline", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            job = json.loads(done.stdout)["job_id"]
            reached((tmp_path / f"{name}-began").exists, f"{name} runs")
            told = [one["message"] for one in client.get("/events")["events"] if "is asked for" in one["message"]]
            assert len(told) <= len(seen) + 1
            vertices = client.get(f"/jobs/{job}")["vertices"]
            ran = client.get(f"/jobs/{job}/vertices/{vertices[0]['id']}")["subtasks"][0]["taskmanager-id"]
            (where,) = [one for one in client.get("/taskmanagers")["taskmanagers"] if one["id"] == ran]
            seen[where["profile"]] = (where["labels"], where["slotsNumber"])
            assert profile in seen
            assert profile in cluster.cli("taskmanagers").stdout
            (tmp_path / f"{name}-go").touch()
            assert client.wait_for_result(job).status is JobStatus.FINISHED
        reached(lambda: not client.get("/resourcemanager")["workers"], "idle ones are gone")
    assert seen == {"gpu": (["gpu=a100"], 1), "default": ([], 2)}


LARGE_JOB = """
import time
from pathlib import Path

from airflow_flinklike import Pipeline, ResourceSpec

HERE = Path({folder!r})


def much(ctx):
    held = bytearray(350 << 20)  # a slot has 256 MB
    held[:: 4096] = b"x" * len(held[:: 4096])
    (HERE / "began").touch()
    while not (HERE / "go").exists():
        time.sleep(0.05)
    return [len(held)]


pipeline = Pipeline("large")
pipeline.source("much", much, resources=ResourceSpec(memory_bytes=400 << 20))
"""


def test_a_task_larger_than_a_slot_has_the_memory_of_two_and_counts_as_two(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(LARGE_JOB.format(folder=str(tmp_path)))
    with ScriptCluster(OPTIONS) as cluster, cluster.connect() as client:
        done = cluster.cli("run", "-d", "--json", "large.py:pipeline", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        job = json.loads(done.stdout)["job_id"]
        reached((tmp_path / "began").exists, "it has more memory than one slot")
        (where,) = client.get("/taskmanagers")["taskmanagers"]
        assert (where["profile"], where["slotsNumber"], where["freeSlots"]) == ("default", 2, 0)
        client.submit(job_graph("plain", NAP, params={"seconds": 0}), job_id=(plain := new_job_id()))
        assert client.wait_for_result(plain).status is JobStatus.FINISHED, "another TaskManager came for it"
        os.kill(cluster.pids()["jobmanager"][0], signal.SIGKILL)
        started = cluster.script("jobmanager.sh", "start", *cluster.dynamic)
        assert started.returncode == 0, started.stdout + started.stderr

        def free_slots() -> dict[str, int]:
            return {one["id"]: one["freeSlots"] for one in client.get("/taskmanagers")["taskmanagers"]}

        reached(lambda: free_slots().get(where["id"]) == 0, "the next leader knows that it has both")
        (tmp_path / "go").touch()
        assert client.wait_for_result(job).status is JobStatus.FINISHED
        reached(lambda: not client.get("/resourcemanager")["workers"], "idle ones are gone")
