"""JobMaster processes of a real cluster die: their jobs go on under other owners, and no task restarts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.ids import JobId
from tests.kit.cluster.gated_jobs import GatedJobs
from tests.kit.cluster.naps import attempts, run_naps
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.etcd.stored_keys import KEYS, delete_key, revisions
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

JOBS = 6
LEASE = 3.0
OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "8"}
PATIENT = {**OPTIONS, "high-availability.lease-timeout": "60 s", "heartbeat.timeout": "120 s"}
"""No silence reaches these timeouts: a killed process is proved dead."""


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(PATIENT) as made:
        yield made


@pytest.fixture
def impatient() -> Iterator[ScriptCluster]:
    given = {"high-availability.lease-timeout": f"{LEASE:g} s", "jobmanager.jobmaster.rebalance": "false"}
    with ScriptCluster({**OPTIONS, **given}) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def states(client: FlinklikeClient, ids: Sequence[JobId]) -> set[str]:
    return {job["state"] for job in client.get("/jobs/overview")["jobs"] if job["jid"] in ids}


def owners(client: FlinklikeClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/jobmasters")["jobmasters"]
    return found


def takeovers(client: FlinklikeClient, job_id: JobId) -> list[str]:
    return [one["reason"] for one in client.get(f"/jobs/{job_id}")["takeovers"]]


def begins(client: FlinklikeClient, ids: Sequence[JobId]) -> list[tuple[int, int, int]]:
    """When the one vertex of each job began, its task was deployed, and ran."""
    found = []
    for job_id in ids:
        (vertex,) = client.get(f"/jobs/{job_id}")["vertices"]
        (subtask,) = client.get(f"/jobs/{job_id}/vertices/{vertex['id']}/subtasktimes")["subtasks"]
        times = subtask["timestamps"]
        found.append((vertex["start-time"], times["DEPLOYING"], times["RUNNING"]))
    return found


def test_a_killed_job_master_restarts_no_task(cluster: ScriptCluster, client: FlinklikeClient) -> None:
    ids = run_naps(client, JOBS)
    before, begun = attempts(client, ids), begins(client, ids)
    os.kill(cluster.pids()["jobmaster"][0], signal.SIGKILL)
    reached(lambda: [one["jobs-running"] for one in owners(client)] == [JOBS], "the other one owns all")
    reached(lambda: len(attempts(client, ids)) == JOBS, "all are taken over")
    assert attempts(client, ids) == before
    assert begins(client, ids) == begun
    assert "its JobMaster process was lost" in {reason for job_id in ids for reason in takeovers(client, job_id)}
    client.cancel(ids[0])
    reached(lambda: states(client, ids[:1]) == {"CANCELED"}, "a cancel reaches the new owner")


def test_without_another_process_jobs_wait_and_the_next_one_takes_them(
    cluster: ScriptCluster, client: FlinklikeClient
) -> None:
    ids = run_naps(client, JOBS)
    before = attempts(client, ids)
    for pid in cluster.pids()["jobmaster"]:
        os.kill(pid, signal.SIGKILL)
    reached(lambda: owners(client) == [], "all registrations are gone")
    started = cluster.script("start-jobmaster.sh", "start", *cluster.dynamic)
    assert started.returncode == 0, started.stderr
    reached(lambda: [one["jobs-running"] for one in owners(client)] == [JOBS], "the new one owns all")
    reached(lambda: len(attempts(client, ids)) == JOBS, "all are taken over")
    assert attempts(client, ids) == before


def ready(client: FlinklikeClient) -> list[int]:
    """How many jobs each process runs that has registered with the leader."""
    return sorted(one["jobs-running"] for one in owners(client) if one["state"] == "ready")


def of_jobs(cluster: ScriptCluster) -> dict[str, int]:
    """What is stored of all jobs, with the revisions that wrote it."""
    return revisions(cluster, KEYS.jobs, KEYS.all_done)


def log_of(cluster: ScriptCluster, pid: int) -> Path:
    """What a process logs."""
    (found,) = {Path(one.path) for one in psutil.Process(pid).open_files() if one.path.endswith(".log")}
    return found


def test_a_frozen_owner_is_replaced_and_has_no_say_when_it_wakes(impatient: ScriptCluster) -> None:
    """What ends while it is frozen waits in its sockets: it wakes, believes it, and is refused (R1, R5, R10)."""
    with impatient.connect() as client:
        short, long = run_naps(client, 3, seconds=4), run_naps(client, 3)
        before = attempts(client, long)
        assert [one["jobs-running"] for one in owners(client)] == [3, 3], "each has some of both"
        frozen = impatient.pids()["jobmaster"][0]
        os.kill(frozen, signal.SIGSTOP)
        try:
            reached(lambda: len(owners(client)) == 1, "its lease has ended")
            reached(lambda: states(client, short) == {"FINISHED"}, "what ended meanwhile counts")
            reached(lambda: len(attempts(client, long)) == 3, "all are taken over")
            reached(lambda: len(of_jobs(impatient)) == len({*short, *long}) + len(long), "all is written and cleaned")
            written = of_jobs(impatient)
            log = log_of(impatient, frozen)
            said = len(log.read_text())
        finally:
            os.kill(frozen, signal.SIGCONT)
            woken = time.monotonic()
        reached(lambda: ready(client) == [0, 3], "it is back", timeout=LEASE)
        print(f"woken, it was registered again after {time.monotonic() - woken:.2f} s")
        assert "registration lapsed" in log.read_text()[said:]
        assert attempts(client, long) == before
        assert states(client, short) == {"FINISHED"}
        run_naps(client, 2)
        reached(lambda: min(one["jobs-running"] for one in owners(client)) == 2, "it takes jobs again")
        now = of_jobs(impatient)
        assert {key: now.get(key) for key in written} == written, "nothing that it wrote counts"


def pid_of(cluster: ScriptCluster, address: str) -> int:
    """The JobMaster process that listens there."""
    port = int(address.rpartition(":")[2])
    (found,) = [
        pid
        for pid in cluster.pids()["jobmaster"]
        if any(one.laddr.port == port for one in psutil.Process(pid).net_connections("tcp") if one.status == "LISTEN")
    ]
    return found


def test_an_owner_whose_jobs_are_moved_while_it_is_frozen_has_no_effect(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:
    """Its lease is good when it wakes: it reads that tasks have ended and that a slot is there, and is over (R1)."""
    work = GatedJobs(cluster, client, tmp_path)
    names = {work.submit(name): name for name in "abcdefgh"}
    waiting = new_job_id()
    client.submit(work.graph("waiting"), job_id=waiting)

    def jobs_of(process: dict[str, Any]) -> list[str]:
        return [job["jid"] for job in client.get(f"/jobmasters/{process['id']}")["jobs"]]

    its, other = sorted(owners(client), key=lambda one: waiting not in jobs_of(one))
    moved = [job_id for job_id in jobs_of(its) if job_id != waiting]
    ending, staying = moved[:2], jobs_of(other)[0]
    frozen = pid_of(cluster, its["address"])
    os.kill(frozen, signal.SIGSTOP)
    try:
        for job_id in (*ending, staying):
            work.open_gate(names[JobId(job_id)])
        ended = {names[JobId(job_id)] for job_id in (*ending, staying)}
        reached(lambda: all(work.count(name, "ends") == 1 for name in ended), "they have ended")
        reached(lambda: client.get("/overview")["slots-available"] == 0, "the slot is for the job that waits")
        assert set(work.states([JobId(one) for one in ending])) == {"RUNNING"}, "only the frozen one has been told"
        for job_id in (*moved, waiting):
            client.post(f"/jobs/{job_id}/move", {"to": other["id"]})
        reached(lambda: work.states([JobId(one) for one in ending]) == ["FINISHED"] * 2, "the new owner hears it too")
        reached(lambda: work.count("waiting", "begins") == 1, "the new owner gets the slot")
        gone = {*ending, staying}
        reached(lambda: not gone & {key.split("/")[-2] for key in of_jobs(cluster)}, "they are cleaned")
        written = of_jobs(cluster)
    finally:
        os.kill(frozen, signal.SIGCONT)
    (log,) = (cluster.run / "run" / "log").glob("*taskmanager*.log")
    refused = f"refused: AnswerSlotOffers: order for job {waiting} at epoch"
    reached(lambda: refused in log.read_text(), "it has answered, whether it took the slot or not")
    reached(lambda: its["id"] in [one["id"] for one in owners(client)] and not jobs_of(its), "it has let go of them")
    kept = work.submit("later")
    assert kept in jobs_of(its), "it takes jobs again"
    now = of_jobs(cluster)
    assert {key: now.get(key) for key in written} == written, "nothing that it wrote counts"
    assert [work.count(name, "begins") for name in (*names.values(), "waiting")] == [1] * 9, "nor what it ordered"


def test_a_deleted_owner_record_restarts_no_task(
    cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path
) -> None:  # R5, R6
    jobs = GatedJobs(cluster, client, tmp_path)
    job_id = jobs.submit("gated")
    delete_key(cluster, KEYS.owner(job_id))
    jobs.open_gate("gated")
    reached(lambda: states(client, [job_id]) == {"FINISHED"}, "the job ends")
    assert (jobs.count("gated", "begins"), jobs.count("gated", "ends")) == (1, 1)
    assert len(takeovers(client, job_id)) == 1, "its JobMaster process refused once, or nobody had it any more"
