"""The TaskManager's key in etcd: there before its first slot report, gone after its slots are reaped (R13)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from runtime.aio.entropy import SystemEntropy
from runtime.common.ids import Incarnation
from runtime.gateways.job_master import OfferSlots
from runtime.gateways.resource_manager import RegisterTaskManager, SlotReport, SlotsFreed
from runtime.gateways.task import TaskExecutionReport
from runtime.highavailability.jobs.fences import OwnerFences
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Delete, KeyValueStore, Put, Txn
from runtime.highavailability.leadership.registration import TaskManagerRegistry
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import LeaderRecord, TaskManagerRecord
from runtime.jobgraph.graph import dump_operators
from runtime.system.linux import is_descendant
from tests.kit.cluster.task_manager_process import TaskManager, ended, is_alive, task_manager
from tests.kit.control_plane.task_executor_cluster import until_gone
from tests.kit.control_plane.task_messages import (
    allocation_id,
    answer_offers,
    deploy,
    incarnation,
    job_id,
    register_job,
    request_slot,
)
from tests.kit.etcd.server import EtcdProcess, seal_of
from tests.kit.spark.class_archive import share
from tests.kit.spark.slot_work import operator
from tests.kit.spark.spark_box import QUICK_JVM

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.asyncio]

TIMEOUT = 5.0


@dataclass
class Cluster:
    """A TaskManager and the etcd that both it and its leader use."""

    manager: TaskManager
    kv: KeyValueStore
    keys: Keys
    raw: KeyValueStore
    """As a client without the cluster's key reaches it."""

    async def registered(self) -> dict[Incarnation, TaskManagerRecord]:
        registry = TaskManagerRegistry(self.kv, self.keys, SystemEntropy(), timeout=TIMEOUT)
        return dict(await registry.task_managers())

    async def put(self, key: str, value: bytes = b"{}") -> None:
        await self.kv.txn(Txn((), (Put(key, value),)), timeout=TIMEOUT)

    async def forge(self, key: str, value: bytes) -> None:
        await self.raw.txn(Txn((), (Put(key, value),)), timeout=TIMEOUT)

    async def delete(self, key: str) -> None:
        await self.kv.txn(Txn((), (Delete(key),)), timeout=TIMEOUT)

    async def owned(self, job: int) -> int:
        """An owner for the job; its epoch."""
        result = await self.kv.txn(Txn((), (Put(self.keys.owner(job_id(job)), b"{}"),)), timeout=TIMEOUT)
        return result.revision

    @property
    def owner(self) -> OwnerFences:
        return OwnerFences(self.kv, self.keys, SystemEntropy(), timeout=TIMEOUT)

    async def lead(self, address: str) -> None:
        await self.put(self.keys.leader(1), encode_record(LeaderRecord(incarnation(1), address, "")))


@asynccontextmanager
async def cluster(
    tmp_path: Path,
    etcd: EtcdProcess,
    cluster_id: str,
    prepare: Callable[[Path], None] = lambda _: None,
    options: tuple[str, ...] = (),
) -> AsyncIterator[Cluster]:
    kv, raw = etcd.store(seal_of(tmp_path / "run")), etcd.store()
    await kv.open(timeout=TIMEOUT)
    await raw.open(timeout=TIMEOUT)
    prepare(tmp_path)
    options = (
        *options,
        *(f"{key}={value}" for key, value in etcd.options().items()),
        f"high-availability.cluster-id={cluster_id}",
    )
    try:
        async with task_manager(tmp_path, *options) as manager:
            yield Cluster(manager, kv, Keys.of_cluster(cluster_id), raw)
    finally:
        await kv.close()
        await raw.close()


async def test_the_key_is_there_before_the_first_report_and_gone_after_the_stop(
    tmp_path: Path, etcd: EtcdProcess
) -> None:
    async with cluster(tmp_path, etcd, "tm-stop") as made:
        assert not made.manager.leader.streams, "nobody leads yet"
        await made.lead(made.manager.leader.address)
        await made.manager.leader.wait_for(SlotReport, timeout=30)
        [(name, record)] = (await made.registered()).items()
        registration = made.manager.registration
        assert name == record.incarnation == registration.incarnation
        assert (record.address, record.guard_address) == (registration.address, registration.guard_address)
        assert made.manager.dial_guard() == f"{record.incarnation} {record.boot_id}\n"
        made.manager.process.send_signal(signal.SIGTERM)
        assert (await ended(made.manager))[0] == 0
        assert not await made.registered()


