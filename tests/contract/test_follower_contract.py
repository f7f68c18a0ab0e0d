"""Followers over every store (R34): what a watch does not tell is found all the same, soon and for good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy, SystemEntropy
from runtime.highavailability.etcd.store import EtcdKeyValueStore
from runtime.highavailability.kv import follower
from runtime.highavailability.kv.follower import follow
from runtime.highavailability.kv.key_value_store import (
    Delete,
    KeyValue,
    KeyValueStore,
    Op,
    PrefixState,
    Put,
    RangeResult,
    Txn,
    WatchBatch,
)
from tests.kit.etcd.faulty_kv import FaultyKeyValueStore
from tests.kit.etcd.server import EtcdProcess, StoreUnderTest

pytestmark = pytest.mark.asyncio

TIMEOUT = 5.0
PATIENCE = 10.0


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.2)


async def write(kv: KeyValueStore, *ops: Op) -> int:
    return (await kv.txn(Txn((), ops), timeout=TIMEOUT)).revision


class Follower:
    """What it was told last."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self._changed = asyncio.Event()

    async def run(self, kv: KeyValueStore, prefix: str) -> None:
        told: AsyncIterator[Mapping[str, KeyValue]] = follow(kv, prefix, timeout=TIMEOUT, entropy=SeededEntropy(1))
        async for current in told:
            self.seen.append(sorted(f"{key.removeprefix(prefix)}={kv.value.decode()}" for key, kv in current.items()))
            self._changed.set()

    async def until(self, *wanted: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not self.seen or self.seen[-1] != list(wanted):
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def following(kv: KeyValueStore, prefix: str) -> AsyncGenerator[Follower, None]:
    made = Follower()
    running = asyncio.create_task(made.run(kv, prefix))
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_a_change_that_the_watch_does_not_tell_is_found(store: StoreUnderTest) -> None:
    """One that is lost: a new key, another value, a deletion, and one deleted while another one came."""
    kv, prefix = FaultyKeyValueStore(store.kv), store.keys.root
    async with following(kv, prefix) as told:
        await told.until()
        for ops, wanted in (
            ((Put(f"{prefix}a", b"1"),), ["a=1"]),
            ((Put(f"{prefix}a", b"2"),), ["a=2"]),
            ((Delete(f"{prefix}a"),), []),
            ((Put(f"{prefix}a", b"3"), Put(f"{prefix}b", b"3")), ["a=3", "b=3"]),
            ((Delete(f"{prefix}b"), Put(f"{prefix}c", b"4")), ["a=3", "c=4"]),
        ):
            kv.changes_lost = 1
            await write(kv, *ops)
            await told.until(*wanted)
            assert not kv.changes_lost


async def test_changes_that_make_up_for_each_other_are_found_behind_one_that_is_told(store: StoreUnderTest) -> None:
    """As many keys as there are, and the youngest of them, and yet others."""
    kv, prefix = FaultyKeyValueStore(store.kv), store.keys.root
    await write(kv, Put(f"{prefix}a", b"1"))
    async with following(kv, prefix) as told:
        await told.until("a=1")
        kv.changes_lost = 1
        await write(kv, Delete(f"{prefix}a"), Put(f"{prefix}b", b"2"))
        await write(kv, Put(f"{prefix}c", b"3"))
        await told.until("b=2", "c=3")


async def test_what_is_known_is_not_told_again(store: StoreUnderTest) -> None:
    kv, prefix = Looked(store.kv), store.keys.root
    await write(kv, Put(f"{prefix}a", b"1"))
    async with following(kv, prefix) as told:
        await told.until("a=1")
        await kv.looks.wait_for(3)
        assert told.seen == [["a=1"]]
        assert kv.lists == 1, "a look is no list"


async def test_a_follower_of_what_never_changes_survives_compaction(store: StoreUnderTest) -> None:
    kv, prefix = Looked(store.kv), store.keys.root
    await write(kv, Put(f"{prefix}a", b"1"))
    async with following(kv, prefix) as told:
        await told.until("a=1")
        for number in range(3):
            revision = await write(kv, Put(f"{prefix[:-1]}-elsewhere", str(number).encode()))
            await kv.looks.wait_for(kv.looks.count + 2)
            await kv.compact(revision, timeout=TIMEOUT)
            await kv.looks.wait_for(kv.looks.count + 2)
        assert kv.lists == 1, "what it knows is never older than its last look"
        await write(kv, Put(f"{prefix}a", b"2"))
        await told.until("a=2")


class Count:
    """How often."""

    def __init__(self) -> None:
        self.count = 0
        self._more = asyncio.Event()

    def one_more(self) -> None:
        self.count += 1
        self._more.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.count < count:
                self._more.clear()
                await self._more.wait()


class Looked(FaultyKeyValueStore):
    """Counts what a follower asks."""

    def __init__(self, kv: KeyValueStore) -> None:
        super().__init__(kv)
        self.looks = Count()
        self.lists = 0

    async def prefix_state(self, prefix: str, /, *, timeout: float) -> PrefixState:
        found = await super().prefix_state(prefix, timeout=timeout)
        self.looks.one_more()
        return found

    async def range(self, key: str, /, **options: Any) -> RangeResult:
        self.lists += 1
        return await super().range(key, **options)


@pytest.mark.etcd
async def test_a_watch_of_etcd_that_was_interrupted_says_so(own_etcd: EtcdProcess) -> None:
    kv = EtcdKeyValueStore(own_etcd.settings(), LoopClock(), SystemEntropy())
    await kv.open(timeout=TIMEOUT)
    try:
        async with aclosing(kv.watch("/a", start_revision=2)) as watch:
            written = await write(kv, Put("/a", b"1"))
            assert (await anext(watch)).revision == written
            own_etcd.kill()
            own_etcd.start()
            async with asyncio.timeout(100):
                assert await anext(watch) == WatchBatch(written, ())
    finally:
        await kv.close()


async def test_the_state_of_a_prefix(store: StoreUnderTest) -> None:
    kv, prefix = store.kv, store.keys.root
    empty = await kv.prefix_state(prefix, timeout=TIMEOUT)
    assert (empty.count, empty.mod_revision) == (0, 0)
    await write(kv, Put(f"{prefix}a", b"1"))
    second = await write(kv, Put(f"{prefix}b", b"1"))
    last = await write(kv, Put(f"{prefix}a", b"2"))
    assert await kv.prefix_state(prefix, timeout=TIMEOUT) == PrefixState(last, 2, last)
    gone = await write(kv, Delete(f"{prefix}a"))
    assert await kv.prefix_state(prefix, timeout=TIMEOUT) == PrefixState(gone, 1, second)
