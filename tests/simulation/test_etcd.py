"""The simulated etcd: what the network and restarts add to the state machine, which has its contract tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import OutcomeUnknownError, StorageExhaustedError, UnavailableError
from runtime.highavailability.kv.key_value_store import CompactedError, Delete, Put, Txn, WatchBatch
from tests.kit.simulation.etcd import HOST, EtcdServer, EtcdState, SimulatedKeyValueStore
from tests.kit.simulation.etcd_trouble import LATE_SECONDS, MEMBERS
from tests.kit.simulation.history import Applied, Expired, History
from tests.kit.simulation.network import Network, Weather
from tests.kit.simulation.processes import SimulatedLoop, SimulatedProcess
from tests.kit.simulation.seeds import on_virtual_time


class Box:
    """etcd and one client."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.history = History()
        self.network = Network(loop, SeededEntropy(1))
        self.state = EtcdState(loop, self.history)
        self.client = SimulatedProcess(loop, "client")
        self.etcd = SimulatedProcess(loop, HOST)
        self.start_etcd()
        self.kv = self.client.context.copy().run(SimulatedKeyValueStore, self.network, SeededEntropy(2))

    def start_etcd(self) -> None:
        self.etcd = SimulatedProcess(self.loop, HOST)
        self.etcd.post(EtcdServer, self.network, self.state, self.etcd)

    def stop_etcd(self) -> None:
        self.etcd.kill()
        self.network.process_died(self.etcd)

    async def do(self, work: Awaitable[Any]) -> Any:
        async def run() -> Any:
            return await work

        task = self.client.start("work", run())
        await asyncio.wait({task})
        return task.result()

    async def put(self, key: str, lease: int = 0) -> None:
        await self.do(self.kv.txn(Txn((), (Put(key, b"x", lease),)), timeout=3.0))

    def all_members(self, until: dict[int, float], seconds: float) -> None:
        for member in range(MEMBERS):
            until[member] = self.loop.time() + seconds

    async def names(self) -> list[str]:
        found = await self.do(self.kv.range("", is_prefix=True, timeout=3.0))
        return [kv.key for kv in found.kvs]

    async def batches(self, prefix: str, start_revision: int, seen: list[WatchBatch]) -> None:
        watch: AsyncGenerator[WatchBatch, None] = self.kv.watch(prefix, start_revision=start_revision)
        while True:
            seen.append(await anext(watch))


def in_box(scenario: Callable[[Box], Awaitable[None]]) -> None:
    async def main(loop: SimulatedLoop) -> None:
        box = Box(loop)
        await asyncio.sleep(0.01)
        await scenario(box)

    on_virtual_time(main)


def test_a_transaction_whose_answer_is_lost_has_an_unknown_outcome_and_is_applied() -> None:
    async def scenario(box: Box) -> None:
        box.network.weather = Weather(lost_after=1.0)
        with pytest.raises(OutcomeUnknownError):
            await box.put("a")
        box.network.weather = Weather()
        assert await box.names() == ["a"]

    in_box(scenario)


def test_a_transaction_may_be_applied_after_its_timeout() -> None:
    async def scenario(box: Box) -> None:
        box.etcd.freeze()
        with pytest.raises(OutcomeUnknownError):
            await box.put("a")
        box.etcd.thaw()
        await asyncio.sleep(0.1)
        assert await box.names() == ["a"]

    in_box(scenario)


def test_without_etcd_a_transaction_is_surely_not_executed() -> None:
    async def scenario(box: Box) -> None:
        box.stop_etcd()
        with pytest.raises(UnavailableError):
            await box.put("a")
        box.start_etcd()
        await asyncio.sleep(0.01)
        assert await box.names() == []

    in_box(scenario)


def test_a_lease_ends_with_its_keys_on_virtual_time() -> None:
    async def scenario(box: Box) -> None:
        lease = await box.do(box.kv.grant_lease(5, timeout=3.0))
        await box.put("a", lease)
        await asyncio.sleep(4.0)
        assert await box.do(box.kv.keep_lease_alive(lease, timeout=3.0)) == 5
        await asyncio.sleep(4.0)
        assert await box.names() == ["a"]
        await asyncio.sleep(2.0)
        assert await box.names() == []
        assert await box.do(box.kv.keep_lease_alive(lease, timeout=3.0)) == 0
        kinds = [type(record.what) for record in box.history.records]
        assert kinds == [Applied, Expired]

    in_box(scenario)


def test_a_restarted_etcd_keeps_its_data_and_gives_every_lease_its_full_time() -> None:
    async def scenario(box: Box) -> None:
        lease = await box.do(box.kv.grant_lease(5, timeout=3.0))
        await box.put("a", lease)
        await asyncio.sleep(4.0)
        box.stop_etcd()
        await asyncio.sleep(60.0)
        box.start_etcd()
        await asyncio.sleep(4.0)
        assert await box.names() == ["a"]
        await asyncio.sleep(2.0)
        assert await box.names() == []

    in_box(scenario)


