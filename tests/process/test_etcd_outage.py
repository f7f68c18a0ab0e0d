"""etcd of a real cluster goes away and comes back: tasks run on, nothing is acknowledged, all resumes by itself.

The times are short by options. `FLINKLIKE_OUTAGE_SECONDS` gives an outage a length of its own, to be tried by hand.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from airflow_flinklike.client import new_job_id
from runtime.highavailability.keys import Keys
from tests.kit.cluster.gated_jobs import GatedJobs
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.etcd.members import EtcdMembers
from tests.kit.etcd.server import EtcdProcess
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.slow]

OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "8",
    "high-availability.etcd.timeout": "1 s",
    "high-availability.lease-timeout": "3 s",
}
BACK_WITHIN = 5.0
"""Seconds from etcd's return to the moment at which every job is seen to run."""

LENGTH = float(os.environ.get("FLINKLIKE_OUTAGE_SECONDS") or 0)


@contextmanager
def cluster_on(etcd: EtcdProcess | EtcdMembers, **options: str) -> Iterator[ScriptCluster]:
    given = {key.replace("__", "."): value for key, value in options.items()}
    with ScriptCluster({**OPTIONS, **etcd.options(), **given}) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def away(seconds: float) -> None:
    """By hand: let an outage last."""
    until = time.monotonic() + seconds
    reached(lambda: time.monotonic() >= until, "the outage has lasted", timeout=seconds + 10)


def kill(etcd: EtcdProcess) -> Callable[[], None]:
    etcd.kill()
    return etcd.start


def freeze(etcd: EtcdProcess) -> Callable[[], None]:
    etcd.freeze()
    return etcd.thaw


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EtcdProcess, ScriptCluster]]:
    """One etcd, and a cluster on it that every outage leaves as it was."""
    etcd = EtcdProcess(tmp_path_factory.mktemp("etcd"))
    etcd.start()
    try:
        with cluster_on(etcd) as cluster:
            yield etcd, cluster
    finally:
        etcd.stop()


@pytest.mark.parametrize("stop", [kill, freeze])
def test_tasks_go_on_while_etcd_is_away_and_what_ends_meanwhile_counts(
    single: tuple[EtcdProcess, ScriptCluster], folder: Path, stop: Callable[[EtcdProcess], Callable[[], None]]
) -> None:
    etcd, cluster = single
    with cluster.connect() as client:
        work = GatedJobs(cluster, client, folder)
        ids = [work.submit(name) for name in ("long", "longer", "short", "shorter")]
        before, late = work.attempts(ids), new_job_id()
        come_back = stop(etcd)
        for name in ("short", "shorter"):
            work.open_gate(name)
        reached(lambda: [work.count(name, "ends") for name in ("short", "shorter")] == [1, 1], "both have ended")
        reached(work.no_leader, "nobody decides")
        assert work.cannot_submit(late)
        away(LENGTH)
        come_back()
        since = time.monotonic()
        reached(
            lambda: work.states(ids) == ["RUNNING", "RUNNING", "FINISHED", "FINISHED"],
            "all goes on",
            timeout=BACK_WITHIN,
        )
        print(f"etcd away by {stop.__name__}: all went on {time.monotonic() - since:.2f} s after its return")
        reached(lambda: len(work.attempts(ids)) == len(ids), "all are taken over")
        assert [one for one, _ in work.attempts(ids)] == [one for one, _ in before]
        work.client.submit(work.graph("late"), job_id=late)
        for name in ("long", "longer", "late"):
            work.open_gate(name)
        reached(lambda: set(work.states([*ids, late])) == {"FINISHED"}, "all jobs end")
        for name in ("long", "longer", "short", "shorter", "late"):
            assert (work.count(name, "begins"), work.count(name, "ends")) == (1, 1), name


