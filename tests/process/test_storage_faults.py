"""Storage of a real cluster is full, or has lost or spoiled what is stored of a job: that job ends, others go on."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from airflow_flinklike.exceptions import ClusterUnavailableError
from runtime.common.ids import JobId
from runtime.highavailability.keys import Keys
from tests.kit.cluster.gated_jobs import GatedJobs
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.etcd.server import EtcdProcess
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.slow]

OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "8",
}
START = {"jobmanager": "jobmanager.sh", "jobmaster": "start-jobmaster.sh"}
ROOM = 512 * 1024
KEYS = Keys.of_cluster("default")


@dataclass
class Box:
    """A cluster, its etcd, and jobs."""

    etcd: EtcdProcess
    cluster: ScriptCluster
    client: FlinklikeClient
    jobs: GatedJobs

    def kill(self, role: str) -> None:
        """Every process of a role, and start as many again."""
        pids = self.cluster.pids()[role]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for _ in pids:
            started = self.cluster.script(START[role], "start", *self.cluster.dynamic)
            assert started.returncode == 0, started.stderr

    def failure(self, job_id: JobId) -> str:
        """Why a job has failed, once it has."""
        reached(lambda: self.jobs.states([job_id]) == ["FAILED"], "it has failed")
        return str(self.client.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"][0]["stacktrace"])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EtcdProcess, ScriptCluster]]:
    etcd = EtcdProcess(tmp_path_factory.mktemp("etcd"))
    etcd.start()
    try:
        with ScriptCluster({**OPTIONS, **etcd.options()}) as made:
            yield etcd, made
    finally:
        etcd.stop()


@pytest.fixture
def box(cluster: tuple[EtcdProcess, ScriptCluster], tmp_path: Path) -> Iterator[Box]:
    etcd, made = cluster
    with made.connect(retry_for=30.0) as client:
        yield Box(etcd, made, client, GatedJobs(made, client, tmp_path))


@contextmanager
def room_for(pid: int, size_bytes: int) -> Iterator[None]:
    """No file of that process can grow beyond that size."""
    _, hard = before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def test_a_submit_without_room_is_told_where_and_how_much_and_others_go_on(box: Box) -> None:
    (job_manager,) = box.cluster.pids()["jobmanager"]
    refused = new_job_id()
    with room_for(job_manager, ROOM):
        with pytest.raises(ClusterUnavailableError, match=r"storage .*storage has no room for an object of \d{7} byt"):
            box.client.submit(box.jobs.graph("large", padding=2 * ROOM), job_id=refused)
        assert box.jobs.states([refused]) == [""]
        small = box.jobs.submit("small")
        box.jobs.open_gate("small")
        reached(lambda: box.jobs.states([small]) == ["FINISHED"], "the small one goes on")
    box.client.submit(box.jobs.graph("large", padding=2 * ROOM), job_id=refused)
    box.jobs.open_gate("large")
    reached(lambda: box.jobs.states([refused]) == ["FINISHED"], "with room it is taken")


def test_what_is_spoiled_or_lost_fails_its_own_job_at_a_takeover(box: Box) -> None:
    names = ("good", "graph", "object")
    good, graph, large = (box.jobs.submit(name, padding=100_000 if name == "object" else 0) for name in names)
    ((attempt, _),) = box.jobs.attempts([good])
    box.etcd.ctl("put", KEYS.graph(graph), "spoiled")
    record = box.etcd.ctl("get", "--print-value-only", KEYS.graph(large))
    (lost,) = [path for path in box.cluster.stored_files() if "blobs" in path.parts and path.name in record]
    lost.unlink()
    # What the leader has in memory it need not read.
    box.kill("jobmanager")
    box.kill("jobmaster")
    assert f"{KEYS.graph(graph)} is refused: it carries no seal" in box.failure(graph)
    assert "not found" in box.failure(large)
    reached(lambda: box.jobs.attempts([good]) == [(attempt, "RUNNING")], "the good one goes on")
    for name in names:
        box.jobs.open_gate(name)
    reached(lambda: box.jobs.states([good]) == ["FINISHED"], "it ends")
    assert [box.jobs.count(name, "ends") for name in names] == [1, 0, 0], "the others were stopped (R16)"


def test_an_event_log_that_is_spoiled_fails_its_job_when_leader_and_owner_are_new(box: Box) -> None:
    job_id, good = new_job_id(), box.jobs.submit("good")
    box.client.submit(box.jobs.pipeline(), job_id=job_id)
    box.jobs.open_gate("first")
    reached(lambda: box.jobs.count("second", "begins") == 1, "the second one runs")
    box.etcd.ctl("put", KEYS.event(job_id, 0), "spoiled")
    box.kill("jobmanager")
    reached(lambda: box.jobs.states([job_id, good]) == ["RUNNING", "RUNNING"], "a leader reads no events")
    box.kill("jobmaster")
    assert f"{KEYS.event(job_id, 0)} is refused: it carries no seal" in box.failure(job_id)
    for name in ("second", "good"):
        box.jobs.open_gate(name)
    reached(lambda: box.jobs.states([good]) == ["FINISHED"], "the good one ends")
    assert box.jobs.count("second", "ends") == 0
