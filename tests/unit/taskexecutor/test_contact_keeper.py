"""The keeper of contact on virtual time: a store that goes away, fences, a silent guard, freezes (R14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.watch import Watch
from runtime.common.errors import OutcomeUnknownError, StorageExhaustedError, UnavailableError
from runtime.common.ids import JobId
from runtime.highavailability.jobs.fences import OwnerFences, TaskManagerFences
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Delete, Put, Txn, TxnResult, WatchBatch
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import TaskManagerRecord
from runtime.taskexecutor.connections.contact import ContactKeeper, ContactSettings, DeregisteredError
from tests.kit.control_plane.task_messages import incarnation, job_id
from tests.kit.control_plane.virtual_time import freeze, run_virtual
from tests.kit.etcd.faulty_kv import Fault, FaultyKeyValueStore

TM, JOB = incarnation(1), job_id(1)
KEYS = Keys.of_cluster("test")
INTERVAL, TIMEOUT = 2.0, 60.0
REQUEST_TIMEOUT = 1.0
RECORD = TaskManagerRecord(TM, "tm-1", "host:1", "guard:1", "boot", 4)


class WatchlessStore(FaultyKeyValueStore):
    """A watch that never comes about."""

    def watch(self, prefix: str, /, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        message = f"no watch on {prefix} from {start_revision}"
        raise UnavailableError(message)


class Guard:
    """Accepts deadlines unless it is frozen."""

    def __init__(self) -> None:
        self.is_running: Watch[bool] = Watch(True)
        self.deadline = 0.0

    async def hold(self, deadline: float, /) -> None:
        await self.is_running.wait_until(bool)
        self.deadline = deadline


class Executor:
    """Obeys at once, or when it is told to."""

    def __init__(self, keeper: ContactKeeper) -> None:
        self.keeper = keeper
        self.fences: Watch[list[tuple[JobId, int, int]]] = Watch([])
        self.is_obedient = True
        self.losses: Watch[list[tuple[float, bool]]] = Watch([])
        self.is_stopped = False
        self.unreadable: set[JobId] = set()

    def stop_fenced(self, job: JobId, epoch: int, revision: int, /, *, is_readable: bool) -> None:
        self.fences.set([*self.fences.value, (job, epoch, revision)])
        self.unreadable.update({job} if not is_readable else ())
        if self.is_obedient:
            asyncio.get_running_loop().call_soon(self.keeper.note_stopped, job, revision)

    def reopen(self, job: JobId, /) -> None:
        self.unreadable.remove(job)

    def contact_changed(self) -> None:
        now, is_lost = asyncio.get_running_loop().time(), bool(self.keeper.loss)
        if not self.losses.value or self.losses.value[-1][1] != is_lost:
            self.losses.set([*self.losses.value, (now, is_lost)])

    async def stop_everything(self) -> None:
        self.is_stopped = True


class Box:
    """A keeper over a memory store, and the owner of a job."""

    def __init__(self, store: type[FaultyKeyValueStore] = FaultyKeyValueStore) -> None:
        clock, entropy = LoopClock(), SeededEntropy(1)
        self.kv = store(MemoryKeyValueStore(clock))
        self.guard = Guard()
        fences = TaskManagerFences(self.kv, KEYS, TM, entropy, timeout=REQUEST_TIMEOUT)
        self.keeper = ContactKeeper(
            ContactSettings(INTERVAL, TIMEOUT, cancellation_timeout=1.0), fences, self.guard, clock
        )
        self.executor = self.keeper.obeyer = Executor(self.keeper)
        self.owner = OwnerFences(self.kv, KEYS, entropy, timeout=REQUEST_TIMEOUT)
        self.epoch = 0

    async def prepare(self) -> None:
        for key in (KEYS.task_manager(TM), KEYS.owner(JOB)):
            self.epoch = (await self.kv.txn(Txn((), (Put(key, b"{}"),)), timeout=REQUEST_TIMEOUT)).revision

    async def fence(self) -> int:
        return await self.owner.fence(JOB, self.epoch, TM)

    async def settled(self, revision: int) -> float:
        """How long the confirmation took."""
        begun = now()
        async with asyncio.timeout(100):
            assert await self.owner.wait_settled(JOB, TM, revision)
        return now() - begun

    async def in_contact(self) -> None:
        async with asyncio.timeout(100):
            await self.executor.losses.wait_until(lambda losses: bool(losses) and not losses[-1][1])

    async def lost(self) -> None:
        async with asyncio.timeout(100):
            await self.executor.losses.wait_until(lambda losses: bool(losses) and losses[-1][1])


def now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def running(box: Box) -> AsyncIterator[Box]:
    await box.prepare()
    running = asyncio.create_task(box.keeper.run())
    try:
        await box.in_contact()
        yield box
    finally:
        running.cancel()
        await asyncio.wait([running])


def in_contact(test: Callable[[Box], Awaitable[None]], store: type[FaultyKeyValueStore] = FaultyKeyValueStore) -> None:
    async def run() -> None:
        async with running(Box(store)) as box:
            await test(box)

    run_virtual(run())


def test_an_outage_shorter_than_the_timeout_loses_nothing() -> None:
    async def test(box: Box) -> None:
        box.kv.is_reachable = False
        await asyncio.sleep(TIMEOUT - 10)
        assert [box.keeper.is_away] == [True]
        box.kv.is_reachable = True
        await asyncio.sleep(TIMEOUT)
        assert [box.keeper.is_away] == [False]
        assert [is_lost for _, is_lost in box.executor.losses.value] == [False]
        assert now() - INTERVAL <= box.guard.deadline - TIMEOUT <= now()

    in_contact(test)


def test_a_longer_one_is_noticed_before_the_guard_acts_and_ends_by_itself() -> None:
    async def test(box: Box) -> None:
        box.kv.is_reachable = False
        await box.lost()
        assert box.guard.deadline - 5.01 < now() < box.guard.deadline - 4.99
        assert "taskmanager.isolation-timeout: 60 s" in box.keeper.loss
        box.kv.is_reachable = True
        begun = now()
        await box.in_contact()
        assert now() - begun <= INTERVAL

    in_contact(test)


def test_contact_counts_only_once_the_guard_has_accepted_it() -> None:
    async def test(box: Box) -> None:
        box.guard.is_running.set(False)
        revision = await box.fence()
        assert await box.settled(revision) < 0.1, "fences are obeyed all the same"
        await box.lost()
        assert now() < box.guard.deadline
        box.guard.is_running.set(True)
        await box.in_contact()

    in_contact(test)


def test_after_a_freeze_the_loss_is_known_before_anything_is_done() -> None:
    async def test(box: Box) -> None:
        freeze(TIMEOUT)
        assert box.keeper.loss

    in_contact(test)


def test_a_fence_is_heard_of_at_once_and_confirmed_when_it_is_obeyed() -> None:
    async def test(box: Box) -> None:
        box.executor.is_obedient = False
        revision = await box.fence()
        begun = now()
        await box.executor.fences.wait_until(bool)
        assert now() - begun < 0.1
        assert box.executor.fences.value == [(JOB, box.epoch, revision)]
        await box.lost()
        assert "isolation-timeout" in box.keeper.loss, "a fence that is not obeyed is no contact"
        box.keeper.note_stopped(JOB, revision)
        await box.in_contact()
        assert await box.settled(revision) < 0.1

    in_contact(test)


def test_without_a_watch_a_fence_is_read_within_an_interval() -> None:
    async def test(box: Box) -> None:
        begun = now()
        await box.fence()
        await box.executor.fences.wait_until(bool)
        assert now() - begun <= INTERVAL

    in_contact(test, WatchlessStore)


def test_a_confirmation_that_is_refused_is_tried_again_after_the_next_read() -> None:
    async def test(box: Box) -> None:
        revision = await box.fence()
        box.kv.faults.append(Fault.REFUSED)
        assert INTERVAL / 2 < await box.settled(revision) <= INTERVAL + 0.1

    in_contact(test)


def test_without_its_key_it_stops_everything_and_ends() -> None:
    async def run() -> None:
        box = Box()
        await box.prepare()
        running = asyncio.create_task(box.keeper.run())
        await box.in_contact()
        await box.owner.remove_dead(JOB, box.epoch, TM)
        begun = now()
        with pytest.raises(ExceptionGroup) as caught:
            await running
        assert now() - begun < 0.1
        [error] = caught.value.exceptions
        assert isinstance(error, DeregisteredError)
        assert box.executor.is_stopped

    run_virtual(run())


def test_an_own_record_that_is_damaged_is_written_again() -> None:  # R31
    async def test(box: Box) -> None:
        box.keeper.registration = RECORD
        async with asyncio.timeout(3 * INTERVAL):
            while (await box.kv.range(KEYS.task_manager(TM), is_prefix=False, timeout=1)).kvs[0].value == b"{}":
                await asyncio.sleep(INTERVAL / 4)
        (key,) = (await box.kv.range(KEYS.task_manager(TM), is_prefix=False, timeout=1)).kvs
        assert key.value == encode_record(RECORD)
        await asyncio.sleep(3 * INTERVAL)
        (later,) = (await box.kv.range(KEYS.task_manager(TM), is_prefix=False, timeout=1)).kvs
        assert later == key, "once"

    in_contact(test)


class FullStore(FaultyKeyValueStore):
    """Has room for nothing, and may have executed the first write: that was never answered."""

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        if encode_record(RECORD) not in {op.value for op in txn.success if isinstance(op, Put)}:
            return await super().txn(txn, timeout=timeout)
        self.sent.append(txn)
        if len(self.sent) == 1:
            message = "never answered by the test"
            raise OutcomeUnknownError(message)
        message = "database space exceeded"
        raise StorageExhaustedError(message)


def test_a_record_that_cannot_be_written_holds_up_no_contact() -> None:  # R14
    async def test(box: Box) -> None:
        box.kv.sent.clear()
        box.keeper.registration = RECORD
        await asyncio.sleep(2 * TIMEOUT)
        assert len(box.kv.sent) > 1, "it was tried"
        assert [is_lost for _, is_lost in box.executor.losses.value] == [False]

    in_contact(test, FullStore)


def test_a_record_that_was_deleted_meanwhile_is_not_written_again() -> None:  # R33
    async def run() -> None:
        kv = MemoryKeyValueStore(LoopClock())
        fences = TaskManagerFences(kv, KEYS, TM, SeededEntropy(1), timeout=1)
        await kv.txn(Txn((), (Put(KEYS.task_manager(TM), b"damaged"),)), timeout=1)
        own = (await fences.read()).own
        assert own is not None
        await kv.txn(Txn((), (Delete(KEYS.task_manager(TM)),)), timeout=1)
        await fences.restore(RECORD, own)
        assert not (await fences.read()).is_registered

    run_virtual(run())
