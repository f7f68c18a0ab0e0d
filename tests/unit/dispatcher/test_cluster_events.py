"""The events of a term in the store: written soon and in few transactions, read by the next leader (D-114)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.scope import Scope
from runtime.common.errors import StaleTokenError, StorageExhaustedError, UnavailableError
from runtime.common.ids import JobId
from runtime.dispatcher.cluster_events import ClusterEventLog
from runtime.dispatcher.core.kept_events import OF_SUBJECT_MAX
from runtime.gateways.cluster_events import EventKind
from runtime.highavailability.cluster_events import ClusterEventStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.key_value_store import Delete, Put, Txn, TxnResult
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from tests.kit.control_plane.virtual_time import run_virtual

KEYS = Keys.of_cluster("test")
JOB = JobId("a" * 32)


class Store(MemoryKeyValueStore):
    """Counts the transactions about events; refuses them with an error, or loses their answers."""

    def __init__(self) -> None:
        super().__init__(LoopClock())
        self.writes = 0
        self.refusal: Exception | None = None

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        if any(isinstance(op, Put | Delete) and op.key.startswith(KEYS.cluster_events) for op in txn.success):
            if self.refusal is not None:
                raise self.refusal
            self.writes += 1
        return await super().txn(txn, timeout=timeout)

    async def lead(self, number: int) -> LeaderTerm:
        key = KEYS.leader(number)
        return LeaderTerm(key, (await self.txn(Txn((), (Put(key, b"x"),)), timeout=1)).revision)


@asynccontextmanager
async def term(store: Store, number: int = 1) -> AsyncIterator[ClusterEventLog]:
    """A leader that has read the events, and stores its own."""
    entropy = SeededEntropy(number)
    won = await store.lead(number)
    log = ClusterEventLog(ClusterEventStore(store, KEYS, won, entropy, timeout=1), won.epoch, LoopClock(), entropy)
    await log.recover()
    async with Scope("term") as scope:
        scope.spawn_eternal("events", log.run())
        yield log
        scope.cancel_all()


def messages(log: ClusterEventLog) -> list[str]:
    return [one.message for one in log.page(lambda _: True, after="", limit=1000).events]


def virtual(work: Callable[[Store], Awaitable[None]]) -> None:
    async def main() -> None:
        store = Store()
        await work(store)
        await store.close()

    run_virtual(main())


async def stored(store: Store) -> int:
    return (await store.range(KEYS.cluster_events, is_prefix=True, timeout=1)).count


def test_the_next_leader_tells_what_the_last_one_has_stored() -> None:
    async def work(store: Store) -> None:
        async with term(store) as log:
            log.tell(EventKind.TASKMANAGER_REGISTERED, "tm-1 registered", subject="tm-1")
            log.tell_of_job(EventKind.JOB_TAKEN_OVER, "job moves", JOB, "team-a")
            await asyncio.sleep(3)
            first = log.page(lambda _: True, after="", limit=10).events
        async with term(store, 2) as log:
            assert log.page(lambda _: True, after="", limit=10).events == first
            log.tell(EventKind.TASKMANAGER_REGISTERED, "again", subject="tm-1")
            log.tell(EventKind.TASKMANAGER_DEAD, "dead", subject="tm-1")
            assert messages(log) == ["tm-1 registered", "job moves", "dead"]

    virtual(work)


def test_events_of_a_second_share_a_transaction_and_idleness_writes_nothing() -> None:
    async def work(store: Store) -> None:
        async with term(store) as log:
            for number in range(20):
                log.tell(EventKind.TASKMANAGER_REGISTERED, "registered", subject=str(number))
            await asyncio.sleep(5)
            assert (store.writes, await stored(store)) == (1, 20)
            await asyncio.sleep(600)
            assert store.writes == 1

    virtual(work)


def test_a_process_that_flaps_costs_few_writes_and_its_number_is_told() -> None:
    async def work(store: Store) -> None:
        async with term(store) as log:
            for _ in range(600):
                log.tell(EventKind.TASKMANAGER_REGISTERED, "here", subject="tm-1")
                log.tell(EventKind.TASKMANAGER_LOST, "gone", subject="tm-1")
                await asyncio.sleep(0.1)
            await asyncio.sleep(70)
            assert store.writes <= 5
            assert await stored(store) <= 4 * OF_SUBJECT_MAX + 4
            counts = [one.count for one in log.page(lambda _: True, after="", limit=1000).events if one.count]
            assert 1000 < sum(counts) <= 1200
            assert "more events of this kind within a minute" in messages(log)[-1]

    virtual(work)


@pytest.mark.parametrize("refusal", [StorageExhaustedError("full"), UnavailableError("away")])
def test_what_the_store_does_not_take_is_shown_and_stored_later(refusal: Exception) -> None:
    async def work(store: Store) -> None:
        async with term(store) as log:
            store.refusal = refusal
            log.tell(EventKind.STORE_FULL, "full", subject="store")
            await asyncio.sleep(100)
            assert (messages(log), await stored(store)) == (["full"], 0)
            store.refusal = None
            await asyncio.sleep(100)
            assert (store.writes, await stored(store)) == (1, 1)

    virtual(work)


def test_a_leader_whose_term_is_over_writes_nothing() -> None:
    async def work(store: Store) -> None:
        with pytest.raises(ExceptionGroup) as raised:
            await tell_after_its_end(store)
        assert raised.group_contains(StaleTokenError)
        assert await stored(store) == 0

    async def tell_after_its_end(store: Store) -> None:
        async with term(store) as log:
            await store.txn(Txn((), (Delete(KEYS.leader(1)),)), timeout=1)
            log.tell(EventKind.STORE_FULL, "full", subject="store")
            await asyncio.sleep(10)

    virtual(work)


def test_unreadable_events_are_left_out_and_deleted() -> None:
    async def work(store: Store) -> None:
        for number, value in (
            ("0", b"x"),
            ("1", b'{"v":1,"record":{"id":"i","millis":1,"kind":"later","message":"m"}}'),
        ):
            await store.txn(Txn((), (Put(KEYS.cluster_event(number), value),)), timeout=1)
        async with term(store) as log:
            assert messages(log) == []
            await asyncio.sleep(5)
            assert await stored(store) == 0

    virtual(work)


def test_a_number_that_somebody_has_taken_ends_nothing() -> None:
    async def work(store: Store) -> None:
        async with term(store) as log:
            (leader,) = (await store.range(KEYS.leader(1), is_prefix=False, timeout=1)).kvs
            taken = KEYS.cluster_event(f"{leader.create_revision:016d}-00000000")
            await store.txn(Txn((), (Put(taken, b"x"),)), timeout=1)
            log.tell(EventKind.STORE_FULL, "full", subject="store")
            await asyncio.sleep(30)
            assert await stored(store) == 2

    virtual(work)
