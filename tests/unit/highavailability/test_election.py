"""Leases, leadership, retrieval and registrations on virtual time, over the memory store."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.scope import Scope
from runtime.common.errors import StaleTokenError, UnavailableError
from runtime.common.ids import Incarnation
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.highavailability.kv.lease import Lease, LeaseLostError
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership.cluster import cluster_uuid
from runtime.highavailability.leadership.election import LeadershipEpoch
from runtime.highavailability.leadership.registration import (
    GuardedTaskManager,
    JobMasterRegistration,
    TaskManagerRegistry,
    follow_guards,
    follow_job_masters,
    revoke_lease_of,
)
from runtime.highavailability.leadership.retrieval import LeaderRetrieval
from runtime.highavailability.records import GuardRecord, JobMasterRecord, TaskManagerRecord
from tests.kit.control_plane.elections import CLUSTER, KEYS, SETTINGS, World, incarnation
from tests.kit.control_plane.virtual_time import freeze, run_virtual
from tests.kit.etcd.faulty_kv import Fault, FaultyKeyValueStore


def test_the_first_leads_and_the_others_follow_in_order() -> None:
    async def main() -> None:
        world = World()
        async with Scope("test") as scope:
            for number in (1, 2, 3):
                task = world.election(number, world.connection()).run(world.contender(number))
                scope.spawn(f"candidate-{number}", task)
                await asyncio.sleep(1)
            assert [number for number, _ in world.terms] == [1]
            assert await revoke_lease_of(world.store, world.terms[0][1].term.key, timeout=1)
            await world.wait_terms(2, within=0.1)
            assert [number for number, _ in world.terms] == [1, 2]
            assert world.terms[0][1].epoch < world.terms[1][1].epoch
            # The first one notices at its next renewal, stands again, and is behind the third.
            await asyncio.sleep(10)
            assert not world.terms[0][1].is_valid
            assert world.terms[1][1].is_valid
            await revoke_lease_of(world.store, world.terms[1][1].term.key, timeout=1)
            await world.wait_terms(3, within=0.1)
            await revoke_lease_of(world.store, world.terms[2][1].term.key, timeout=1)
            await world.wait_terms(4, within=0.1)
            assert [number for number, _ in world.terms] == [1, 2, 3, 1]
            scope.cancel_all()

    run_virtual(main())


def test_a_contender_that_returns_resigns_at_once() -> None:
    async def main() -> None:
        world = World()

        async def lead(epoch: LeadershipEpoch) -> None:
            assert epoch.is_valid
            await asyncio.sleep(1)

        async with Scope("test") as scope:
            first = scope.start("first", world.election(1, world.connection()).run(lead))
            await asyncio.sleep(0.5)
            scope.spawn("second", world.election(2, world.connection()).run(world.contender(2)))
            await first
            await world.wait_terms(1, within=0.1)
            scope.cancel_all()
        assert [kv.key for kv in (await world.store.range(KEYS.leaders, is_prefix=True, timeout=1)).kvs] == []

    run_virtual(main())


def test_cancellation_resigns() -> None:
    async def main() -> None:
        world = World()
        async with Scope("test") as scope:
            scope.spawn("first", world.election(1, world.connection()).run(world.contender(1)))
            await world.wait_terms(1, within=1)
            scope.cancel_all()
        assert (await world.store.range(KEYS.leaders, is_prefix=True, timeout=1)).kvs == ()

    run_virtual(main())


def test_a_leader_that_cannot_reach_the_store_steps_down_before_its_lease_ends() -> None:
    async def main() -> None:
        world = World()
        kv = world.connection()
        ended: list[float] = []
        loop = asyncio.get_running_loop()

        async def lead(epoch: LeadershipEpoch) -> None:
            world.terms.append((1, epoch))
            try:
                await asyncio.sleep(1e9)
            finally:
                ended.append(loop.time())

        async with Scope("test") as scope:
            scope.spawn("first", world.election(1, kv).run(lead))
            await world.wait_terms(1, within=1)
            scope.spawn("second", world.election(2, world.connection()).run(world.contender(2)))
            await asyncio.sleep(20)
            assert world.terms[0][1].is_valid
            kv.is_reachable = False
            began = loop.time()
            await world.wait_terms(2, within=SETTINGS.ttl + 0.1)
            assert ended[0] < loop.time()
            assert SETTINGS.ttl * 2 / 3 - 0.1 < loop.time() - began <= SETTINGS.ttl
            kv.is_reachable = True
            await asyncio.sleep(3)
            await revoke_lease_of(world.store, world.terms[1][1].term.key, timeout=1)
            await world.wait_terms(3, within=5)
            assert [number for number, _ in world.terms] == [1, 2, 1]
            scope.cancel_all()

    run_virtual(main())


def test_its_own_last_lease_does_not_keep_it_waiting_when_the_store_is_back() -> None:
    """A restarted etcd gives all leases their whole time anew."""

    async def main() -> None:
        world = World()
        kv = world.connection()
        async with Scope("test") as scope:
            scope.spawn("only", world.election(1, kv).run(world.contender(1)))
            await world.wait_terms(1, within=1)
            term = world.terms[0][1].term
            (old,) = (await world.store.range(term.key, is_prefix=False, timeout=1)).kvs
            kv.is_reachable = False
            for _ in range(4):
                await asyncio.sleep(SETTINGS.ttl / 2)
                await world.store.keep_lease_alive(old.lease, timeout=1)
            assert not world.terms[0][1].is_valid
            kv.is_reachable = True
            await world.wait_terms(2, within=SETTINGS.ttl / 2)
            assert not (await world.store.range(term.key, is_prefix=False, timeout=1)).kvs
            scope.cancel_all()

    run_virtual(main())


def test_after_a_freeze_the_old_term_is_over_in_the_same_instant() -> None:
    async def main() -> None:
        world = World()
        async with Scope("test") as scope:
            scope.spawn("first", world.election(1, world.connection()).run(world.contender(1)))
            await world.wait_terms(1, within=1)
            freeze(6)
            assert not world.terms[0][1].is_valid
            scope.cancel_all()

    run_virtual(main())


def test_a_contender_that_finds_its_term_over_stands_again() -> None:
    async def main() -> None:
        world = World()

        async def lead(epoch: LeadershipEpoch) -> None:
            world.terms.append((1, epoch))
            if len(world.terms) == 1:
                raise StaleTokenError

        async with Scope("test") as scope:
            await world.election(1, world.connection()).run(lead)
            scope.cancel_all()
        assert len(world.terms) == 2
        assert world.terms[0][1].epoch < world.terms[1][1].epoch

    run_virtual(main())


def test_a_contenders_own_error_comes_out_and_resigns() -> None:
    async def main() -> None:
        world = World()

        async def lead(_: LeadershipEpoch) -> None:
            raise KeyError

        with pytest.RaisesGroup(KeyError):
            await world.election(1, world.connection()).run(lead)
        assert (await world.store.range(KEYS.leaders, is_prefix=True, timeout=1)).kvs == ()

    run_virtual(main())


def test_a_candidacy_whose_answer_was_lost_is_found_again() -> None:
    async def main() -> None:
        world = World()
        kv = world.connection()
        kv.faults.extend([Fault.REFUSED, Fault.APPLIED_THEN_LOST, Fault.LOST_BEFORE])
        async with Scope("test") as scope:
            scope.spawn("first", world.election(1, kv).run(world.contender(1)))
            await world.wait_terms(1, within=5)
            key = world.terms[0][1].term.key
            stored = (await world.store.range(key, is_prefix=False, timeout=1)).kvs[0]
            assert stored.create_revision == world.terms[0][1].epoch
            scope.cancel_all()

    run_virtual(main())


def test_a_lease_is_not_valid_after_its_deadline_even_if_the_store_keeps_it() -> None:
    async def main() -> None:
        world = World()
        lease = await Lease.grant(world.store, LoopClock(), SETTINGS)
        lease.check()
        await asyncio.sleep(4.96)
        assert not lease.is_valid
        with pytest.raises(LeaseLostError):
            await lease.keep_alive()

    run_virtual(main())


def test_a_lease_is_renewed_at_a_third_of_its_time() -> None:
    async def main() -> None:
        world = World()
        lease = await Lease.grant(world.store, LoopClock(), SETTINGS)
        async with Scope("test") as scope:
            scope.spawn_eternal("lease", lease.keep_alive())
            await asyncio.sleep(60)
            lease.check()
            scope.cancel_all()
        await lease.revoke()
        assert not lease.is_valid

    run_virtual(main())


class HangingStore(FaultyKeyValueStore):
    """Renewals hang until their deadline, as at a frozen member; `hangs` more of them do."""

    hangs = 0

    async def keep_lease_alive(self, lease: int, /, *, timeout: float) -> int:
        if self.hangs:
            self.hangs -= 1
            await asyncio.sleep(timeout)
            message = "no answer"
            raise UnavailableError(message)
        # Whatever is left for the last try is enough for a member that answers.
        await asyncio.sleep(0.05)
        return await super().keep_lease_alive(lease, timeout=timeout)


def test_two_renewals_that_hang_cost_no_lease() -> None:
    async def main() -> None:
        kv = HangingStore(MemoryKeyValueStore(LoopClock()))
        lease = await Lease.grant(kv, LoopClock(), SETTINGS)
        async with Scope("test") as scope:
            scope.spawn_eternal("lease", lease.keep_alive())
            for _ in range(3):
                kv.hangs = 2
                await asyncio.sleep(10)
                assert not kv.hangs
                lease.check()
            scope.cancel_all()

    run_virtual(main())


def test_retrieval_follows_the_leader() -> None:
    async def main() -> None:
        world = World()
        retrieval = LeaderRetrieval(world.store, KEYS, CLUSTER, SeededEntropy(9), timeout=1)
        async with Scope("test") as scope:
            scope.spawn("retrieval", retrieval.run())
            await asyncio.sleep(1)
            assert retrieval.leader.value is None
            for number in (1, 2):
                scope.spawn(f"{number}", world.election(number, world.connection()).run(world.contender(number)))
                await asyncio.sleep(1)
            first = await retrieval.leader.wait_until(lambda leader: leader is not None)
            assert first is not None
            assert (first.record.address, first.epoch) == ("host:1", world.terms[0][1].epoch)
            assert first.token == world.terms[0][1].token
            assert [one.address for one in retrieval.candidates] == ["host:1", "host:2"], "who stands by too"
            # History is forgotten while nothing changes: the follower lists again and misses nothing.
            await world.store.txn(Txn((), (Put("/other", b""),)), timeout=1)
            await world.store.compact((await world.store.status(timeout=1)).revision, timeout=1)
            await revoke_lease_of(world.store, world.terms[0][1].term.key, timeout=1)
            second = await retrieval.leader.wait_until(lambda leader: leader is not None and leader != first)
            assert second is not None
            assert second.record.address == "host:2"
            assert [one.address for one in retrieval.candidates] == ["host:2"]
            scope.cancel_all()

    run_virtual(main())


RECORD = JobMasterRecord(incarnation(7), "host:7", capacity=10, jobs=0, state="ready", version="0.1.0")


def registration(kv: FaultyKeyValueStore) -> JobMasterRegistration:
    return JobMasterRegistration(kv, KEYS, RECORD, SETTINGS, LoopClock(), SeededEntropy(7))


async def registered(world: World) -> JobMasterRecord | None:
    async for job_masters in follow_job_masters(world.store, KEYS, timeout=1, entropy=SeededEntropy(8)):
        return job_masters.get(RECORD.incarnation)
    return None


def test_a_job_master_process_registers_updates_and_leaves() -> None:
    async def main() -> None:
        world = World()
        ours = registration(world.connection())
        assert not ours.is_valid
        async with Scope("test") as scope:
            scope.spawn("registration", ours.run())
            await ours.registered.wait_until(bool)
            assert await registered(world) == RECORD
            draining = replace(RECORD, state="draining", jobs=3)
            ours.update(replace(RECORD, jobs=1))
            ours.update(draining)
            await asyncio.sleep(30)
            assert await registered(world) == draining
            scope.cancel_all()
        assert not ours.is_valid
        assert await registered(world) is None

    run_virtual(main())


def test_a_job_master_process_registers_again_after_it_was_cut_off() -> None:
    async def main() -> None:
        world = World()
        kv = world.connection()
        ours = registration(kv)
        async with Scope("test") as scope:
            scope.spawn("registration", ours.run())
            await ours.registered.wait_until(bool)
            kv.is_reachable = False
            await asyncio.sleep(SETTINGS.ttl)
            assert not ours.is_valid
            await asyncio.sleep(5)
            assert await registered(world) is None
            kv.is_reachable = True
            await ours.registered.wait_until(bool)
            assert await registered(world) == RECORD
            scope.cancel_all()

    run_virtual(main())


def test_a_revoked_job_master_process_comes_back_by_itself() -> None:
    async def main() -> None:
        world = World()
        ours = registration(world.connection())
        async with Scope("test") as scope:
            scope.spawn("registration", ours.run())
            await ours.registered.wait_until(bool)
            assert await revoke_lease_of(world.store, KEYS.job_master(RECORD.incarnation), timeout=1)  # R8
            assert not await revoke_lease_of(world.store, KEYS.job_master(RECORD.incarnation), timeout=1)
            assert await registered(world) is None
            await asyncio.sleep(SETTINGS.ttl)
            assert await registered(world) == RECORD
            scope.cancel_all()

    run_virtual(main())


def test_a_task_manager_stays_registered_until_it_is_removed() -> None:
    async def main() -> None:
        world = World()
        registry = TaskManagerRegistry(world.store, KEYS, SeededEntropy(1), timeout=1)
        record = TaskManagerRecord(incarnation(5), "tm-5", "host:5", "guard:5", "boot", 4)
        other = replace(record, incarnation=incarnation(55))
        await registry.register(record)
        await registry.register(other)
        fence = Put(f"{KEYS.task_manager(record.incarnation)}/fences/{'a' * 32}", b"1")
        await world.store.txn(Txn((), (fence,)), timeout=1)
        await asyncio.sleep(1e6)
        assert await registry.task_managers() == {record.incarnation: record, other.incarnation: other}
        await registry.unregister(record.incarnation)
        left = await world.store.range(KEYS.task_managers, is_prefix=True, timeout=1)
        assert [kv.key for kv in left.kvs] == [KEYS.task_manager(other.incarnation)]

        async with Scope("test") as scope:
            scope.spawn("leader", world.election(1, world.connection()).run(world.contender(1)))
            await world.wait_terms(1, within=1)
            term = world.terms[0][1].term
            await registry.remove_dead(term, other.incarnation)
            assert await registry.task_managers() == {}
            scope.cancel_all()
        with pytest.raises(StaleTokenError):
            await registry.remove_dead(term, other.incarnation)

    run_virtual(main())


def test_the_cluster_uuid_is_made_once() -> None:
    async def main() -> None:
        world = World()
        kv = world.connection()
        kv.faults.append(Fault.APPLIED_THEN_LOST)
        first = await cluster_uuid(kv, KEYS, SeededEntropy(1), timeout=1)
        assert await cluster_uuid(kv, KEYS, SeededEntropy(2), timeout=1) == first

    run_virtual(main())


def test_what_a_leader_knows_of_a_guard_is_kept_for_the_next_one() -> None:  # R13
    async def main() -> None:
        world = World()
        registry = TaskManagerRegistry(world.store, KEYS, SeededEntropy(1), timeout=1)
        record = TaskManagerRecord(incarnation(5), "tm-5", "host:5", "guard:5", "boot", 4)
        await registry.register(record)

        async def known() -> dict[Incarnation, GuardedTaskManager]:
            async for found in follow_guards(world.store, KEYS, timeout=1, entropy=SeededEntropy(2)):
                return dict(found)
            raise AssertionError

        async with Scope("test") as scope:
            scope.spawn("leader", world.election(1, world.connection()).run(world.contender(1)))
            await world.wait_terms(1, within=1)
            term = world.terms[0][1].term
            assert await known() == {record.incarnation: GuardedTaskManager(record, None)}
            for is_reached in (False, True, True):
                await registry.note_guard(term, record.incarnation, is_reached=is_reached)
                assert await known() == {record.incarnation: GuardedTaskManager(record, GuardRecord(is_reached))}
            await registry.note_guard(term, incarnation(6), is_reached=True)
            await registry.remove_unused(term, record.incarnation)
            assert set(await known()) == {record.incarnation}, "it is used; and nothing is noted of one without a key"
            await registry.remove_dead(term, record.incarnation)
            left = await world.store.range(KEYS.task_managers, is_prefix=True, timeout=1)
            assert left.kvs == ()
            await registry.register(record)
            await registry.remove_unused(term, record.incarnation)
            assert await known() == {}
            scope.cancel_all()
        await registry.register(record)
        with pytest.raises(StaleTokenError):
            await registry.note_guard(term, record.incarnation, is_reached=True)
        with pytest.raises(StaleTokenError):
            await registry.remove_unused(term, record.incarnation)

    run_virtual(main())
