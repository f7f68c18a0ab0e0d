"""Heartbeats: the monitor as a table, and the service on a stream that the test controls."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.scope import Scope
from runtime.common.errors import BackpressureError, UnavailableError
from runtime.common.ids import Incarnation
from runtime.gateways.job_master import Heartbeat
from runtime.heartbeat.core.monitor import (
    Effect,
    GiveUp,
    HeartbeatMonitor,
    HeartbeatTiming,
    SendHeartbeat,
    Tick,
)
from runtime.heartbeat.service import HeartbeatService
from runtime.rpc.service import StreamHello, StreamKind
from tests.kit.control_plane.virtual_time import run_virtual

TIMING = HeartbeatTiming(interval=2.0, timeout=10.0)


@dataclass(frozen=True)
class Observed:
    last_heard: float
    last_sent: float


@pytest.mark.parametrize(
    ("scheduled_at", "now", "heard", "sent", "expected"),
    [
        pytest.param(1.0, 1.0, 0.0, 0.0, [], id="nothing is due"),
        pytest.param(2.0, 2.0, 0.0, 0.0, [SendHeartbeat(1, 1)], id="silent for an interval"),
        pytest.param(2.0, 2.0, 0.0, 1.5, [], id="any message counts as a heartbeat"),
        pytest.param(9.9, 9.9, 0.0, 9.0, [], id="just before the timeout"),
        pytest.param(10.0, 10.0, 0.0, 9.0, [GiveUp(1, 10.0)], id="peer silent for the timeout"),
        pytest.param(10.0, 12.0, 0.0, 11.0, [GiveUp(1, 12.0)], id="late by an interval: judged"),
        pytest.param(10.0, 12.1, 0.0, 11.0, [], id="R4: late by more than an interval: re-armed"),
        pytest.param(10.0, 60.0, 0.0, 0.0, [SendHeartbeat(1, 1)], id="R4: away for a minute: re-armed, then a sign"),
        pytest.param(20.0, 20.0, 15.0, 19.0, [], id="heard meanwhile"),
    ],
)
def test_judgement(scheduled_at: float, now: float, heard: float, sent: float, expected: list[Effect]) -> None:
    monitor = HeartbeatMonitor()
    monitor.add(1, TIMING, 0.0)
    assert monitor.handle(Tick(scheduled_at, now, {1: Observed(heard, sent)})) == expected
    assert len(monitor) == (0 if any(isinstance(effect, GiveUp) for effect in expected) else 1)


def test_a_lapsed_lease_re_arms_all_peers() -> None:
    monitor = HeartbeatMonitor()
    for peer in (1, 2):
        monitor.add(peer, TIMING, 0.0)
    monitor.rearm(9.0)
    silent = {1: Observed(0.0, 18.5), 2: Observed(0.0, 18.5)}
    assert monitor.handle(Tick(18.9, 18.9, silent)) == []
    assert monitor.handle(Tick(19.0, 19.0, silent)) == [GiveUp(1, 10.0), GiveUp(2, 10.0)]


def test_a_new_peer_has_the_whole_timeout_and_sequences_rise() -> None:
    monitor = HeartbeatMonitor()
    monitor.add(1, TIMING, 100.0)
    assert monitor.next_at({1: Observed(0.0, 0.0)}) == 102.0
    assert monitor.handle(Tick(102.0, 102.0, {1: Observed(0.0, 0.0)})) == [SendHeartbeat(1, 1)]
    assert monitor.next_at({1: Observed(0.0, 102.0)}) == 104.0
    assert monitor.handle(Tick(104.0, 104.0, {1: Observed(0.0, 102.0)})) == [SendHeartbeat(1, 2)]
    assert monitor.next_at({1: Observed(0.0, 109.0)}) == 110.0
    monitor.remove(1)
    assert monitor.next_at({}) == math.inf
    assert monitor.handle(Tick(200.0, 200.0, {1: Observed(0.0, 0.0)})) == []


def test_unconditional_ones_are_sent_beside_other_messages() -> None:
    monitor = HeartbeatMonitor()
    monitor.add(1, HeartbeatTiming(2.0, 10.0, is_unconditional=True), 0.0)
    assert monitor.handle(Tick(2.0, 2.0, {1: Observed(2.0, 1.9)})) == [SendHeartbeat(1, 1)]


class FakeStream:
    """A stream whose peer is as silent as the test wants."""

    def __init__(self) -> None:
        self.hello = StreamHello(StreamKind.TASK_MANAGER_TO_JOB_MASTER, Incarnation("2" * 32), "", 1, None, "")
        self.last_heard = self.last_sent = 0.0
        self.sent: list[Any] = []
        self.refusal: Exception | None = None
        self.aborted = asyncio.Event()
        self.reason = ""

    def send(self, message: Any, /) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.sent.append(message)
        self.last_sent = asyncio.get_running_loop().time()

    async def receive(self) -> Sequence[Any]:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    def abort(self, reason: str) -> None:
        self.reason = reason
        self.aborted.set()


@pytest.mark.asyncio
@pytest.mark.parametrize("refusal", [None, BackpressureError("full", retry_after=1), UnavailableError("over")])
async def test_service_sends_and_gives_up(refusal: Exception | None) -> None:
    stream, service = FakeStream(), HeartbeatService(LoopClock())
    stream.refusal = refusal
    async with Scope("test") as scope:
        scope.spawn_eternal("heartbeat", service.run())
        await asyncio.sleep(0)
        with service.keep_alive(stream, HeartbeatTiming(0.03, 0.15)):
            async with asyncio.timeout(100):
                await stream.aborted.wait()
        scope.cancel_all()
    assert "no sign of life" in stream.reason
    if refusal is None:
        assert 2 <= len(stream.sent) <= 5
        assert stream.sent[:2] == [Heartbeat(1), Heartbeat(2)]


@pytest.mark.asyncio
async def test_service_leaves_a_lively_peer_alone() -> None:
    stream, service, clock = FakeStream(), HeartbeatService(LoopClock()), LoopClock()
    async with Scope("test") as scope:
        scope.spawn_eternal("heartbeat", service.run())
        with service.keep_alive(stream, HeartbeatTiming(0.02, 0.1), make=lambda sequence: ("inventory", sequence)):
            while len(stream.sent) < 8:
                stream.last_heard = clock.monotonic()
                await asyncio.sleep(0.01)
        scope.cancel_all()
    assert not stream.aborted.is_set()
    assert stream.sent[0] == ("inventory", 1)


def test_nobody_is_judged_while_the_own_lease_has_lapsed() -> None:  # R4
    async def main() -> None:
        stream, service, loop = FakeStream(), HeartbeatService(LoopClock()), asyncio.get_running_loop()
        is_valid = False
        service.judge_while(lambda: is_valid)
        async with Scope("test") as scope:
            scope.spawn_eternal("heartbeat", service.run())
            with service.keep_alive(stream, TIMING):
                await asyncio.sleep(60)
                assert not stream.aborted.is_set()
                assert len(stream.sent) >= 25
                valid_at, is_valid = loop.time(), True
                await stream.aborted.wait()
                # The whole timeout, less the beat since the last look.
                assert TIMING.timeout - TIMING.interval <= loop.time() - valid_at <= TIMING.timeout
            scope.cancel_all()

    run_virtual(main())
