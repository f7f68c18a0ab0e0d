"""Serving one open stream: messages to a receiver, heartbeats when it is silent, an end when the peer is.

The receiver is awaited, so a peer cannot fill memory: at most one batch of a stream is on its way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from runtime.common.errors import UnavailableError
from runtime.gateways.job_master import Heartbeat
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.heartbeat.service import HeartbeatService
from runtime.rpc.service import MessageStream

Receiver = Callable[[Sequence[Any]], Awaitable[None]]


async def serve_stream(
    stream: MessageStream, receiver: Receiver, heartbeats: HeartbeatService, timing: HeartbeatTiming
) -> str:
    """Serve until the stream ends; the reason. The stream is over when this returns or is cancelled."""
    try:
        with heartbeats.keep_alive(stream, timing):
            return await _receive(stream, receiver)
    finally:
        stream.abort("no longer served")


async def _receive(stream: MessageStream, receiver: Receiver) -> str:
    while True:
        try:
            messages = await stream.receive()
        except UnavailableError as error:
            return str(error)
        news = [message for message in messages if not isinstance(message, Heartbeat)]
        if news:
            await receiver(news)
