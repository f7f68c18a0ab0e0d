"""`resourcemanager.driver: process`: real TaskManagers come with jobs, and go when they are idle (R65)."""

from __future__ import annotations

import fcntl
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

SLOTS_MAX = 4
OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "2",
    "resourcemanager.driver": "process",
    "slotmanager.number-of-slots.max": str(SLOTS_MAX),
    "resourcemanager.taskmanager-timeout": "4 s",
    "high-availability.lease-timeout": "3 s",
}
NAP = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 1})
HOLD = job_graph("hold", "tests.benchmarks.programs:nap", params={"seconds": 300})
LABEL = re.compile(r"taskmanager\.worker-id=(w-[0-9a-f]{12})")


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS) as made:
        yield made


def watchers(cluster: ScriptCluster) -> dict[int, str]:
    """The workers that run, by the pid of their first process, from the pid file as the driver reads it."""
    found = {}
    for pid in cluster.pids().get("taskmanager", []):
        try:
            label = LABEL.search(Path(f"/proc/{pid}/cmdline").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
        if label:
            found[pid] = label.group(1)
    return found


def submit(client: FlinklikeClient, count: int) -> list[JobId]:
    jobs = [new_job_id() for _ in range(count)]
    for job in jobs:
        client.submit(NAP, job_id=job)
    return jobs


def finished(cluster: ScriptCluster, jobs: list[JobId]) -> list[JobStatus]:
    def wait(job: JobId) -> JobStatus:
        with cluster.connect() as client:
            return client.wait_for_result(job).status

    with ThreadPoolExecutor(len(jobs)) as threads:
        return list(threads.map(wait, jobs))


def test_workers_come_with_jobs_and_go_when_they_are_idle_though_the_leader_is_killed(cluster: ScriptCluster) -> None:
    assert watchers(cluster) == {}
    seen: set[str] = set()

    def look() -> dict[int, str]:
        now = watchers(cluster)
        assert len(now) == len(set(now.values())) <= SLOTS_MAX // 2, now
        seen.update(now.values())
        return now

    with cluster.connect() as client:
        jobs = submit(client, 20)
        reached(lambda: len(look()) == SLOTS_MAX // 2, "as many as are allowed run")
        os.kill(cluster.pids()["jobmanager"][0], signal.SIGKILL)
        look()
        done = cluster.script("jobmanager.sh", "start", *cluster.dynamic)
        assert done.returncode == 0, done.stdout + done.stderr
        while not all(client.get(f"/jobs/{job}/status")["status"] == "FINISHED" for job in jobs):
            look()
    assert finished(cluster, jobs) == [JobStatus.FINISHED] * len(jobs)
    assert len(seen) == SLOTS_MAX // 2, "the new leader has neither lost nor doubled one"
    reached(lambda: not look(), "idle ones are gone")


def test_a_job_that_waits_says_how_many_are_starting(cluster: ScriptCluster) -> None:
    with cluster.connect() as client, (cluster.run / "run" / "pid" / "taskmanager.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # no start gets beyond this
        jobs = submit(client, 3)
        said = "2 TaskManagers are starting"
        reached(lambda: said in client.get(f"/jobs/{jobs[0]}")["pending-reason"], "the reason is shown")
        told = client.get("/resourcemanager")
        assert told["driver"] == "process"
        assert [(one["kind"], one["state"]) for one in told["workers"]] == [("taskmanager", "starting")] * 2
        assert client.get("/overview")["taskmanagers-pending"] == 2
        assert told["workers"][0]["id"] in cluster.cli("taskmanagers").stdout
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert finished(cluster, jobs) == [JobStatus.FINISHED] * 3


def test_a_damaged_pid_file_makes_no_worker_unseen(cluster: ScriptCluster) -> None:
    pid_file = cluster.run / "run" / "pid" / "taskmanager.pid"
    with cluster.connect() as client:
        client.submit(HOLD, job_id=(hold := new_job_id()))
        reached(lambda: client.get(f"/jobs/{hold}/status")["status"] == "RUNNING", "a worker is in use")
        (before,) = watchers(cluster).values()
        pid_file.write_text("")
        jobs = submit(client, 8)  # for another worker, whose start mends the file
        reached(lambda: before in watchers(cluster).values(), "the file names it again")
        assert finished(cluster, jobs) == [JobStatus.FINISHED] * 8
        told = [event["message"] for event in client.get("/events")["events"]]
        assert sum("is asked for" in one for one in told) == SLOTS_MAX // 2, told
        assert not [one for one in told if "did not come up" in one]
        client.cancel(hold)
        pid_file.unlink()
        reached(lambda: not client.get("/resourcemanager")["workers"], "idle ones are gone: the driver has ended them")


def test_a_killed_worker_is_replaced(cluster: ScriptCluster) -> None:
    with cluster.connect() as client:
        jobs = submit(client, 4)
        (pid, *_) = reached(lambda: watchers(cluster), "a worker runs")
        os.kill(pid, signal.SIGKILL)
        jobs += submit(client, 4)
    assert finished(cluster, jobs[4:]) == [JobStatus.FINISHED] * 4


def test_a_job_that_waits_says_why_no_worker_comes_up(cluster: ScriptCluster) -> None:
    with (cluster.run / "conf" / "config.yaml").open("a") as file:
        file.write("\ntaskmanager.memory.task.size: much\n")  # the JobManager has read its configuration
    with cluster.connect() as client:
        (job,) = submit(client, 1)

        def why() -> bool:
            return "TaskManagers do not come up" in str(client.get(f"/jobs/{job}"))

        reached(why, "the reason is shown")
        told = [event["message"] for event in client.get("/events")["events"]]
    failures = [message for message in told if "did not come up" in message]
    assert failures, told
    assert "taskmanager.memory.task.size" in failures[0], failures
