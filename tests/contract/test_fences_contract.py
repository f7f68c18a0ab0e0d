"""Fences over every store: who may write, confirm and lift one, and what each party learns (R14)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
import pytest_asyncio

from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import StaleTokenError
from runtime.highavailability.jobs.fences import Fence, OwnerFences, OwnPrefix, TaskManagerFences, unconfirmed_wait
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Delete, Op, Put, Txn
from tests.kit.control_plane.task_messages import incarnation, job_id
from tests.kit.etcd.faulty_kv import Fault, FaultyKeyValueStore
from tests.kit.etcd.server import StoreUnderTest

pytestmark = pytest.mark.asyncio

TIMEOUT = 5.0
TM, JOB = incarnation(1), job_id(1)


@dataclass
class Box:
    """A registered TaskManager, and an owner of a job."""

    kv: FaultyKeyValueStore
    keys: Keys
    epoch: int = 0

    @property
    def owner(self) -> OwnerFences:
        return OwnerFences(self.kv, self.keys, SeededEntropy(1), timeout=TIMEOUT)

    @property
    def task_manager(self) -> TaskManagerFences:
        return TaskManagerFences(self.kv, self.keys, TM, SeededEntropy(1), timeout=TIMEOUT)

    async def write(self, *ops: Op) -> int:
        return (await self.kv.txn(Txn((), ops), timeout=TIMEOUT)).revision

    async def assign(self) -> int:
        """A new owner; its epoch."""
        self.epoch = await self.write(Put(self.keys.owner(JOB), b"owner"))
        return self.epoch

    async def the_fence(self) -> Fence:
        return (await self.task_manager.read()).fences[JOB]

    async def is_settled(self, revision: int) -> bool:
        async with asyncio.timeout(TIMEOUT):
            return await self.owner.wait_settled(JOB, TM, revision)


@pytest_asyncio.fixture
async def box(store: StoreUnderTest) -> Box:
    box = Box(FaultyKeyValueStore(store.kv), store.keys)
    await box.write(Put(box.keys.task_manager(TM), b"{}"))
    await box.assign()
    return box


async def test_a_task_manager_reads_its_own_prefix_only(box: Box) -> None:
    other = box.keys.fence(incarnation(2), JOB)
    await box.write(Put(other, b"{}"))
    read = await box.task_manager.read()
    assert read == OwnPrefix(is_registered=True, fences={}, revision=read.revision)
    revision = await box.owner.fence(JOB, box.epoch, TM)
    read = await box.task_manager.read()
    assert read.fences == {JOB: Fence(box.epoch, revision, revision)}
    assert not read.fences[JOB].is_confirmed


async def test_a_read_says_that_the_key_is_gone(box: Box) -> None:
    await box.owner.remove_dead(JOB, box.epoch, TM)
    assert not (await box.task_manager.read()).is_registered


async def test_a_confirmed_fence_keeps_its_revision(box: Box) -> None:
    revision = await box.owner.fence(JOB, box.epoch, TM)
    assert await box.task_manager.confirm(JOB, await box.the_fence())
    fence = await box.the_fence()
    assert (fence.epoch, fence.revision, fence.is_confirmed) == (box.epoch, revision, True)
    assert await box.is_settled(revision)


async def test_only_the_current_owner_fences_lifts_and_removes(box: Box) -> None:
    stale = box.epoch
    await box.owner.fence(JOB, stale, TM)
    await box.assign()
    for attempt in (
        box.owner.fence(JOB, stale, TM),
        box.owner.lift(JOB, stale, TM),
        box.owner.remove_dead(JOB, stale, TM),
    ):
        with pytest.raises(StaleTokenError, match=JOB):
            await attempt
    assert (await box.the_fence()).epoch == stale
    assert (await box.task_manager.read()).is_registered


async def test_a_fence_that_was_written_again_is_not_confirmed_by_an_answer_to_the_old_one(box: Box) -> None:
    old = await box.owner.fence(JOB, box.epoch, TM)
    read = await box.the_fence()
    new = await box.owner.fence(JOB, await box.assign(), TM)
    assert not await box.task_manager.confirm(JOB, read)
    assert not (await box.the_fence()).is_confirmed
    assert not await box.is_settled(old), "its writer is not the owner any more"
    assert await box.task_manager.confirm(JOB, await box.the_fence())
    assert await box.is_settled(new)


async def test_a_fence_for_a_task_manager_that_is_gone_is_not_written(box: Box) -> None:
    await box.write(Delete(box.keys.task_manager(TM)))
    assert await box.owner.fence(JOB, box.epoch, TM) == 0
    assert not (await box.task_manager.read()).fences


async def test_waiting_ends_with_the_confirmation(box: Box) -> None:
    revision = await box.owner.fence(JOB, box.epoch, TM)
    waiting = asyncio.create_task(box.is_settled(revision))
    await box.task_manager.confirm(JOB, await box.the_fence())
    assert await waiting


async def test_waiting_ends_with_the_task_manager(box: Box) -> None:
    revision = await box.owner.fence(JOB, box.epoch, TM)
    waiting = asyncio.create_task(box.is_settled(revision))
    await box.owner.remove_dead(JOB, box.epoch, TM)
    assert await waiting


async def test_a_lifted_fence_is_gone(box: Box) -> None:
    revision = await box.owner.fence(JOB, box.epoch, TM)
    for _ in range(2):
        await box.owner.lift(JOB, box.epoch, TM)
    assert not (await box.task_manager.read()).fences
    assert not await box.is_settled(revision)


async def test_a_task_manager_drops_the_fence_that_it_has_read_and_no_other(box: Box) -> None:
    await box.owner.fence(JOB, box.epoch, TM)
    read = await box.the_fence()
    await box.task_manager.confirm(JOB, read)
    await box.task_manager.drop(JOB, read)
    assert (await box.the_fence()).is_confirmed
    confirmed = await box.the_fence()
    for _ in range(2):
        await box.task_manager.drop(JOB, confirmed)
    assert not (await box.task_manager.read()).fences


async def test_a_task_manager_hears_of_a_change(box: Box) -> None:
    read = await box.task_manager.read()
    waiting = asyncio.create_task(box.task_manager.wait_changed(read.revision))
    await box.owner.fence(JOB, box.epoch, TM)
    async with asyncio.timeout(TIMEOUT):
        await waiting


async def test_a_fence_whose_answer_is_lost_is_known_by_the_revision_that_counts(box: Box) -> None:
    box.kv.faults.append(Fault.APPLIED_THEN_LOST)
    revision = await box.owner.fence(JOB, box.epoch, TM)
    assert (await box.the_fence()).revision == revision


async def test_a_confirmation_whose_answer_is_lost_is_one(box: Box) -> None:
    revision = await box.owner.fence(JOB, box.epoch, TM)
    box.kv.faults.append(Fault.APPLIED_THEN_LOST)
    assert await box.task_manager.confirm(JOB, await box.the_fence())
    assert await box.is_settled(revision)


async def test_a_fence_that_cannot_be_read_is_for_every_attempt(box: Box) -> None:
    revision = await box.write(Put(box.keys.fence(TM, JOB), b"?"))
    fence = await box.the_fence()
    assert fence == Fence(revision, revision, revision, is_readable=False)


async def test_the_wait_without_confirmation_has_a_margin() -> None:
    assert unconfirmed_wait(60.0) == pytest.approx(65.6)