async def test_the_key_of_a_killed_one_stays_for_whoever_proves_its_death(tmp_path: Path, etcd: EtcdProcess) -> None:
    async with cluster(tmp_path, etcd, "tm-kill") as made:
        await made.lead(made.manager.leader.address)
        await made.manager.leader.wait_for(SlotReport, timeout=30)
        os.kill(made.manager.main_pid(), signal.SIGKILL)
        await ended(made.manager)
        [record] = (await made.registered()).values()
        assert record.guard_address == made.manager.registration.guard_address
        assert made.manager.dial_guard() == f"{record.incarnation} {record.boot_id} reaped\n"


async def test_a_record_of_it_that_was_damaged_is_written_again(tmp_path: Path, etcd: EtcdProcess) -> None:  # R31
    async with cluster(tmp_path, etcd, "tm-damaged", options=("heartbeat.interval=200 ms",)) as made:
        await made.lead(made.manager.leader.address)
        await made.manager.wait_ready()
        registered = await made.registered()
        (name,) = registered
        other = encode_record(replace(registered[name], address="elsewhere:1"))
        for write, damaged in ((made.forge, b"not JSON"), (made.forge, other), (made.put, other)):
            await write(made.keys.task_manager(name), damaged)
            async with asyncio.timeout(100):
                while await made.registered() != registered:
                    await asyncio.sleep(0.02)


async def test_it_follows_the_leader(tmp_path: Path, etcd: EtcdProcess) -> None:
    async with cluster(tmp_path, etcd, "tm-follow") as made:
        await made.lead(made.manager.leader.address)
        await made.manager.leader.wait_for(SlotReport, timeout=30)
        await made.delete(made.keys.leader(1))
        made.manager.leader.stream.abort("this leader is gone")
        await made.lead(made.manager.leader.address)
        await made.manager.leader.wait_for(SlotReport, 2)


async def test_leftover_partitions_of_a_job_with_a_graph_and_no_result_are_kept(
    tmp_path: Path, etcd: EtcdProcess
) -> None:
    dead = "d" * 32
    exchange = tmp_path / "run/exchange" / dead

    def leave(_: Path) -> None:
        (tmp_path / f"run/work/tm-{dead}").mkdir(parents=True)
        (tmp_path / f"run/work/tm-{dead}/lock").touch()
        for number in (1, 2, 3):
            (exchange / job_id(number) / "p").mkdir(parents=True)

    keys = Keys.of_cluster("tm-leftovers")
    kv = etcd.store(seal_of(tmp_path / "run"))
    await kv.open(timeout=TIMEOUT)
    for key in (keys.graph(job_id(1)), keys.graph(job_id(2)), keys.result(job_id(2))):
        await kv.txn(Txn((), (Put(key, b"{}"),)), timeout=TIMEOUT)
    await kv.close()
    async with cluster(tmp_path, etcd, "tm-leftovers", leave):
        await until_gone(exchange / job_id(3), timeout=30)
        assert [path.name for path in exchange.iterdir()] == [job_id(1)]


# --- contact, fences and the guard's deadline (R14) ---------------------------------------------------------

SPARK = (
    "taskmanager.spark.enabled=true",
    "taskmanager.memory.spark.size=768 mb",
    "taskmanager.spark.warm-up.count=0",
    *(f"{key}={value}" for key, value in QUICK_JVM.items()),
)
SHORT = ("taskmanager.isolation-timeout=3 s", "heartbeat.interval=500 ms")


def tell_and_wait(path: str) -> Callable[[object], None]:
    def run(_: object) -> None:
        import os
        import signal
        from pathlib import Path

        Path(path).write_text(str(os.getpid()))
        signal.pause()

    return run