def test_the_leader_of_three_etcd_members_dies(tmp_path: Path, folder: Path) -> None:
    members = EtcdMembers(tmp_path)
    members.start()
    try:
        with cluster_on(members) as cluster, cluster.connect() as client:
            work = GatedJobs(cluster, client, folder)
            ids = [work.submit(name) for name in ("long", "short")]
            before = work.attempts(ids)
            members.leader().kill()
            since = time.monotonic()
            work.open_gate("short")
            reached(lambda: work.states(ids) == ["RUNNING", "FINISHED"], "all goes on", timeout=2 * BACK_WITHIN)
            print(f"an etcd leader killed: a task's end was durable after {time.monotonic() - since:.2f} s")
            assert [one for one, _ in work.attempts(ids)] == [one for one, _ in before]
            work.open_gate("long")
            reached(lambda: work.states(ids) == ["FINISHED", "FINISHED"], "both end")
            assert [work.count(name, "begins") for name in ("long", "short")] == [1, 1]
    finally:
        members.stop()


ISOLATION = {"taskmanager__isolation-timeout": "6 s", "heartbeat__interval": "500 ms", "heartbeat__timeout": "2 s"}


def test_an_outage_beyond_the_isolation_timeout_stops_exclusive_tasks_only(tmp_path: Path, folder: Path) -> None:
    etcd = EtcdProcess(tmp_path / "etcd")
    etcd.start()
    try:
        with cluster_on(etcd, **ISOLATION) as cluster, cluster.connect() as client:
            work = GatedJobs(cluster, client, folder)
            ids = [work.submit("shared", exclusive=False), work.submit("exclusive", exclusive=True)]
            (shared, _), (exclusive, _) = work.attempts(ids)
            etcd.kill()
            log = cluster.run / "run" / "log"
            said = "taskmanager.isolation-timeout: 6 s"
            reached(lambda: any(said in path.read_text() for path in log.glob("*taskmanager*")), said)
            away(LENGTH)
            etcd.start()
            reached(lambda: work.count("exclusive", "begins") == 2, "it runs again")
            reached(lambda: work.states(ids) == ["RUNNING", "RUNNING"], "both run")
            (same, _), (other, _) = work.attempts(ids)
            assert same == shared
            assert other != exclusive
            (entry,) = client.get(f"/jobs/{ids[1]}/exceptions")["exceptionHistory"]["entries"]
            assert said in entry["stacktrace"], entry
            for name in ("shared", "exclusive"):
                work.open_gate(name)
            reached(lambda: work.states(ids) == ["FINISHED", "FINISHED"], "both end")
            assert work.count("shared", "begins") == 1
    finally:
        etcd.stop()


def test_everything_is_killed_at_once_and_started_again(tmp_path: Path, folder: Path) -> None:
    etcd = EtcdProcess(tmp_path / "etcd")
    etcd.start()
    try:
        with cluster_on(etcd) as cluster, cluster.connect() as client:
            work = GatedJobs(cluster, client, folder)
            job_id = new_job_id()
            client.submit(work.pipeline(), job_id=job_id)
            work.open_gate("first")
            reached(lambda: work.count("second", "begins") == 1, "the second one runs")
            guards = Keys.of_cluster("default").task_managers
            reached(lambda: '"is_reached":true' in etcd.ctl("get", "--prefix", guards), "the guard is known (R13)")
            kill_everything(cluster, etcd)
            etcd.start()
            started = cluster.script("start-cluster.sh", *cluster.dynamic)
            assert started.returncode == 0, started.stderr
            reached(lambda: work.count("second", "begins") == 2, "the second one runs again")
            assert work.count("first", "begins") == 1, "its partition was accepted"
            work.open_gate("second")
            reached(lambda: work.states([job_id]) == ["FINISHED"], "the job ends")
    finally:
        etcd.stop()


def kill_everything(cluster: ScriptCluster, etcd: EtcdProcess) -> None:
    """SIGKILL of every process of the cluster, and of its etcd, at once."""
    for pid in [*cluster.processes(), etcd.pid]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    reached(lambda: not cluster.processes(), "nothing is left")
