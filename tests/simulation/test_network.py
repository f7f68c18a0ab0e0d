"""The simulated network: order, loss, partitions, and what a death looks like from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import ConflictError
from tests.kit.simulation.network import (
    BREAK_LAG,
    KEEPALIVE,
    ConnectionLostError,
    Dial,
    Listener,
    Network,
    RefusedError,
    Reply,
    Weather,
    WireEnd,
)
from tests.kit.simulation.processes import SimulatedLoop, SimulatedProcess
from tests.kit.simulation.seeds import on_virtual_time


class Box:
    """Two hosts: `near` asks and dials, `far` echoes requests and takes wires."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.network = Network(loop, SeededEntropy(1))
        self.near, self.far = (SimulatedProcess(loop, name) for name in ("near", "far"))
        self.asked: list[object] = []
        self.items: list[tuple[str, object]] = []
        self.reasons: list[tuple[str, str]] = []
        self.far_end: WireEnd | None = None
        self.near_end: WireEnd | None = None
        self.network.listen("far", 1, Listener(self.far, self._on_request))

    def _on_request(self, payload: Any, reply: Reply) -> None:
        if isinstance(payload, Dial):
            self.far_end = self.network.accept(self.far, payload)
            self.far_end.listen(self._taker("far"))
            reply("welcome")
        else:
            self.asked.append(payload)
            reply(f"echo of {payload}")

    def _taker(self, name: str) -> Callable[[object, str], None]:
        def take(item: object, reason: str) -> None:
            self.items.append((name, item))
            if item is None:
                self.reasons.append((name, reason))

        return take

    async def ask(self, payload: Any, timeout: float = 1.0) -> object:
        async def within() -> object:
            return await self.network.request(self.near, "far:1", payload, timeout=timeout)

        task = self.near.start("ask", within())
        await asyncio.wait({task})
        return task.result()

    async def dial(self) -> None:
        async def open_wire() -> None:
            self.near_end, answer = await self.network.dial(
                self.near, "far:1", "hello", carries_tasks=False, timeout=60.0
            )
            assert answer == "welcome"
            self.near_end.listen(self._taker("near"))

        await asyncio.wait({self.near.start("dial", open_wire())})


def in_box(scenario: Callable[[Box], Awaitable[None]]) -> None:
    async def main(loop: SimulatedLoop) -> None:
        await scenario(Box(loop))

    on_virtual_time(main)


def test_a_request_and_its_answer_take_time() -> None:
    async def scenario(box: Box) -> None:
        before = box.loop.time()
        assert await box.ask("x") == "echo of x"
        assert 0.0004 <= box.loop.time() - before <= 0.004

    in_box(scenario)


@pytest.mark.parametrize(
    ("weather", "is_executed"), [(Weather(lost_before=1.0), False), (Weather(lost_after=1.0), True)]
)
def test_a_request_is_lost_before_or_after_it_is_executed(weather: Weather, *, is_executed: bool) -> None:
    async def scenario(box: Box) -> None:
        box.network.weather = weather
        with pytest.raises(TimeoutError):
            await box.ask("x")
        assert bool(box.asked) is is_executed

    in_box(scenario)


def test_a_request_may_be_executed_long_after_its_caller_has_given_up() -> None:
    async def scenario(box: Box) -> None:
        box.network.weather = Weather(slow=1.0, slow_max=30.0)
        with pytest.raises(TimeoutError):
            await box.ask("x", timeout=0.01)
        assert not box.asked
        await asyncio.sleep(31.0)
        assert box.asked == ["x"]

    in_box(scenario)


def test_a_deaf_process_refuses_for_a_while_and_what_it_had_accepted_breaks() -> None:
    async def scenario(box: Box) -> None:
        await box.dial()
        assert box.network.deafen("far:1")
        assert not box.network.deafen("far:1")
        with pytest.raises(RefusedError):
            await box.ask("x")
        assert [name for name, _ in box.reasons] == ["far", "near"]
        box.network.listen_again("far:1")
        assert await box.ask("x") == "echo of x"
        box.network.deafen("far:1")
        box.network.close("far:1")
        box.network.listen_again("far:1")
        with pytest.raises(RefusedError):
            await box.ask("x")

    in_box(scenario)


def test_only_what_may_be_repeated_is_duplicated() -> None:
    class Repeatable(str):
        is_repeatable = True
        __slots__ = ()

    async def scenario(box: Box) -> None:
        box.network.weather = Weather(duplicated=1.0)
        await box.ask(Repeatable("x"))
        await box.ask("y")
        await asyncio.sleep(1.0)
        assert sorted(map(str, box.asked)) == ["x", "x", "y"]

    in_box(scenario)