async def take_slot(made: Cluster, job: int) -> None:
    """Slot `job` - 1, for that job."""
    manager, offers = made.manager, len(made.manager.job_master.of(OfferSlots))
    manager.leader.send(request_slot(job, slot=job - 1, job=job, owner=2, address=manager.job_master.address))
    await manager.job_master.wait_for(OfferSlots, offers + 1, timeout=30)
    manager.job_master.send(answer_offers(job, job=job), register_job(job))


async def start_task(
    made: Cluster,
    tmp_path: Path,
    job: int,
    *,
    exclusive: bool,
    subtask: int = 0,
    code: Callable[[str], Callable[[object], None]] = tell_and_wait,
) -> int:
    """A task that runs until it is ended, in the job's slot; the process that it tells."""
    told = tmp_path / f"task-{job}-{subtask}"
    operators = dump_operators((operator(code(str(told))),))
    deployment = deploy(job, subtask, job=job, operators=operators)
    tasks = tuple(replace(task, task=replace(task.task, is_exclusive=exclusive)) for task in deployment.tasks)
    made.manager.job_master.send(replace(deployment, tasks=tasks))
    await until(lambda: told.exists() and bool(told.read_text()))
    return int(told.read_text())


async def until(predicate: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not predicate():
            await asyncio.sleep(0.01)


async def report_of_job(made: Cluster, job: int) -> TaskExecutionReport:
    """The terminal one."""

    def found() -> list[TaskExecutionReport]:
        reports = made.manager.job_master.reports
        return [report for report in reports if report.attempt_id.job_id == job_id(job) and report.state.is_terminal]

    await made.manager.job_master.wait(lambda: bool(found()), timeout=30)
    return found()[0]


async def test_a_frozen_task_manager_loses_its_exclusive_tasks_and_says_so_when_it_wakes(
    tmp_path: Path, etcd: EtcdProcess
) -> None:
    async with cluster(tmp_path, etcd, "tm-frozen", options=SHORT) as made:
        await made.lead(made.manager.leader.address)
        await made.manager.wait_ready()
        await take_slot(made, 1)
        exclusive = await start_task(made, tmp_path, 1, exclusive=True)
        await take_slot(made, 2)
        shared = await start_task(made, tmp_path, 2, exclusive=False)
        main = made.manager.main_pid()
        os.kill(main, signal.SIGSTOP)
        await until(lambda: not is_alive(exclusive))
        assert is_alive(shared)
        os.kill(main, signal.SIGCONT)
        report = await report_of_job(made, 1)
        assert report.failure is not None
        assert (report.state.name, report.failure.is_isolation) == ("FAILED", True)
        assert "taskmanager.isolation-timeout: 3 s" in report.failure.message
        assert is_alive(shared)
        # Contact comes back by itself.
        assert is_alive(await start_task(made, tmp_path, 1, exclusive=True, subtask=1))


def leave_a_daemon_and_wait(path: str) -> Callable[[Any], None]:
    """What a Python function of Spark starts, without parents."""

    def run(ctx: Any) -> None:
        import signal
        from pathlib import Path

        def starts(_: Any) -> None:
            import subprocess

            subprocess.run(f"setsid sh -c 'echo $$ >{path}; exec sleep 1000' >/dev/null 2>&1 &", shell=True, check=True)

        ctx.spark.sparkContext.parallelize([0], 1).foreach(starts)
        while not Path(path).read_text().endswith("\n"):
            continue
        signal.pause()

    return run


@pytest.mark.spark
@pytest.mark.slow
async def test_what_python_functions_have_started_does_not_outlive_the_deadline(
    tmp_path: Path, etcd: EtcdProcess, class_archive: Path | None
) -> None:
    """R14: only the guard is left to find it."""
    shared = tuple(f"{key}={value}" for key, value in share(class_archive, tmp_path / "run").items())
    async with cluster(tmp_path, etcd, "tm-frozen-spark", options=(*SHORT, *SPARK, *shared)) as made:
        await made.lead(made.manager.leader.address)
        await made.manager.wait_ready()
        main = made.manager.main_pid()
        await take_slot(made, 1)
        daemon = await start_task(made, tmp_path, 1, exclusive=True, code=leave_a_daemon_and_wait)
        assert not is_descendant(daemon, main)
        os.kill(main, signal.SIGSTOP)
        await until(lambda: not is_alive(daemon))
        os.kill(main, signal.SIGCONT)
        report = await report_of_job(made, 1)
        assert report.failure is not None
        assert report.failure.is_isolation


async def test_an_etcd_that_is_away_too_long_stops_exclusive_tasks_only(tmp_path: Path) -> None:
    own = EtcdProcess(tmp_path / "own")
    own.start()
    try:
        async with cluster(tmp_path, own, "tm-away", options=SHORT) as made:
            await made.lead(made.manager.leader.address)
            await made.manager.wait_ready()
            await take_slot(made, 1)
            exclusive = await start_task(made, tmp_path, 1, exclusive=True)
            await take_slot(made, 2)
            shared = await start_task(made, tmp_path, 2, exclusive=False)
            own.freeze()
            report = await report_of_job(made, 1)
            assert report.failure is not None
            assert report.failure.is_isolation
            assert "taskmanager.isolation-timeout: 3 s" in report.failure.message
            assert not is_alive(exclusive)
            own.thaw()
            assert is_alive(await start_task(made, tmp_path, 1, exclusive=True, subtask=1))
            assert is_alive(shared)
    finally:
        own.stop()


async def test_a_fence_stops_a_jobs_tasks_and_is_confirmed(tmp_path: Path, etcd: EtcdProcess) -> None:
    async with cluster(tmp_path, etcd, "tm-fence", options=SHORT) as made:
        await made.lead(made.manager.leader.address)
        await made.manager.wait_ready()
        await take_slot(made, 1)
        fenced = await start_task(made, tmp_path, 1, exclusive=True)
        await take_slot(made, 2)
        other = await start_task(made, tmp_path, 2, exclusive=True)
        epoch = await made.owned(1)
        name = made.manager.registration.incarnation
        revision = await made.owner.fence(job_id(1), epoch, name)
        async with asyncio.timeout(100):
            assert await made.owner.wait_settled(job_id(1), name, revision)
        assert not is_alive(fenced)
        assert is_alive(other)
        report = await report_of_job(made, 1)
        assert report.failure is not None
        assert report.failure.is_isolation
        assert f"fence {revision}" in report.failure.message


async def test_what_is_over_is_ended_when_nobody_is_left_to_say_so(tmp_path: Path, etcd: EtcdProcess) -> None:  # R16
    async with cluster(tmp_path, etcd, "tm-over", options=("heartbeat.interval=200 ms",)) as made:
        for job in (1, 2):
            await made.put(made.keys.graph(job_id(job)))
        await made.lead(made.manager.leader.address)
        await made.manager.wait_ready()
        pids = {}
        for job in (1, 2):
            await take_slot(made, job)
            pids[job] = await start_task(made, tmp_path, job, exclusive=True)
        await made.manager.job_master.rpc.stop(grace=0.0)
        await made.put(made.keys.result(job_id(1)))
        freed = await made.manager.leader.wait_for(SlotsFreed, timeout=30)
        assert freed.allocations == (allocation_id(1),)
        assert (is_alive(pids[1]), is_alive(pids[2])) == (False, True)


async def test_one_that_was_declared_dead_ends_everything_and_begins_again(tmp_path: Path, etcd: EtcdProcess) -> None:
    async with cluster(tmp_path, etcd, "tm-gone") as made:
        await made.lead(made.manager.leader.address)
        await made.manager.wait_ready()
        await take_slot(made, 1)
        task = await start_task(made, tmp_path, 1, exclusive=True)
        old = made.manager.registration
        await made.delete(made.keys.task_manager(old.incarnation))
        new = await made.manager.leader.wait_for(RegisterTaskManager, 2, timeout=30)
        assert new.incarnation != old.incarnation
        assert not is_alive(task)
        assert list(await made.registered()) == [new.incarnation]
        made.manager.process.send_signal(signal.SIGTERM)
        code, errors = await ended(made.manager)
        assert code == 0
        assert "was declared dead" in errors
