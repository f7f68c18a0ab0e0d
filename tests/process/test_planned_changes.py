"""JobMaster processes of a real cluster are stopped, drained and restarted under load: no task restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.naps import attempts, run_naps
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

JOBS = 12
OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "16"}
PAUSE_MAX = 3.0
"""Seconds; the goal is one, of which a quiet host needs a tenth."""


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=1) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


@contextmanager
def foreground(cluster: ScriptCluster) -> Iterator[subprocess.Popen[bytes]]:
    """One more JobMaster process, as a child of this one: its exit code can be seen."""
    log = (cluster.run / "foreground.log").open("wb")
    command = [str(ROOT / "bin" / "start-jobmaster.sh"), "start-foreground", *cluster.dynamic]
    child = subprocess.Popen(command, env=cluster.environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        log.close()


def processes(client: FlinklikeClient) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in client.get("/jobmasters")["jobmasters"]}


def running(client: FlinklikeClient) -> dict[str, int]:
    return {name: one["jobs-running"] for name, one in processes(client).items()}


def is_idle(client: FlinklikeClient, process: str) -> bool:
    return running(client).get(process) == 0


class Pauses:
    """How long each job was shown as something else than RUNNING, at most; asked for all the time."""

    def __init__(self, cluster: ScriptCluster, ids: Sequence[JobId]) -> None:
        self.longest = dict.fromkeys(ids, 0.0)
        self._client = cluster.connect()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._client.close()

    def _watch(self) -> None:
        seen = dict.fromkeys(self.longest, time.monotonic())
        while not self._is_over.wait(0.02):
            jobs = self._client.get("/jobs/overview")["jobs"]
            now = time.monotonic()
            for job in jobs:
                if job["jid"] in seen and job["state"] == "RUNNING":
                    self.longest[job["jid"]] = max(self.longest[job["jid"]], now - seen[job["jid"]])
                    seen[job["jid"]] = now


def test_sigterm_hands_every_job_over(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    (first,) = processes(client)
    ids = run_naps(client, JOBS)
    before = attempts(client, ids)
    with foreground(cluster) as child:
        reached(lambda: len(processes(client)) == 2, "another process is there")
        (second,) = set(processes(client)) - {first}
        assert cluster.cli("jobmasters", "drain", first).returncode == 0
        reached(lambda: running(client)[second] == JOBS, "it has all jobs")
        assert processes(client)[first]["state"] == "draining"
        assert cluster.cli("jobmasters", "undrain", first).returncode == 0
        reached(lambda: processes(client)[first]["state"] == "ready", "the first one takes jobs again")
        with Pauses(cluster, ids) as pauses:
            child.send_signal(signal.SIGTERM)
            assert child.wait(timeout=100) == 0
            reached(lambda: running(client) == {first: JOBS}, "the first one has them again")
            reached(lambda: attempts(client, ids) == before, "all are taken over")
    assert max(pauses.longest.values()) < PAUSE_MAX, pauses.longest
    client.cancel(ids[0])
    reached(lambda: client.status(ids[0]).status.value == "CANCELED", "the new owner is in charge")


def test_a_job_is_moved_and_a_new_process_gets_its_share(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    (first,) = processes(client)
    ids = run_naps(client, JOBS)
    before = attempts(client, ids)
    assert cluster.script("start-jobmaster.sh", "start", *cluster.dynamic).returncode == 0
    reached(lambda: len(processes(client)) == 2, "another process is there")
    (second,) = set(processes(client)) - {first}
    reached(lambda: running(client) == {first: JOBS // 2, second: JOBS // 2}, "it has its share")
    (moved,) = client.get(f"/jobmasters/{first}")["jobs"][:1]
    done = cluster.cli("jobs", "move", moved["jid"], "--to", second, "--json")
    assert json.loads(done.stdout) == {"job_id": moved["jid"], "to": second}
    reached(lambda: running(client) == {first: JOBS // 2 - 1, second: JOBS // 2 + 1}, "the job is moved")
    reached(lambda: attempts(client, ids) == before, "all are taken over")
    unknown = cluster.cli("jobs", "move", moved["jid"], "--to", "nobody")
    assert (unknown.returncode, "nobody is not known" in unknown.stderr) == (1, True)


def test_the_last_process_leaves_its_jobs_to_the_next(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    ids = run_naps(client, 3)
    before = attempts(client, ids)
    (pid,) = cluster.pids()["jobmaster"]
    began = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    reached(lambda: processes(client) == {}, "it is gone")
    assert time.monotonic() - began < 5.0, "it does not wait for others"
    assert cluster.script("start-jobmaster.sh", "start", *cluster.dynamic).returncode == 0
    reached(lambda: list(running(client).values()) == [3], "the next one has them")
    reached(lambda: attempts(client, ids) == before, "all are taken over")


def test_a_rolling_restart_under_load(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    """Jobs that stay, and jobs that come and go all the time: none fails, no task of them restarts."""
    assert cluster.script("start-jobmaster.sh", "start", *cluster.dynamic).returncode == 0
    ids = run_naps(client, JOBS)
    before = attempts(client, ids)
    old = cluster.pids()
    is_over = threading.Event()
    short: list[JobId] = []
    load = threading.Thread(target=_submit_until, args=(cluster, is_over, short))
    load.start()
    try:
        done = cluster.script("rolling-restart.sh", "jobmaster", "jobmanager", *cluster.dynamic)
    finally:
        is_over.set()
        load.join()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "jobmaster 2 of 2" in done.stdout
    assert "jobmanager 1 of 1" in done.stdout
    assert "0 have failed meanwhile" in done.stdout
    new = cluster.pids()
    assert not set(old["jobmaster"] + old["jobmanager"]) & set(new["jobmaster"] + new["jobmanager"])
    assert (len(new["jobmaster"]), new["taskmanager"]) == (2, old["taskmanager"])
    with cluster.connect() as after:
        reached(lambda: attempts(after, ids) == before, "no task has restarted")
        reached(lambda: {after.status(job_id).status.value for job_id in short} == {"FINISHED"}, "all others finish")
        assert [attempt_id[-2:] for attempt_id, _ in attempts(after, short)] == ["_0"] * len(short), "none runs twice"


def _submit_until(cluster: ScriptCluster, is_over: threading.Event, ids: list[JobId]) -> None:
    with cluster.connect() as client:
        while not is_over.wait(0.3):
            job_id = new_job_id()
            nap = job_graph("short", "tests.benchmarks.programs:nap", params={"seconds": 1.0})
            client.submit(nap, job_id=job_id)
            ids.append(job_id)


def test_the_last_process_cancels_its_jobs_if_that_is_configured() -> None:
    options = {**OPTIONS, "jobmanager.jobmaster.shutdown": "stop"}
    with ScriptCluster(options, job_masters=1) as cluster, cluster.connect() as client:
        ids = run_naps(client, 3)
        (pid,) = cluster.pids()["jobmaster"]
        os.kill(pid, signal.SIGTERM)
        reached(lambda: {client.status(job_id).status.value for job_id in ids} == {"CANCELED"}, "all are cancelled")
        reached(lambda: processes(client) == {}, "it is gone")
        reached(lambda: client.get("/overview")["slots-available"] == 16, "nothing of them runs")
