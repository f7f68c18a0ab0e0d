"""JobManagers of a real cluster die, freeze and resign: REST is back in time, and no task restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from airflow_flinklike.exceptions import JobConflictError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.job_managers import (
    JobManagerProcess,
    answers,
    job_managers,
    leader_and_standby,
    seconds_until_answer,
)
from tests.kit.cluster.naps import attempts, run_naps
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached
from tests.process.conftest import IN_PROCESS

pytestmark = [pytest.mark.process, pytest.mark.etcd]

JOBS = 4
LEASE = 3
SLACK = 2.0
"""Seconds that a busy machine may add to what is promised."""

OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "8",
    "high-availability.lease-timeout": f"{LEASE} s",
}
NO_OP = job_graph("no-op", "tests.benchmarks.programs:no_op")


@pytest.fixture(scope="module", params=["split", pytest.param("in-process", marks=pytest.mark.extended)])
def cluster(request: pytest.FixtureRequest) -> Iterator[ScriptCluster]:
    """With a stand-by; every test leaves two JobManagers behind."""
    options = OPTIONS if request.param == "split" else {**OPTIONS, **IN_PROCESS}
    with ScriptCluster(options, masters=2) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


@pytest.fixture(autouse=True)
def two_job_managers(cluster: ScriptCluster) -> None:
    """What a failed test has left ended fails no other test."""
    if len(job_managers(cluster)) < 2:
        two_again(cluster)


@contextmanager
def napping(client: FlinklikeClient) -> Iterator[list[JobId]]:
    """Jobs of one task that sleeps, all RUNNING; cancelled at the end."""
    ids = run_naps(client, JOBS)
    try:
        yield ids
    finally:
        for job_id in ids:
            client.cancel(job_id)
        for job_id in ids:
            assert client.wait_for_result(job_id).status is JobStatus.CANCELED


def finish_one(client: FlinklikeClient) -> JobId:
    job_id = new_job_id()
    client.submit(NO_OP, job_id=job_id)
    assert client.wait_for_result(job_id).status is JobStatus.FINISHED
    return job_id


class Users(threading.Thread):
    """Goes on submitting and watching small jobs, as the client of a user does. What it raises is kept."""

    def __init__(self, cluster: ScriptCluster) -> None:
        super().__init__()
        self._cluster = cluster
        self._is_over = threading.Event()
        self.finished: list[JobId] = []
        self.failures: list[Exception] = []

    def run(self) -> None:
        with self._cluster.connect() as client:
            while not self._is_over.is_set():
                try:
                    self.finished.append(finish_one(client))
                except Exception as error:  # noqa: BLE001 - whatever it is, a user has seen it
                    self.failures.append(error)

    def __enter__(self) -> Self:
        self.start()
        reached(lambda: self.finished, "jobs of users")
        return self

    def __exit__(self, *_: object) -> None:
        count = len(self.finished)
        reached(lambda: self.failures or len(self.finished) > count, "users go on")
        self._is_over.set()
        self.join(60)
        assert not self.failures
        assert not self.is_alive()


@contextmanager
def attached(cluster: ScriptCluster, directory: Path) -> Iterator[None]:
    """A command line that watches a job from before the block to some time after it, and hears its end."""
    job_file = directory / "nap.json"
    nap = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 5})
    job_file.write_bytes(nap.canonical_json())
    command = [str(ROOT / "bin" / "flinklike"), "run", str(job_file)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=cluster.environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stderr is not None
            assert "has been submitted" in process.stderr.readline()
            yield
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said
            assert "FINISHED" in said
        finally:
            process.kill()


def everything_goes_on(client: FlinklikeClient, ids: Sequence[JobId], before: Any, finished: JobId) -> None:
    reached(lambda: len(attempts(client, ids)) == JOBS, "all jobs are known")
    assert attempts(client, ids) == before
    listed = {job["jid"]: job["state"] for job in client.get("/jobs/overview")["jobs"]}
    assert listed[finished] == "FINISHED"
    assert not client.submit(NO_OP, job_id=finished).is_new, "a finished job is not run again"
    with pytest.raises(JobConflictError):
        client.submit(job_graph("other", "tests.benchmarks.programs:no_op"), job_id=finished)


def two_again(cluster: ScriptCluster, *ended: JobManagerProcess) -> None:
    """Start what is missing. A JobManager that has not ended yet, as it was told, is not missing."""
    reached(lambda: not {one.pid for one in ended} & {one.pid for one in job_managers(cluster)}, "they have ended")
    started = cluster.script("start-cluster.sh", *cluster.dynamic)
    assert started.returncode == 0, started.stderr
    leader_and_standby(cluster)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def terminate(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize(("end", "within"), [(kill, 2.0), (terminate, 1.0)], ids=["killed", "told to stop"])
def test_the_stand_by_takes_over(
    cluster: ScriptCluster, client: FlinklikeClient, end: Callable[[int], None], within: float, tmp_path: Path
) -> None:
    leader, standby = leader_and_standby(cluster)
    finished = finish_one(client)
    with napping(client) as ids:
        before = attempts(client, ids)
        with Users(cluster), attached(cluster, tmp_path):
            ended_at = time.monotonic()
            end(leader.pid)
            assert seconds_until_answer(cluster, standby.url, ended_at) < within + SLACK
        everything_goes_on(client, ids, before, finished)
        two_again(cluster, leader)


def test_a_browser_stays_signed_in(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    leader, standby = leader_and_standby(cluster)
    page = f"/ui/jobs/{finish_one(client)}"
    with httpx.Client(headers={"accept": "text/html"}, follow_redirects=True) as browser:
        shown = browser.post(f"{leader.url}{page}", data={"token": cluster.token})
        assert (shown.status_code, "signed-in-by" in shown.text) == (200, True)
        assert browser.get(f"{standby.url}{page}").status_code == 200, "the stand-by takes what the leader has given"
        kill(leader.pid)
        reached(lambda: browser.get(f"{standby.url}{page}").status_code == 200, "the page is there again")
        signed_in = browser.post(
            f"{standby.url}{page}", data={"token": cluster.token}, headers={"accept": "application/json"}
        )
        read = {"x-csrf-token": signed_in.json()["csrf-token"]}

        def state_of_the_job() -> str | None:
            asked = browser.get(f"{standby.url}{page.removeprefix('/ui')}", headers=read)
            assert asked.status_code in (200, 503), asked.text
            return str(asked.json()["state"]) if asked.status_code == 200 else None

        assert reached(state_of_the_job, "the page has its data again") == "FINISHED"
    two_again(cluster, leader)


def test_a_frozen_leader_is_replaced_and_stands_by_when_it_wakes(
    cluster: ScriptCluster, client: FlinklikeClient
) -> None:
    leader, standby = leader_and_standby(cluster)
    finished = finish_one(client)
    with napping(client) as ids:
        before = attempts(client, ids)
        frozen_at = time.monotonic()
        os.kill(leader.pid, signal.SIGSTOP)
        try:
            with FlinklikeClient([standby.url], cluster.token) as patient:
                patient.get("/jobs/overview")
                assert time.monotonic() - frozen_at < LEASE + 2.0 + SLACK
                finish_one(patient)
        finally:
            os.kill(leader.pid, signal.SIGCONT)
        reached(lambda: answers(cluster, leader.url), "the old leader answers through the new one")
        assert not answers(cluster, leader.url, by_itself=True)
        everything_goes_on(client, ids, before, finished)


def test_any_address_works(cluster: ScriptCluster) -> None:
    _, standby = leader_and_standby(cluster)
    with FlinklikeClient([standby.url], cluster.token) as client:
        job_id = finish_one(client)
        assert client.status(job_id, wait=5).status is JobStatus.FINISHED


def test_without_a_stand_by_the_next_one_takes_over(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    leader, standby = leader_and_standby(cluster)
    finished = finish_one(client)
    with napping(client) as ids:
        before = attempts(client, ids)
        with Users(cluster):
            kill(standby.pid)
            kill(leader.pid)
            port = leader.url.rpartition(":")[2]
            started = cluster.script("jobmanager.sh", "start", *cluster.dynamic, "-D", f"rest.port={port}")
            assert started.returncode == 0, started.stderr
            assert answers(cluster, leader.url, by_itself=True, timeout=5), "it is ready when it leads"
        everything_goes_on(client, ids, before, finished)
        two_again(cluster, leader, standby)
    assert len(job_managers(cluster)) == 2