def test_nobody_listens() -> None:
    async def scenario(box: Box) -> None:
        box.network.close("far:1")
        with pytest.raises(RefusedError):
            await box.ask("x")

    in_box(scenario)


def test_a_port_is_taken_once_and_again_after_a_death() -> None:
    async def scenario(box: Box) -> None:
        successor = Listener(SimulatedProcess(box.loop, "far", 2), lambda _payload, reply: reply("successor"))
        with pytest.raises(ConflictError):
            box.network.listen("far", 1, successor)
        box.far.kill()
        box.network.process_died(box.far)
        box.network.listen("far", 1, successor)
        assert await box.ask("x") == "successor"

    in_box(scenario)


def test_a_death_is_seen_by_who_waits_for_an_answer_and_by_who_dials() -> None:
    async def scenario(box: Box) -> None:
        box.far.freeze()
        waiting = box.near.start("ask", box.network.request(box.near, "far:1", "x", timeout=60.0))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        box.far.kill()
        box.network.process_died(box.far)
        await asyncio.wait({waiting})
        assert isinstance(waiting.exception(), ConnectionLostError)
        with pytest.raises(RefusedError):
            await box.ask("y")

    in_box(scenario)


def test_items_of_a_wire_keep_their_order() -> None:
    async def scenario(box: Box) -> None:
        await box.dial()
        assert box.near_end is not None
        box.network.weather = Weather(slow=0.5, slow_max=1.0)
        for number in range(16):
            box.near_end.send(number)
        box.near_end.end()
        await asyncio.sleep(5.0)
        assert box.items == [*(("far", number) for number in range(16)), ("far", None)]

    in_box(scenario)


def test_a_partition_holds_one_direction_up_and_loses_nothing_of_a_wire() -> None:
    async def scenario(box: Box) -> None:
        await box.dial()
        assert box.near_end is not None
        assert box.far_end is not None
        box.near_end.send("under way")
        box.network.block("near", "far")
        box.near_end.send("there")
        box.far_end.send("back")
        await asyncio.sleep(5.0)
        assert box.items == [("near", "back")]
        box.network.heal("near", "far")
        await asyncio.sleep(1.0)
        assert box.items == [("near", "back"), ("far", "under way"), ("far", "there")]

    in_box(scenario)


def test_a_long_partition_ends_a_wire_at_both_ends() -> None:
    async def scenario(box: Box) -> None:
        await box.dial()
        box.network.block("near", "far")
        await asyncio.sleep(KEEPALIVE + 1.0)
        assert sorted(box.reasons) == [("far", "keepalive timeout"), ("near", "keepalive timeout")]

    in_box(scenario)


def test_a_death_resets_the_wire_at_the_other_end() -> None:
    async def scenario(box: Box) -> None:
        await box.dial()
        box.far.kill()
        box.network.process_died(box.far)
        await asyncio.sleep(1.0)
        assert box.reasons == [("near", "connection reset by peer")]

    in_box(scenario)


def test_a_wire_breaks_for_both_ends() -> None:
    async def scenario(box: Box) -> None:
        await box.dial()
        assert box.near_end is not None
        box.network.weather = Weather(broken_wire=1.0)
        box.network.weather.delay_low = box.network.weather.delay_high = 0.1
        box.near_end.send("lost")
        await asyncio.sleep(0.05)
        assert [name for name, _ in box.reasons] == ["near"]
        await asyncio.sleep(BREAK_LAG + 1.0)
        assert [name for name, _ in box.reasons] == ["near", "far"]
        assert ("far", "lost") not in box.items

    in_box(scenario)


def test_what_was_sent_before_a_wire_breaks_arrives() -> None:
    async def scenario(box: Box) -> None:
        await box.dial()
        assert box.near_end is not None
        box.near_end.send("sent")
        box.network.weather = Weather(broken_wire=1.0)
        box.near_end.send("lost")
        await asyncio.sleep(BREAK_LAG + 1.0)
        assert [item for name, item in box.items if name == "far"] == ["sent", None]

    in_box(scenario)


def test_what_is_under_way_is_bounded() -> None:
    async def scenario(box: Box) -> None:
        await box.dial()
        assert box.near_end is not None
        box.network.block("near", "far")
        sent = 0
        while box.near_end.has_room:
            box.near_end.send(sent)
            sent += 1
        assert sent < 100

    in_box(scenario)
