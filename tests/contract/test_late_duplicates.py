"""A try that was given up and repeated is executed once more, long after (R33): it replaces nothing that came later.

Each write of the store, over every KeyValueStore. What is held up is the first try; the second one succeeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import pytest_asyncio

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import ConflictError, StaleTokenError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation
from runtime.highavailability.jobs.fences import OwnerFences, TaskManagerFences
from runtime.highavailability.jobs.job_store import Cleaning, Submitted
from runtime.highavailability.jobs.job_store_kv import JobStoreSettings, KvLeaderJobStore, KvOwnerJobStore
from runtime.highavailability.jobs.payloads import Payloads, inline_payload
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.key_value_store import Delete, Op, Put, Txn
from runtime.highavailability.kv.lease import LeaseSettings
from runtime.highavailability.leadership.registration import JobMasterRegistration, TaskManagerRegistry
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import (
    CheckpointRecord,
    ClientRecord,
    DoneRecord,
    GraphRecord,
    JobMasterRecord,
    OwnerRecord,
    ResultRecord,
    StoredJob,
    TaskManagerRecord,
    WantedRecord,
)
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.etcd.faulty_kv import Fault, FaultyKeyValueStore
from tests.kit.etcd.server import StoreUnderTest

pytestmark = pytest.mark.asyncio

TIMEOUT = 5.0
JOB = JobId("a" * 32)
TM = Incarnation("b" * 32)
OWNER = OwnerRecord(Incarnation("1" * 32), "host:1")
CANCEL = WantedRecord(wants_cancel=True, client="")
MOVE = WantedRecord(wants_cancel=False, client="", move_to=Incarnation("2" * 32), move_epoch=7)
GRAPH = GraphRecord(inline_payload(b"graph"), "job", 1, "client")
RESULT = ResultRecord(JobStatus.FINISHED, b"summary", inline_payload(b"archive"))
DONE = DoneRecord("digest", JobStatus.FINISHED, b"summary", "key", 0, 7, "sha")
MACHINE = TaskManagerRecord(TM, "tm", "a:1", "b:2", "boot", 4)
MASTER = JobMasterRecord(Incarnation("3" * 32), "a:1", 5, 0, "ready", "0.1.0")


class Box:
    """A leader, and a job that has an owner."""

    def __init__(self, kv: FaultyKeyValueStore, keys: Keys) -> None:
        self.kv = kv
        self.keys = keys
        self.leader = self.led(LeaderTerm("", 0))
        self.epoch = 0
        self.term = LeaderTerm("", 0)

    def led(self, term: LeaderTerm) -> KvLeaderJobStore:
        settings = JobStoreSettings(TIMEOUT)
        return KvLeaderJobStore(self.kv, self.keys, Payloads(MemoryObjectStore()), term, settings, SeededEntropy(1))

    @property
    def owner(self) -> KvOwnerJobStore:
        payloads = Payloads(MemoryObjectStore())
        return KvOwnerJobStore(self.kv, self.keys, payloads, JobStoreSettings(TIMEOUT), SeededEntropy(1))

    @property
    def fences(self) -> OwnerFences:
        return OwnerFences(self.kv, self.keys, SeededEntropy(1), timeout=TIMEOUT)

    @property
    def task_manager(self) -> TaskManagerFences:
        return TaskManagerFences(self.kv, self.keys, TM, SeededEntropy(1), timeout=TIMEOUT)

    @property
    def registry(self) -> TaskManagerRegistry:
        return TaskManagerRegistry(self.kv, self.keys, SeededEntropy(1), timeout=TIMEOUT)

    async def write(self, *ops: Op) -> int:
        return (await self.kv.txn(Txn((), ops), timeout=TIMEOUT)).revision

    async def written_at(self, key: str) -> int:
        return (await self.kv.range(key, is_prefix=False, timeout=TIMEOUT)).kvs[0].mod_revision

    async def submit(self) -> None:
        key = self.keys.leader(1)
        self.term = LeaderTerm(key, await self.write(Put(key, b"leader")))
        self.leader = self.led(self.term)
        self.epoch = await self.submit_again()

    async def submit_again(self) -> int:
        answer = await self.leader.submit(JOB, GRAPH, OWNER)
        assert isinstance(answer, Submitted)
        return answer.epoch

    async def finish(self, epoch: int) -> Cleaning:
        await self.owner.write_result(JOB, epoch, RESULT)
        return Cleaning(JOB, DONE, (await self.leader.results([JOB]))[JOB].revision)

    async def job(self) -> StoredJob:
        found = await self.leader.job(JOB)
        assert found is not None
        return found

    async def revision_of(self, key: str) -> int:
        found = await self.kv.range(key, is_prefix=False, timeout=TIMEOUT)
        return found.kvs[0].mod_revision

    async def state_of(self, key: str) -> str:
        found = await self.kv.range(key, is_prefix=False, timeout=TIMEOUT)
        return decode_record(JobMasterRecord, found.kvs[0].value, key=key).state if found.kvs else ""

    @asynccontextmanager
    async def late(self) -> AsyncIterator[None]:
        """The first try of what is written in here arrives much later."""
        self.kv.faults.append(Fault.LATE)
        yield
        assert not self.kv.faults
        assert self.kv.late


@pytest_asyncio.fixture
async def box(store: StoreUnderTest) -> Box:
    box = Box(FaultyKeyValueStore(store.kv), store.keys)
    await box.submit()
    return box


async def test_a_wish_to_move_does_not_replace_a_later_cancel(box: Box) -> None:
    async with box.late():
        assert await box.leader.want(JOB, MOVE)
    assert await box.leader.want(JOB, CANCEL)
    await box.kv.arrive()
    assert (await box.job()).wanted == CANCEL


async def test_a_cancel_stands(box: Box) -> None:
    """The leader that knows nothing of it hears of it: no wish replaces a cancel."""
    assert await box.leader.want(JOB, CANCEL)
    with pytest.raises(ConflictError, match="is being cancelled"):
        await box.led(box.term).want(JOB, MOVE)
    assert await box.led(box.term).want(JOB, replace(CANCEL, reason="another one"))
    assert (await box.job()).wanted == CANCEL


async def test_an_earlier_promise_does_not_replace_a_later_one(box: Box) -> None:
    async with box.late():
        assert await box.leader.promise(JOB, ClientRecord(7))
    assert await box.leader.promise(JOB, ClientRecord(9))
    await box.kv.arrive()
    assert (await box.job()).client == ClientRecord(9)
    box.kv.sent.clear()
    assert await box.leader.promise(JOB, ClientRecord(11))
    assert len(box.kv.sent) == 1, "the leader knows what it replaces"
    assert await box.led(box.term).promise(JOB, ClientRecord(13))
    assert (await box.job()).client == ClientRecord(13)


async def test_events_are_written_once(box: Box) -> None:
    async with box.late():
        await box.owner.append_events(JOB, box.epoch, 1, inline_payload(b"one"))
    written = (await box.owner.event_payloads(JOB), await box.revision_of(box.keys.event(JOB, 1)))
    await box.kv.arrive()
    assert (await box.owner.event_payloads(JOB), await box.revision_of(box.keys.event(JOB, 1))) == written
    await box.owner.append_events(JOB, box.epoch, 1, inline_payload(b"one"))
    with pytest.raises(ConflictError, match="say something else"):
        await box.owner.append_events(JOB, box.epoch, 1, inline_payload(b"other"))


async def test_an_operation_that_has_ended_stays_ended(box: Box) -> None:
    begun = StreamOperation("b" * 32, OperationKind.STOP, OperationState.IN_PROGRESS, 1, 12, "/s/savepoint-1")
    ended = replace(begun, state=OperationState.COMPLETED, ended_millis=34)
    other = replace(begun, trigger_id="c" * 32, checkpoint_id=2)
    async with box.late():
        await box.owner.write_operation(JOB, box.epoch, begun, ())
    await box.owner.write_operation(JOB, box.epoch, ended, ())
    await box.owner.write_operation(JOB, box.epoch, ended, ())
    await box.kv.arrive()
    assert await box.owner.operations(JOB) == [ended]
    with pytest.raises(StaleTokenError):
        await box.owner.write_operation(JOB, box.epoch, begun, ())
    async with box.late():
        await box.owner.write_operation(JOB, box.epoch, other, (begun.trigger_id,))
    await box.kv.arrive()
    assert await box.owner.operations(JOB) == [other]
    assert await box.owner.operation(JOB, begun.trigger_id) is None
    failed = replace(other, state=OperationState.FAILED)
    async with box.late():
        await box.owner.write_operation(JOB, box.epoch, failed, ())
    written = await box.written_at(box.keys.operation(JOB, other.trigger_id))
    await box.kv.arrive()
    assert await box.written_at(box.keys.operation(JOB, other.trigger_id)) == written, "an outcome takes effect once"
    with pytest.raises(StaleTokenError):
        await box.owner.write_operation(JOB, box.epoch, ended, ())
    with pytest.raises(StaleTokenError, match="owner's epoch"):
        await box.owner.write_operation(JOB, box.epoch + 1, failed, ())


async def test_a_checkpoint_that_is_subsumed_does_not_come_back(box: Box) -> None:
    """Its key is deleted, so that it is absent again; the number of the latest one is not."""
    first, second, third = (CheckpointRecord(number, 1, 2, ()) for number in (1, 2, 3))
    async with box.late():
        await box.owner.write_checkpoint(JOB, box.epoch, 1, first, ())
    await box.owner.write_checkpoint(JOB, box.epoch, 2, second, (1,))
    await box.kv.arrive()
    assert await box.owner.checkpoints(JOB) == [second]
    async with box.late():
        await box.owner.write_checkpoint(JOB, box.epoch, 3, third, (2,))
    await box.kv.arrive()
    assert await box.owner.checkpoints(JOB) == [third]


async def test_a_lifted_fence_does_not_come_back(box: Box) -> None:
    await box.registry.register(MACHINE)
    async with box.late():
        revision = await box.fences.fence(JOB, box.epoch, TM)
    assert await box.task_manager.confirm(JOB, (await box.task_manager.read()).fences[JOB])
    assert await box.fences.wait_settled(JOB, TM, revision)
    await box.fences.lift(JOB, box.epoch, TM)
    await box.kv.arrive()
    read = await box.task_manager.read()
    assert not read.fences
    await box.task_manager.drop(JOB, read.lifted[JOB])
    assert not (await box.task_manager.read()).lifted


async def test_a_later_fence_is_not_lifted(box: Box) -> None:
    await box.registry.register(MACHINE)
    await box.fences.fence(JOB, box.epoch, TM)
    async with box.late():
        await box.fences.lift(JOB, box.epoch, TM)
    again = await box.fences.fence(JOB, box.epoch, TM)
    await box.kv.arrive()
    assert (await box.task_manager.read()).fences[JOB].revision == again


async def test_a_fence_that_is_asked_for_twice_is_one(box: Box) -> None:
    await box.registry.register(MACHINE)
    revision = await box.fences.fence(JOB, box.epoch, TM)
    assert await box.fences.fence(JOB, box.epoch, TM) == revision


async def test_a_clean_up_does_not_end_the_next_job_of_that_id(box: Box) -> None:
    cleaning = await box.finish(box.epoch)
    async with box.late():
        cleaned = await box.leader.clean([cleaning])
    await box.leader.forget_done(list(cleaned.items()))
    epoch = await box.submit_again()
    await box.owner.write_result(JOB, epoch, RESULT)
    await box.kv.arrive()
    assert (await box.job()).result == RESULT


async def test_the_id_of_the_next_job_is_not_forgotten(box: Box) -> None:
    cleaned = await box.leader.clean([await box.finish(box.epoch)])
    async with box.late():
        await box.leader.forget_done(list(cleaned.items()))
    epoch = await box.submit_again()
    again = await box.leader.clean([await box.finish(epoch)])
    await box.kv.arrive()
    assert await box.leader.done(JOB) == DONE
    await box.leader.forget_done(list(again.items()))
    assert await box.leader.done(JOB) is None


async def test_a_task_manager_is_registered_once(box: Box) -> None:
    async with box.late():
        await box.registry.register(MACHINE)
    before = await box.revision_of(box.keys.task_manager(TM))
    await box.kv.arrive()
    assert await box.revision_of(box.keys.task_manager(TM)) == before
    assert await box.registry.register(MACHINE) == before


async def test_a_guard_that_was_reached_stays_so(box: Box) -> None:
    await box.registry.register(MACHINE)
    async with box.late():
        await box.registry.note_guard(box.term, TM, is_reached=False)
    await box.registry.note_guard(box.term, TM, is_reached=True)
    before = await box.revision_of(box.keys.guard(TM))
    await box.kv.arrive()
    assert await box.revision_of(box.keys.guard(TM)) == before


async def test_a_registration_says_the_latest(box: Box) -> None:
    """Also under the next lease: an older one would end with its key."""
    key = box.keys.job_master(MASTER.incarnation)
    registration = JobMasterRegistration(
        box.kv, box.keys, MASTER, LeaseSettings(60, TIMEOUT), LoopClock(), SeededEntropy(1)
    )
    running = asyncio.create_task(registration.run())
    try:
        box.kv.faults.append(Fault.LATE)
        await registration.registered.wait_until(bool)
        registration.update(replace(MASTER, state="draining"))
        async with asyncio.timeout(TIMEOUT):
            while await box.state_of(key) != "draining":
                await asyncio.sleep(0.01)
        await box.kv.arrive()
        assert await box.state_of(key) == "draining"
        registration.update(replace(MASTER, state="ready again"))
        async with asyncio.timeout(TIMEOUT):
            while await box.state_of(key) != "ready again":
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_what_somebody_else_has_made_of_a_registration_is_replaced(box: Box) -> None:
    key = box.keys.job_master(MASTER.incarnation)
    await box.write(Put(key, b"an earlier lease of the same process"))
    registration = JobMasterRegistration(
        box.kv, box.keys, MASTER, LeaseSettings(60, TIMEOUT), LoopClock(), SeededEntropy(1)
    )
    running = asyncio.create_task(registration.run())
    try:
        await registration.registered.wait_until(bool)
        assert await box.state_of(key) == "ready"
        await box.write(Delete(key))
        registration.update(replace(MASTER, state="draining"))
        async with asyncio.timeout(TIMEOUT):
            while await box.state_of(key) != "draining":
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.wait({running})