def test_a_frozen_etcd_ends_what_has_run_out_when_it_wakes() -> None:
    async def scenario(box: Box) -> None:
        lease = await box.do(box.kv.grant_lease(5, timeout=3.0))
        await box.put("a", lease)
        box.etcd.freeze()
        await asyncio.sleep(6.0)
        box.etcd.thaw()
        assert await box.names() == []

    in_box(scenario)


def test_a_watch_misses_nothing_over_a_restart() -> None:
    async def scenario(box: Box) -> None:
        seen: list[WatchBatch] = []
        _ = box.client.start("watch", box.batches("a", 2, seen))
        await box.put("a1")
        await box.put("b1")
        box.stop_etcd()
        await asyncio.sleep(5.0)
        box.start_etcd()
        await asyncio.sleep(0.01)
        await box.put("a2")
        await asyncio.sleep(2.0)
        assert [event.kv.key for batch in seen for event in batch.events] == ["a1", "a2"]

    in_box(scenario)


def test_a_watch_of_what_is_compacted_says_so() -> None:
    async def scenario(box: Box) -> None:
        for name in ("a1", "a2", "a3"):
            await box.put(name)
        await box.do(box.kv.compact(box.state.store.revision, timeout=3.0))
        with pytest.raises(CompactedError):
            await box.do(box.batches("a", 2, []))

    in_box(scenario)


def test_renewals_of_leases_can_be_spared_from_bad_weather() -> None:
    async def scenario(box: Box) -> None:
        lease = await box.do(box.kv.grant_lease(5, timeout=3.0))
        box.network.weather = Weather(lost_before=1.0)
        assert await box.do(box.kv.keep_lease_alive(lease, timeout=3.0)) == 5
        box.network.weather = Weather(lost_before=1.0, spares_leases=False)
        with pytest.raises(UnavailableError):
            await box.do(box.kv.keep_lease_alive(lease, timeout=3.0))

    in_box(scenario)


def test_a_full_store_executes_some_of_what_it_refuses_and_then_nothing() -> None:
    async def scenario(box: Box) -> None:
        box.state.trouble.fill(1)
        for key in ("a", "b"):
            with pytest.raises(StorageExhaustedError):
                await box.put(key)
        with pytest.raises(StorageExhaustedError):
            await box.do(box.kv.txn(Txn((), (Delete("a"),)), timeout=3.0))
        with pytest.raises(StorageExhaustedError):
            await box.do(box.kv.grant_lease(5, timeout=3.0))
        assert await box.names() == ["a"]
        box.state.trouble.make_room()
        await box.put("b")
        assert await box.names() == ["a", "b"]

    in_box(scenario)


def test_a_late_request_is_executed_and_never_answered() -> None:
    async def scenario(box: Box) -> None:
        box.state.trouble.requests_late = 1.0
        with pytest.raises(OutcomeUnknownError):
            await box.put("a")
        box.state.trouble.heal()
        await asyncio.sleep(LATE_SECONDS)
        assert await box.names() == ["a"]

    in_box(scenario)


def test_a_member_that_is_behind_commits_at_once_and_answers_when_it_has_caught_up() -> None:
    async def scenario(box: Box) -> None:
        seen: list[WatchBatch] = []
        _ = box.client.start("watch", box.batches("a", 2, seen))
        await asyncio.sleep(0.1)
        box.all_members(box.state.trouble.behind_until, 2.0)
        began = box.loop.time()
        putting = box.client.start("put", box.kv.txn(Txn((), (Put("a", b"x"),)), timeout=3.0))
        await asyncio.sleep(0.1)
        assert box.state.store.revision == 2
        assert not seen
        await asyncio.wait({putting})
        assert box.loop.time() - began >= 1.9
        await asyncio.sleep(0.1)
        assert [batch.revision for batch in seen] == [2]

    in_box(scenario)


def test_a_member_that_is_cut_off_executes_when_it_is_back() -> None:
    async def scenario(box: Box) -> None:
        box.all_members(box.state.trouble.cut_off_until, 5.0)
        with pytest.raises(OutcomeUnknownError):
            await box.put("a")
        assert box.state.store.revision == 1
        with pytest.raises(UnavailableError):
            await box.do(box.kv.range("", is_prefix=True, timeout=1.0))
        await asyncio.sleep(2.0)
        assert await box.names() == ["a"]

    in_box(scenario)


def test_a_watch_may_lose_a_change_and_go_on() -> None:
    async def scenario(box: Box) -> None:
        seen: list[WatchBatch] = []
        _ = box.client.start("watch", box.batches("a", 2, seen))
        await asyncio.sleep(0.1)
        box.state.trouble.changes_lost = 1.0
        await box.put("a1")
        await asyncio.sleep(0.1)
        box.state.trouble.heal()
        await box.put("a2")
        await asyncio.sleep(0.1)
        assert [event.kv.key for batch in seen for event in batch.events] == ["a2"]

    in_box(scenario)
