"""R54: records of programs, whose number is bounded by the transaction that stores them, not by a look before it."""

from __future__ import annotations

import asyncio

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.errors import BugError, ConflictError, OutcomeUnknownError
from runtime.highavailability.jars import JarStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Put, RangeResult, Txn, TxnResult
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.records import JarRecord

pytestmark = pytest.mark.asyncio
KEYS = Keys.of_cluster("test")


def record(number: int, name: str = "a.py") -> JarRecord:
    return JarRecord(f"{number:032x}_{name}", name, f"{'0' * 64}-{'1' * 32}", 1, 1, "default", "", (name,))


class Store(MemoryKeyValueStore):
    """The answer of the first transaction is lost, when the test says so. Counts what is read."""

    loses_answers = False
    read = 0

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        await asyncio.sleep(0)  # as with etcd, others come in between
        assert all(op.value.endswith(b"}") for op in txn.success if isinstance(op, Put)), "only records can be sealed"
        result = await super().txn(txn, timeout=timeout)
        if self.loses_answers:
            self.loses_answers = False
            raise OutcomeUnknownError("the connection broke")
        return result

    async def range(self, key: str, /, *, is_prefix: bool, timeout: float, **more: object) -> RangeResult:
        found = await super().range(key, is_prefix=is_prefix, timeout=timeout, **more)  # type: ignore[arg-type]
        self.read += len(found.kvs)
        return found


def stores(kv: Store, number: int = 1) -> list[JarStore]:
    return [JarStore(kv, KEYS, SystemEntropy(), timeout=5) for _ in range(number)]


async def test_no_two_uploads_take_the_last_place() -> None:
    """Of any processes: one may take itself for the leader that is none any more."""
    kv = Store(LoopClock())
    first, second = stores(kv, 2)
    adding = [asyncio.create_task(first.add(record(n), jars_max=5)) for n in range(5)]
    adding += [asyncio.create_task(second.add(record(n), jars_max=5)) for n in range(10, 15)]
    await asyncio.wait(adding)
    refused = [one.exception() for one in adding if one.exception() is not None]
    assert len(refused) == 5
    assert all(isinstance(one, ConflictError) and "the limit is 5" in str(one) for one in refused)
    assert len(await first.all()) == 5
    await first.delete((await first.all())[0].jar_id)
    await second.add(record(20), jars_max=5)
    with pytest.raises(ConflictError, match="delete those that nobody runs"):
        await second.check_room(5)
    await kv.close()


async def test_no_record_is_read_to_count_them() -> None:
    kv = Store(LoopClock())
    (jars,) = stores(kv)
    for number in range(20):
        await jars.add(record(number), jars_max=100)
    kv.read = 0
    await jars.check_room(100)
    await jars.add(record(99), jars_max=100)
    assert kv.read <= 1
    await kv.close()


async def test_an_upload_whose_answer_is_lost_is_stored_once() -> None:
    kv = Store(LoopClock())
    (jars,) = stores(kv)
    kv.loses_answers = True
    await jars.add(record(1), jars_max=1)
    assert [one.jar_id for one in await jars.all()] == [record(1).jar_id]
    await kv.close()


async def test_two_records_of_one_id_are_a_bug() -> None:
    kv = Store(LoopClock())
    (jars,) = stores(kv)
    await jars.add(record(1), jars_max=9)
    with pytest.raises(BugError, match="two uploads have the id"):
        await jars.add(JarRecord(record(1).jar_id, "b.py", "k", 1, 1, "default", "", ()), jars_max=9)
    await kv.close()
