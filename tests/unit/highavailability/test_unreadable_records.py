"""An unreadable record never means that a process is absent or dead, or that a job is done (R31)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TypeVar

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.scope import Scope
from runtime.common.ids import Incarnation, JobId
from runtime.entrypoint.component_factories import TaskManagerKeys
from runtime.highavailability.jobs.fences import OwnerFences, TaskManagerFences
from runtime.highavailability.kv.key_value_store import Delete, Op, Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership.registration import (
    TaskManagerRegistry,
    follow_guards,
    follow_job_masters,
    follow_task_managers,
)
from runtime.highavailability.leadership.retrieval import LeaderRetrieval
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import DRAINING, GuardRecord, JobMasterRecord, LeaderRecord, TaskManagerRecord
from runtime.jobmaster.registered_task_managers import follow_ends
from runtime.resourcemanager.core.liveness import Liveness, Question
from runtime.taskexecutor.connections.contact import ContactKeeper, ContactSettings
from tests.kit.control_plane.elections import CLUSTER, KEYS, World, incarnation
from tests.kit.control_plane.task_messages import job_id
from tests.kit.control_plane.virtual_time import run_virtual

ItemT = TypeVar("ItemT")

JOB = job_id(1)
TM = TaskManagerRecord(incarnation(1), "tm-1", "host:1", "guard:1", "boot", 4)
NAME = TM.incarnation
PROCESS = JobMasterRecord(incarnation(2), "host:2", capacity=10, jobs=1, state="ready", version="0.1.0")

pytestmark = pytest.mark.parametrize("written", [b'{"v": 99, "record": {}}', b"\xff", b"{}", b""])
"""The record of another version, and a value that no process has written."""


async def write(store: MemoryKeyValueStore, *ops: Op) -> int:
    return (await store.txn(Txn((), ops), timeout=1)).revision


async def first(found: AsyncIterator[ItemT]) -> ItemT:
    async for one in found:
        return one
    raise AssertionError


def registry_of(world: World) -> TaskManagerRegistry:
    return TaskManagerRegistry(world.store, KEYS, SeededEntropy(1), timeout=1)


def test_a_task_manager_stays_in_the_census_and_cannot_be_reached(written: bytes) -> None:
    async def main() -> None:
        world = World()
        await write(world.store, Put(KEYS.task_manager(NAME), written))
        found = await registry_of(world).task_managers()
        assert set(found) == {NAME}, "whoever counts it as gone deploys beside it"
        assert (found[NAME].address, found[NAME].guard_address, found[NAME].slots) == ("", "", 0)
        assert await first(follow_task_managers(world.store, KEYS, timeout=1, entropy=SeededEntropy(2))) == found

    run_virtual(main())


def test_a_task_manager_whose_record_changes_has_not_ended(written: bytes) -> None:
    async def main() -> None:
        world = World()
        ended: list[Incarnation] = []
        found: list[str] = []

        def registered() -> AsyncIterator[Mapping[Incarnation, TaskManagerRecord]]:
            return follow_task_managers(world.store, KEYS, timeout=1, entropy=SeededEntropy(2))

        def died(incarnation: Incarnation, _reason: str) -> None:
            ended.append(incarnation)

        async with Scope("test") as scope:
            scope.spawn_eternal("ends", follow_ends(registered, died, lambda _, address: found.append(address)))
            await write(world.store, Put(KEYS.task_manager(NAME), encode_record(TM)))
            await asyncio.sleep(5)
            await write(world.store, Put(KEYS.task_manager(NAME), written))
            await asyncio.sleep(5)
            assert (ended, found) == ([], [TM.address])
            await write(world.store, Put(KEYS.task_manager(NAME), encode_record(TM)))
            await asyncio.sleep(5)
            assert (ended, found) == ([], [TM.address, TM.address]), "it can be asked again"
            await write(world.store, Delete(KEYS.task_manager(NAME)))
            await asyncio.sleep(5)
            assert ended == [NAME], "its key's end is its end"
            scope.cancel_all()

    run_virtual(main())


def test_the_leader_neither_buries_nor_uses_it_before_it_comes_by_itself(written: bytes) -> None:
    async def main() -> None:
        world = World()
        await write(world.store, Put(KEYS.task_manager(NAME), written))

        async with Scope("test") as scope:
            scope.spawn("leader", world.election(1, world.connection()).run(world.contender(1)))
            await world.wait_terms(1, within=1)
            keys = TaskManagerKeys(
                lambda: follow_guards(world.store, KEYS, timeout=1, entropy=SeededEntropy(2)),
                registry_of(world),
                world.terms[0][1].term,
            )
            liveness = Liveness()
            new, gone = liveness.stored(await first(keys.follow()))
            scope.cancel_all()
        assert (new, gone) == ([NAME], [])
        assert not liveness.is_used(NAME)
        assert liveness.question(NAME, is_heard=False) is None
        assert not liveness.is_superfluous(NAME, is_heard=False), "nobody can ask its guard whether it lives"
        liveness.registered(TM)
        assert liveness.question(NAME, is_heard=True) is Question.IS_IT_THERE
        assert liveness.process(NAME).guard_address == "guard:1"

    run_virtual(main())


def test_what_is_known_of_a_guard_proves_nothing(written: bytes) -> None:
    async def main() -> None:
        world = World()
        await write(world.store, Put(KEYS.task_manager(NAME), encode_record(TM)), Put(KEYS.guard(NAME), written))
        found = await first(follow_guards(world.store, KEYS, timeout=1, entropy=SeededEntropy(2)))
        assert found[NAME].guard == GuardRecord(is_reached=False)

    run_virtual(main())


def test_a_job_master_process_keeps_its_jobs_and_gets_none(written: bytes) -> None:
    async def main() -> None:
        world = World()
        await write(world.store, Put(KEYS.job_master(PROCESS.incarnation), written))
        found = await first(follow_job_masters(world.store, KEYS, timeout=1, entropy=SeededEntropy(2)))
        assert set(found) == {PROCESS.incarnation}
        assert (found[PROCESS.incarnation].state, found[PROCESS.incarnation].capacity) == (DRAINING, 0)

    run_virtual(main())


def test_nobody_leads_before_the_lease_of_a_leader_has_ended(written: bytes) -> None:
    async def main() -> None:
        world = World()
        judged: list[LeaderRecord] = []

        async def proof(record: LeaderRecord) -> str:
            judged.append(record)
            return "found dead"

        lease = await world.store.grant_lease(3600, timeout=1)
        await write(world.store, Put(KEYS.leader(lease), written, lease))
        retrieval = LeaderRetrieval(world.store, KEYS, CLUSTER, SeededEntropy(3), timeout=1)
        async with Scope("test") as scope:
            scope.spawn_eternal("retrieval", retrieval.run())
            scope.spawn("next", world.election(2, world.connection(), proof).run(world.contender(2)))
            await asyncio.sleep(60)
            assert world.terms == []
            assert judged == []
            assert retrieval.leader.value is None, "nobody is told of a leader whom nobody knows"
            await world.store.revoke_lease(lease, timeout=1)
            await world.wait_terms(1, within=1)
            scope.cancel_all()

    run_virtual(main())


def test_a_fence_stops_every_epoch_and_is_not_confirmed(written: bytes) -> None:
    async def main() -> None:
        world = World()
        epoch = await write(
            world.store, Put(KEYS.owner(JOB), b"owner"), Put(KEYS.task_manager(NAME), encode_record(TM))
        )
        owner = OwnerFences(world.store, KEYS, SeededEntropy(1), timeout=1)
        revision = await owner.fence(JOB, epoch, NAME)
        spoiled = await write(world.store, Put(KEYS.fence(NAME, JOB), written))
        task_manager = TaskManagerFences(world.store, KEYS, NAME, SeededEntropy(1), timeout=1)
        read = (await task_manager.read()).fences[JOB]
        assert read.epoch == spoiled > epoch
        assert not read.is_confirmed
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await owner.wait_settled(JOB, NAME, revision)

    run_virtual(main())


def test_the_task_manager_leaves_a_fence_alone_that_it_cannot_read_and_forgets_what_it_forbade(written: bytes) -> None:
    async def main() -> None:
        world = World()
        epoch = await write(
            world.store, Put(KEYS.owner(JOB), b"owner"), Put(KEYS.task_manager(NAME), encode_record(TM))
        )
        owner = OwnerFences(world.store, KEYS, SeededEntropy(1), timeout=1)
        obeyer = Obeyer()
        async with Scope("test") as scope:
            keeper = contact_keeper(world, obeyer)
            scope.spawn_eternal("contact", keeper.run())
            revision = await owner.fence(JOB, epoch, NAME)
            assert await owner.wait_settled(JOB, NAME, revision)
            await owner.lift(JOB, epoch, NAME)
            (lifted,) = (await world.store.range(KEYS.fence(NAME, JOB), is_prefix=False, timeout=1)).kvs
            await write(world.store, Put(KEYS.fence(NAME, JOB), written))
            await asyncio.sleep(30)
            assert obeyer.unreadable == {JOB}
            assert keeper.loss == "", "tasks of other jobs go on"
            (spoiled,) = (await world.store.range(KEYS.fence(NAME, JOB), is_prefix=False, timeout=1)).kvs
            assert spoiled.value == written, "a confirmation would be a fence that nobody has asked for, or lifts"
            await write(world.store, Put(KEYS.fence(NAME, JOB), lifted.value))
            await asyncio.sleep(30)
            assert obeyer.unreadable == set()
            scope.cancel_all()

    run_virtual(main())


def test_an_owner_puts_a_fence_in_the_place_of_one_that_cannot_be_read(written: bytes) -> None:
    async def main() -> None:
        world = World()
        epoch = await write(
            world.store, Put(KEYS.owner(JOB), b"owner"), Put(KEYS.task_manager(NAME), encode_record(TM))
        )
        owner = OwnerFences(world.store, KEYS, SeededEntropy(1), timeout=1)
        obeyer = Obeyer()
        async with Scope("test") as scope:
            scope.spawn_eternal("contact", contact_keeper(world, obeyer).run())
            await write(world.store, Put(KEYS.fence(NAME, JOB), written))
            await asyncio.sleep(30)
            assert obeyer.unreadable == {JOB}
            revision = await owner.fence(JOB, epoch, NAME)
            async with asyncio.timeout(100):
                assert await owner.wait_settled(JOB, NAME, revision)
            assert obeyer.unreadable == set()
            scope.cancel_all()

    run_virtual(main())


class Obeyer:
    """A TaskExecutor on which nothing runs."""

    def __init__(self) -> None:
        self.keeper: ContactKeeper | None = None
        self.unreadable: set[JobId] = set()

    def stop_fenced(self, job: JobId, _epoch: int, revision: int, /, *, is_readable: bool) -> None:
        if not is_readable:
            self.unreadable.add(job)
        assert self.keeper is not None
        asyncio.get_running_loop().call_soon(self.keeper.note_stopped, job, revision)

    def reopen(self, job: JobId, /) -> None:
        self.unreadable.remove(job)

    def contact_changed(self) -> None:
        """Nothing waits for it."""

    async def stop_everything(self) -> None:
        raise AssertionError


class Guard:
    """Accepts every deadline."""

    async def hold(self, _deadline: float, /) -> None:
        return


def contact_keeper(world: World, obeyer: Obeyer) -> ContactKeeper:
    fences = TaskManagerFences(world.store, KEYS, NAME, SeededEntropy(1), timeout=1)
    keeper = ContactKeeper(ContactSettings(2.0, 60.0, cancellation_timeout=1.0), fences, Guard(), LoopClock())
    keeper.obeyer = obeyer
    obeyer.keeper = keeper
    return keeper
