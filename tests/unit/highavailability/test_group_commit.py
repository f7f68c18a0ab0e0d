"""Group commit: independent transactions are sent together, dependent ones are not, and none waits to fill a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.errors import (
    FlinklikeError,
    InvalidInputError,
    OutcomeUnknownError,
    UnavailableError,
)
from runtime.highavailability.kv.conditions import absent
from runtime.highavailability.kv.group_commit import Footprint, GroupCommitStore
from runtime.highavailability.kv.key_value_store import TXN_OPS_MAX, Delete, Get, Put, Txn, TxnResult
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from tests.kit.control_plane.virtual_time import run_virtual
from tests.kit.etcd.faulty_kv import Fault, FaultyKeyValueStore

TIMEOUT = 5.0


class SlowStore(FaultyKeyValueStore):
    """Each transaction takes a second, so that a queue forms."""

    def __init__(self) -> None:
        super().__init__(MemoryKeyValueStore(LoopClock()))
        self.is_stuck = False

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        await asyncio.sleep(timeout if self.is_stuck else 1.0)
        return await super().txn(txn, timeout=timeout)


def create(key: str, value: bytes = b"") -> Txn:
    return Txn((absent(key),), (Put(key, value),), (Get(key),))


async def outcomes(kv: GroupCommitStore, txns: Sequence[Txn], *, timeout: float = TIMEOUT) -> list[object]:
    """All at once; results and errors in order."""

    async def outcome(txn: Txn) -> object:
        try:
            return (await kv.txn(txn, timeout=timeout)).succeeded
        except FlinklikeError as error:
            return type(error)

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(outcome(txn)) for txn in txns]
    return [task.result() for task in running]


async def opened() -> tuple[SlowStore, GroupCommitStore]:
    slow = SlowStore()
    kv = GroupCommitStore(slow)
    await kv.open()
    return slow, kv


def test_one_alone_is_sent_as_it_is() -> None:
    async def main() -> None:
        slow, kv = await opened()
        await kv.txn(create("/a"), timeout=TIMEOUT)
        await kv.txn(create("/b"), timeout=TIMEOUT)
        assert slow.sent == [create("/a"), create("/b")]
        await kv.close()

    run_virtual(main())


def test_what_queues_up_goes_together_with_its_own_guards() -> None:
    async def main() -> None:
        slow, kv = await opened()
        await kv.txn(create("/taken"), timeout=TIMEOUT)
        slow.sent.clear()
        txns = [create("/first"), *(create(f"/{index}") for index in range(20)), create("/taken")]
        assert await outcomes(kv, txns) == [True] * 21 + [False]
        assert len(slow.sent) == 2
        assert (kv.transactions, kv.commits) == (23, 3)
        await kv.close()

    run_virtual(main())


def test_500_assignments_after_a_loss_are_few_transactions() -> None:
    async def main() -> None:
        slow, kv = await opened()
        txns = [create(f"/{index}") for index in range(500)]
        assert await outcomes(kv, txns, timeout=60) == [True] * 500
        assert len(slow.sent) <= 6
        assert max(len(txn.success) for txn in slow.sent) < TXN_OPS_MAX
        await kv.close()

    run_virtual(main())


def test_dependent_transactions_wait_for_each_other_in_order() -> None:
    async def main() -> None:
        _, kv = await opened()
        txns = [create("/first"), create("/x", b"1"), create("/x", b"2"), Txn((), (Delete("/x"),)), create("/x", b"3")]
        assert await outcomes(kv, txns, timeout=60) == [True, True, False, True, True]
        stored = await kv.range("/x", is_prefix=False, timeout=TIMEOUT)
        assert stored.kvs[0].value == b"3"
        await kv.close()

    run_virtual(main())


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [
        (create("/a"), create("/b"), False),
        (create("/a"), create("/a"), True),
        (Txn((absent("/l"),), (Put("/a", b""),)), Txn((absent("/l"),), (Put("/b", b""),)), False),
        (Txn((), (Put("/a", b""),)), Txn((absent("/a"),), ()), True),
        (Txn((), (Delete("/j/", is_prefix=True),)), create("/j/1"), True),
        (Txn((), (Delete("/j/1/", is_prefix=True),)), create("/j/10/x"), False),
        (Txn((), (Delete("/j/1/", is_prefix=True),)), Txn((), (Get("/j/", is_prefix=True),)), True),
        (Txn((), (Get("/j/", is_prefix=True),)), create("/j/1"), True),
        (Txn((), (Txn((), (Put("/a", b""),)),)), Txn((), (), (Get("/a"),)), True),
        (Txn((), (Get("/a"),)), Txn((), (Get("/a"),)), False),
    ],
)
def test_footprints(first: Txn, second: Txn, *, conflict: bool) -> None:
    assert Footprint.of(first).conflicts_with(Footprint.of(second)) is conflict
    assert Footprint.of(second).conflicts_with(Footprint.of(first)) is conflict


def test_an_unknown_outcome_is_everybodys() -> None:
    async def main() -> None:
        slow, kv = await opened()
        slow.faults.extend([Fault.NONE, Fault.APPLIED_THEN_LOST])
        answers = await outcomes(kv, [create("/a"), create("/b"), create("/c")])
        assert answers == [True, OutcomeUnknownError, OutcomeUnknownError]
        assert await outcomes(kv, [create("/b"), create("/c")]) == [False, False]
        await kv.close()

    run_virtual(main())


def test_a_wrong_transaction_is_the_only_one_that_fails() -> None:
    async def main() -> None:
        _, kv = await opened()
        wrong = Txn((), (Put("/x", b""), Put("/x", b"")))
        txns = [create("/a"), create("/b"), wrong, create("/c")]
        assert await outcomes(kv, txns, timeout=60) == [True, True, InvalidInputError, True]
        large = [create("/d"), create("/e", bytes(2_000_000)), create("/f")]
        assert await outcomes(kv, large, timeout=60) == [True, InvalidInputError, True]
        await kv.close()

    run_virtual(main())


def test_who_waited_until_his_deadline_was_surely_not_executed() -> None:
    async def main() -> None:
        slow, kv = await opened()
        slow.is_stuck = True
        slow.faults.append(Fault.LOST_BEFORE)
        assert await outcomes(kv, [create("/a"), create("/b")]) == [OutcomeUnknownError, UnavailableError]
        assert len(slow.sent) == 1
        await kv.close()

    run_virtual(main())


def test_who_gives_up_is_not_sent() -> None:
    async def main() -> None:
        slow, kv = await opened()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kv.txn(create("/a"), timeout=TIMEOUT))
            await asyncio.sleep(0.1)
            gone = tasks.create_task(kv.txn(create("/b"), timeout=TIMEOUT))
            tasks.create_task(kv.txn(create("/c"), timeout=TIMEOUT))
            await asyncio.sleep(0.1)
            gone.cancel()
        assert slow.sent == [create("/a"), create("/c")]
        await kv.close()

    run_virtual(main())


def test_a_closed_store_refuses_who_waits() -> None:
    async def main() -> None:
        _, kv = await opened()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(outcomes(kv, [create("/a"), create("/b")]))
            await asyncio.sleep(0.1)
            await kv.stop()
        assert waiting.result()[1] is UnavailableError

    run_virtual(main())


def test_each_caller_hears_by_its_own_deadline() -> None:
    async def main() -> None:
        _, kv = await opened()
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def outcome(key: str, timeout: float) -> list[Any]:
            (answer,) = await outcomes(kv, [create(key)], timeout=timeout)
            return [answer, loop.time() - began]

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(outcome("/busy", TIMEOUT))
            await asyncio.sleep(0)
            queued = tasks.create_task(outcome("/queued", 0.2))
            sent = tasks.create_task(outcome("/sent", 1.5))
            with_it = tasks.create_task(outcome("/with-it", TIMEOUT))
        # The first one's write takes a second: one caller gave up before his own was sent, one while it was on its way.
        assert queued.result() == [UnavailableError, pytest.approx(0.2)]
        assert sent.result() == [OutcomeUnknownError, pytest.approx(1.5)]
        assert with_it.result() == [True, pytest.approx(2.0)]
        await kv.close()

    run_virtual(main())


def test_a_stop_leaves_what_is_on_its_way_unknown() -> None:
    async def main() -> None:
        slow, kv = await opened()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kv.txn(create("/alone"), timeout=TIMEOUT))
            await asyncio.sleep(0)
            on_its_way = tasks.create_task(outcomes(kv, [create("/a"), create("/b")]))
            await asyncio.sleep(1.5)
            waits = tasks.create_task(outcomes(kv, [create("/c")]))
            await asyncio.sleep(0.1)
            await kv.stop()
        assert on_its_way.result() == [OutcomeUnknownError, OutcomeUnknownError]
        assert waits.result() == [UnavailableError]
        assert slow.sent == [create("/alone")]

    run_virtual(main())


def test_a_store_that_fails_by_a_mistake_is_told_to_the_process() -> None:
    class BrokenStore(SlowStore):
        async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
            if len(txn.success) > 1:
                raise KeyError
            return await super().txn(txn, timeout=timeout)

    async def main() -> None:
        kv = GroupCommitStore(BrokenStore())
        await kv.open()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(kv.txn(create("/alone"), timeout=TIMEOUT))
            await asyncio.sleep(0)
            together = tasks.create_task(outcomes(kv, [create("/a"), create("/b")]))
            with pytest.RaisesGroup(KeyError):
                await kv.wait_failed()
        assert together.result() == [OutcomeUnknownError, OutcomeUnknownError]
        with pytest.RaisesGroup(KeyError):
            await kv.stop()

    run_virtual(main())
