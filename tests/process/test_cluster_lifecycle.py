"""Jobs over the life of a cluster: before its processes are there, submitted twice, after restarts of all or of etcd.

The cluster begins with etcd and a JobManager only; tests add what they need by the scripts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from airflow_flinklike import Pipeline
from airflow_flinklike.api.handle import JobHandle
from airflow_flinklike.client import FlinklikeClient, new_job_id
from airflow_flinklike.exceptions import JobConflictError
from runtime.common.states import JobStatus
from tests.kit.cluster.process_jobs import holding, noting, runs_of, submit, submit_as
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "2"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=0, workers=0) as started:
        yield started


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as connected:
        yield connected


def start(cluster: ScriptCluster, script: str) -> None:
    done = cluster.script(script, "start", *cluster.dynamic)
    assert done.returncode == 0, done.stdout + done.stderr


def with_processes(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    """At least two JobMaster processes and a TaskManager."""
    for _ in range(len(ready_job_masters(client)), 2):
        start(cluster, "start-jobmaster.sh")
    if not client.get("/taskmanagers")["taskmanagers"]:
        start(cluster, "taskmanager.sh")


def ready_job_masters(client: FlinklikeClient) -> list[Any]:
    found = client.get("/jobmasters")["jobmasters"]
    return [one for one in found if one["state"] == "ready"]


def jobs_by_master(client: FlinklikeClient) -> dict[str, int]:
    return {one["id"]: one["jobs-running"] for one in ready_job_masters(client)}


def test_a_job_waits_for_processes_and_says_so(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> None:
    job = submit(client, noting(tmp_path / "runs", 42))
    state = job.status()
    assert state.status is JobStatus.INITIALIZING
    assert "JobMaster" in state.pending_reason, state
    assert state.pending_reason in cluster.cli("list").stdout

    start(cluster, "start-jobmaster.sh")
    reached(lambda: job.status().status is JobStatus.CREATED, "a JobMaster process has it")
    reached(lambda: "TaskManager" in job.status().pending_reason, "it says that it waits for a TaskManager")
    assert "TaskManager" in cluster.cli("status", job.job_id).stdout

    start(cluster, "taskmanager.sh")
    assert job.result() == 42
    assert job.status().pending_reason == ""


def test_an_id_is_one_job(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> None:
    with_processes(cluster, client)
    runs, gate, job_id = tmp_path / "runs", tmp_path / "gate", new_job_id()
    program = noting(runs, 1)
    assert submit_as(client, program, job_id).is_new
    assert not submit_as(client, program, job_id).is_new
    with pytest.raises(JobConflictError, match=job_id):
        submit_as(client, holding(gate), job_id)
    assert JobHandle(client, job_id).result() == 1
    assert not submit_as(client, program, job_id).is_new
    with pytest.raises(JobConflictError, match=job_id):
        submit_as(client, holding(gate), job_id)
    assert runs_of(runs, job_id) == 1


def test_large_values_of_many_producers_meet_in_one_consumer(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    with_processes(cluster, client)
    pipeline = Pipeline("values")
    parts = pipeline.source("parts", lambda ctx: "x" * 250_000, parallelism=32)
    parts.gather().apply("all", lambda ctx, values: sum(map(len, values))).broadcast().sink(
        "twice", lambda ctx, values: values, parallelism=2
    )
    assert submit(client, pipeline).result() == {"twice": [[8_000_000], [8_000_000]]}

    results = Pipeline("results")
    results.source("parts", lambda ctx: "x" * 250_000, parallelism=32)
    assert [len(part) for part in submit(client, results).result()["parts"]] == [250_000] * 32


def test_new_jobs_land_on_a_new_job_master_process(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    with_processes(cluster, client)
    gate = tmp_path / "gate"
    jobs = [submit(client, holding(gate)) for _ in range(4)]
    reached(lambda: sorted(jobs_by_master(client).values()) == [2, 2], "the jobs are spread over two processes")
    before = jobs_by_master(client)
    start(cluster, "start-jobmaster.sh")
    assert len(ready_job_masters(client)) == 3
    jobs += [submit(client, holding(gate)) for _ in range(2)]

    def new_ones() -> list[int]:
        return [count for name, count in jobs_by_master(client).items() if name not in before]

    reached(lambda: new_ones() == [2], "both new jobs are on the third process")
    assert {name: jobs_by_master(client)[name] for name in before} == before
    assert cluster.cli("jobmasters").stdout.count(" ready ") == 3
    gate.touch()
    assert [job.result() for job in jobs] == ["released"] * 6
    assigned = {one["id"]: one["jobs-assigned"] for one in ready_job_masters(client)}
    assert all(assigned[name] >= count for name, count in before.items())
    assert [count for name, count in assigned.items() if name not in before] == [2]


def test_etcd_may_come_back_while_the_cluster_is_idle(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    """start-cluster.sh starts what is missing, and nothing twice."""
    with_processes(cluster, client)
    others = {role: pids for role, pids in cluster.pids().items() if role != "etcd"}
    etcd = psutil.Process(cluster.pids()["etcd"][0])
    command = etcd.cmdline()
    etcd.kill()
    etcd.wait(100)
    assert f"REST: {cluster.url}" in cluster.start()
    again = psutil.Process(cluster.pids()["etcd"][0])
    assert {role: pids for role, pids in cluster.pids().items() if role != "etcd"} == others
    assert client_url(again.cmdline()) == client_url(command), "same port, so the processes find it"
    job = submit(client, noting(tmp_path / "runs", 5))
    assert job.result() == 5


def client_url(command: list[str]) -> str:
    return next(one for one in command if one.startswith("--listen-client-urls"))


def test_finished_jobs_outlive_a_restart_of_everything(cluster: ScriptCluster, tmp_path: Path) -> None:
    runs, job_id = tmp_path / "runs", new_job_id()
    program = noting(runs, 7)
    with cluster.connect() as client:
        with_processes(cluster, client)
        submit_as(client, program, job_id)
        assert JobHandle(client, job_id).result() == 7
    assert cluster.stop().returncode == 0
    assert cluster.processes() == {}
    cluster.start()
    with cluster.connect() as client:
        job = JobHandle(client, job_id)
        assert job.result() == 7
        listed = {one["jid"]: one["state"] for one in client.get("/jobs/overview")["jobs"]}
        assert listed[job_id] == "FINISHED"
        assert [vertex["status"] for vertex in job.details()["vertices"]] == ["FINISHED"]
        assert not submit_as(client, program, job_id).is_new
        with_processes(cluster, client)
        later = submit(client, noting(runs, 8))
        assert later.result() == 8
        assert runs_of(runs, job_id) == 1
        asked = httpx.get(f"{cluster.url}/jobs/{job_id}", headers={"authorization": f"Bearer {cluster.token}"})
        assert (asked.status_code, asked.json()["state"]) == (200, "FINISHED")


def test_a_job_that_waits_outlives_a_restart_of_everything(cluster: ScriptCluster, tmp_path: Path) -> None:
    """Accepted is accepted: it runs when there are slots again, once."""
    cluster.stop()
    cluster.start()
    runs = tmp_path / "runs"
    with cluster.connect() as client:
        job_id = submit(client, noting(runs, 9)).job_id
    cluster.stop()
    cluster.start()
    with cluster.connect() as client:
        with_processes(cluster, client)
        assert JobHandle(client, job_id).result() == 9
    assert runs_of(runs, job_id) == 1


def test_a_killed_job_manager_is_started_again(cluster: ScriptCluster, tmp_path: Path) -> None:
    """The processes that are left find the new one, and its predecessor's jobs are shown."""
    with cluster.connect() as client:
        with_processes(cluster, client)
        gate = tmp_path / "gate"
        running = submit(client, holding(gate)).job_id
        reached(lambda: running_subtasks(client, running), "it runs")
    os.kill(cluster.pids()["jobmanager"][0], signal.SIGKILL)
    start(cluster, "jobmanager.sh")
    with cluster.connect() as client:
        gate.touch()
        assert JobHandle(client, running).result() == "released"
        assert JobHandle(client, running).details()["vertices"][0]["status"] == "FINISHED"
        assert submit(client, noting(tmp_path / "runs", 3)).result() == 3


def running_subtasks(client: FlinklikeClient, job_id: Any) -> int:
    return int(client.get(f"/jobs/{job_id}")["vertices"][0]["tasks"]["RUNNING"])
