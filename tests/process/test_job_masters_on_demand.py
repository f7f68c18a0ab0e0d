"""`jobmanager.jobmaster.autoscale`: real JobMaster processes come with jobs, hand them over, and go (R65)."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

MOST = 2
OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "4",
    "resourcemanager.driver": "process",
    "slotmanager.number-of-slots.max": "4",
    "resourcemanager.taskmanager-timeout": "1 h",
    "jobmanager.jobmaster.single.enable": "true",
    "jobmanager.jobmaster.autoscale.max": str(MOST),
    "jobmanager.jobmaster.autoscale.jobs-per-process": "5",
    "jobmanager.jobmaster.autoscale.scale-down.interval": "3 s",
    "high-availability.lease-timeout": "3 s",
}
LABEL = re.compile(r"jobmanager\.jobmaster\.worker-id=(w-[0-9a-f]{12})")


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS) as made:
        yield made


def nap(seconds: float) -> Any:
    return job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": seconds})


def submit(client: FlinklikeClient, count: int, seconds: float) -> list[JobId]:
    jobs = [new_job_id() for _ in range(count)]
    for job in jobs:
        client.submit(nap(seconds), job_id=job)
    return jobs


def labels(cluster: ScriptCluster) -> list[str]:
    """The workers that run, from the pid file as the driver reads it."""
    found = []
    for pid in cluster.pids().get("jobmaster", []):
        try:
            label = LABEL.search(Path(f"/proc/{pid}/cmdline").read_text())
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [label.group(1)] if label else []
    assert len(found) == len(set(found)) <= MOST, found
    return found


def owner(client: FlinklikeClient, job: JobId) -> str:
    """The JobMaster process that runs the job, "" while none does."""
    processes = client.get("/jobmasters")["jobmasters"]
    held = {one["id"]: client.get(f"/jobmasters/{one['id']}")["jobs"] for one in processes}
    return next((name for name, jobs in held.items() if job in {one["jid"] for one in jobs}), "")


def restarts(client: FlinklikeClient, job: JobId) -> list[int]:
    """The numbers of the attempts of its subtasks: 0 where nothing was started again."""
    vertices = [one["id"] for one in client.get(f"/jobs/{job}")["vertices"]]
    return [task["attempt"] for vertex in vertices for task in client.get(f"/jobs/{job}/vertices/{vertex}")["subtasks"]]


def test_processes_come_hand_over_and_go_though_the_leader_is_killed(cluster: ScriptCluster) -> None:
    assert labels(cluster) == []
    seen: set[str] = set()

    def look() -> list[str]:
        now = labels(cluster)
        seen.update(now)
        return now

    with cluster.connect() as client:
        (long, other) = submit(client, 2, 60.0)
        jobs = submit(client, 12, 1.0)
        reached(lambda: len(look()) == MOST, "as many as are allowed run")
        os.kill(cluster.pids()["jobmanager"][0], signal.SIGKILL)
        look()
        done = cluster.script("jobmanager.sh", "start", *cluster.dynamic)
        assert done.returncode == 0, done.stdout + done.stderr
        reached(lambda: owner(client, long) and owner(client, other), "both have owners")
        reached(lambda: client.get(f"/jobs/{long}/status")["status"] == "RUNNING", "it runs")
        if owner(client, long) == owner(client, other):
            (free,) = {one["id"] for one in client.get("/jobmasters")["jobmasters"]} - {owner(client, long)}
            client.post(f"/jobs/{other}/move", {"to": free})
            reached(lambda: owner(client, other) == free, "each process has a long job")
        while not all(client.get(f"/jobs/{job}/status")["status"] == "FINISHED" for job in jobs):
            look()
        reached(lambda: len(look()) == 1, "one has handed its jobs over, and has gone")
        assert len(seen) == MOST, "the new leader has neither lost nor doubled one"
        reached(lambda: owner(client, long) == owner(client, other) != "", "the other one has both")
        for job in (long, other):
            assert client.get(f"/jobs/{job}/status")["status"] == "RUNNING"
            assert restarts(client, job) == [0]
            client.cancel(job)
        reached(lambda: not look(), "idle ones are gone")


def test_a_killed_process_is_replaced_and_its_job_goes_on(cluster: ScriptCluster) -> None:
    with cluster.connect() as client:
        (job,) = submit(client, 1, 60.0)
        reached(lambda: client.get(f"/jobs/{job}/status")["status"] == "RUNNING", "it runs")
        (first,) = labels(cluster)
        os.kill(cluster.pids()["jobmaster"][0], signal.SIGKILL)
        reached(lambda: labels(cluster) not in ([], [first]), "another one was started")
        reached(lambda: owner(client, job), "it has an owner again")
        reached(lambda: restarts(client, job), "its owner has taken it over")
        assert restarts(client, job) == [0]
        client.cancel(job)


def test_a_job_that_waits_says_why_no_process_comes_up(cluster: ScriptCluster) -> None:
    with (cluster.run / "conf" / "config.yaml").open("a") as file:
        file.write("\njobmanager.jobmaster.capacity: many\n")  # the JobManager has read its configuration
    with cluster.connect() as client:
        (job,) = submit(client, 1, 1.0)
        reached(lambda: "JobMaster processes do not come up" in str(client.get(f"/jobs/{job}")), "the reason is shown")
        told = [event["message"] for event in client.get("/events")["events"]]
    failures = [message for message in told if "did not come up" in message]
    assert failures, told
    assert "jobmanager.jobmaster.capacity" in failures[0], failures
