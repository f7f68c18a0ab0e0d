"""Serving one open stream: messages to a receiver, heartbeats when it is silent, an end when the peer is.

The receiver is awaited, so a peer cannot fill memory: at most one batch of a stream is on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from runtime.aio.scope import Scope
from runtime.common.clock import Clock
from runtime.common.errors import BackpressureError, UnavailableError
from runtime.gateways.job_master import Heartbeat
from runtime.rpc.service import MessageStream

Receiver = Callable[[Sequence[Any]], Awaitable[None]]


def is_worth_logging(failures: int) -> bool:
    """Of failures that repeat, the 1st, 2nd, 3rd, 5th, 9th ... : enough to see that it goes on."""
    return failures & (failures - 1) == 0


async def serve_stream(
    stream: MessageStream, receiver: Receiver, *, clock: Clock, interval: float, timeout: float
) -> str:
    """Serve until the stream ends; the reason. The stream is closed when this returns or is cancelled."""
    try:
        async with Scope("stream") as scope:
            scope.spawn("heartbeat", keep_alive(stream, clock=clock, interval=interval, timeout=timeout))
            reason = await _receive(stream, receiver)
            scope.cancel_all()
    finally:
        stream.abort("no longer served")
    return reason


async def _receive(stream: MessageStream, receiver: Receiver) -> str:
    while True:
        try:
            messages = await stream.receive()
        except UnavailableError as error:
            return str(error)
        news = [message for message in messages if not isinstance(message, Heartbeat)]
        if news:
            await receiver(news)


async def keep_alive(stream: MessageStream, *, clock: Clock, interval: float, timeout: float) -> None:
    """Send heartbeats and end the stream when its peer has been silent for `timeout`."""
    sequence = 0
    armed_at = clock.monotonic()
    while True:
        before = clock.monotonic()
        await asyncio.sleep(interval)
        now = clock.monotonic()
        if now - before > 2 * interval:
            armed_at = now  # R4: our own loop ran late; the peer may have spoken all the time
        silent_for = now - max(stream.last_heard, armed_at)
        if silent_for > timeout:
            stream.abort(f"the peer has been silent for {silent_for:.1f} s")
            return
        sequence += 1
        try:
            stream.send(Heartbeat(sequence))
        except (UnavailableError, BackpressureError):
            continue  # it has ended, which the receiver sees; or it is busy, which is a sign of life of our side
