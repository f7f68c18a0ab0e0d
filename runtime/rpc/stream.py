"""FrameStream: one end of a stream, the same for every transport.

Sending side: `send` encodes and queues a message; the transport takes frames with `next_frame`, one at a time, and each
frame holds all messages that were queued while the previous one was written (no timer).
Receiving side: the transport passes frames to `deliver`, which waits while the receiver is far behind: a slow receiver
slows down only its peer.

A stream ends once, with a reason. Messages that have arrived before can still be received, unless this end has ended
the stream, or a newer stream has replaced it (R11).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from runtime.common.clock import Clock
from runtime.common.errors import BackpressureError, BugError, MessageTooLargeError, UnavailableError
from runtime.rpc import codec
from runtime.rpc.frames import decode_frame, encode_frame
from runtime.rpc.service import MessageStream, StreamHello
from runtime.rpc.settings import RpcLimits


class FrameStream:
    """Implements `MessageStream`; the transport drives it with next_frame, deliver and end."""

    def __init__(self, hello: StreamHello, limits: RpcLimits, clock: Clock) -> None:
        self.hello = hello
        self._limits = limits
        self._clock = clock
        self._types: deque[int] = deque()
        self._bodies: deque[bytes] = deque()
        self._outbox_size = 0
        self._inbox: list[Any] = []
        self._inbox_size = 0
        self._is_held_up = False
        self._writer: asyncio.Future[None] | None = None
        self._receiver: asyncio.Future[None] | None = None
        self._room = asyncio.Event()
        self._ended = asyncio.Event()
        self._end_reason = ""
        self._is_closing = False
        self._on_end: Callable[[], None] | None = None
        self._heard_at = clock.monotonic()
        self.last_sent = self._heard_at
        self.frames_sent = 0
        self.is_closed_cleanly = False

    def __repr__(self) -> str:
        state = self._end_reason or ("closing" if self._is_closing else "open")
        return f"<stream {self.name}: {state}>"

    @property
    def name(self) -> str:
        """The stream's name in logs and errors."""
        return f"{self.hello.kind.name} #{self.hello.number} of {self.hello.dialer}"

    @property
    def last_heard(self) -> float:
        """When data last arrived; now while the peer waits for this end's receiver."""
        return self._clock.monotonic() if self._is_held_up else self._heard_at

    # --- the component's side ---------------------------------------------------------------------------------

    def send(self, message: Any, /) -> None:
        """Queue a message; see `MessageStream.send`."""
        if self._is_closing or self._end_reason:
            text = f"stream {self.name} has ended: {self._end_reason or 'closed'}"
            raise UnavailableError(text)
        tag, body = codec.encode_tagged(message)
        limits, size = self._limits, len(body)
        if size > limits.message_size_max:
            text = (
                f"a {type(message).__name__} of {size} bytes is above the limit of "
                f"{limits.message_size_max} bytes per message (rpc.max-message-size)"
            )
            raise MessageTooLargeError(text)
        if len(self._bodies) >= limits.outbox_messages_max or self._outbox_size + size > limits.outbox_size_max:
            text = f"stream {self.name}: {len(self._bodies)} messages ({self._outbox_size} bytes) wait to be sent"
            raise BackpressureError(text, retry_after=1.0)
        self._types.append(tag)
        self._bodies.append(body)
        self._outbox_size += size
        self.last_sent = self._clock.monotonic()
        _wake(self._writer)

    async def receive(self) -> Sequence[Any]:
        """All messages that have arrived; see `MessageStream.receive`."""
        while not self._inbox:
            if self._end_reason:
                text = f"stream {self.name} has ended: {self._end_reason}"
                raise UnavailableError(text)
            if self._receiver is not None:
                text = f"stream {self.name} has two receivers"
                raise BugError(text)
            self._receiver = asyncio.get_running_loop().create_future()
            try:
                await self._receiver
            finally:
                self._receiver = None
        messages, self._inbox, self._inbox_size = self._inbox, [], 0
        self._room.set()
        return messages

    async def close(self) -> None:
        """Flush, then end; see `MessageStream.close`."""
        self.begin_close()
        try:
            async with asyncio.timeout(self._limits.close_timeout):
                await self._ended.wait()
        except TimeoutError:
            pass
        finally:
            self.abort("closed")

    def abort(self, reason: str) -> None:
        """End at once; see `MessageStream.abort`."""
        self._inbox.clear()
        self._inbox_size = 0
        self.end(reason)

    # --- the transport's side -----------------------------------------------------------------------------------

    @property
    def is_ended(self) -> bool:
        """True once the stream has ended for any reason."""
        return bool(self._end_reason)

    @property
    def outbox(self) -> tuple[int, int]:
        """How many messages wait to be sent, and their bytes."""
        return len(self._bodies), self._outbox_size

    @property
    def inbox(self) -> tuple[int, int]:
        """How many messages have arrived and wait to be received, and the bytes of their frames."""
        return len(self._inbox), self._inbox_size

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when the stream ends, so that the transport ends its call."""
        self._on_end = callback
        if self._end_reason:
            callback()

    def begin_close(self) -> None:
        """Take no more messages; `next_frame` answers None once all are written."""
        self._is_closing = True
        _wake(self._writer)

    async def next_frame(self) -> bytes | None:
        """The next frame, as soon as there is one; None when the stream is closed and all is written."""
        while not self._bodies:
            if self._is_closing or self._end_reason:
                return None
            assert self._writer is None, f"{self.name} has two writers"
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        self.frames_sent += 1
        count = self._frame_length()
        types = [self._types.popleft() for _ in range(count)]
        bodies = [self._bodies.popleft() for _ in range(count)]
        self._outbox_size -= sum(map(len, bodies))
        return encode_frame(types, bodies)

    def _frame_length(self) -> int:
        limits, waiting = self._limits, len(self._bodies)
        if waiting <= limits.frame_messages_max and self._outbox_size <= limits.frame_size_max:
            return waiting
        size = 0
        for count, body in enumerate(islice(self._bodies, limits.frame_messages_max)):
            size += len(body)
            if size > limits.frame_size_max:
                return max(count, 1)
        return min(waiting, limits.frame_messages_max)

    @property
    def has_room(self) -> bool:
        """True when `deliver` would return at once."""
        limits = self._limits
        is_behind = len(self._inbox) >= limits.inbox_messages_max or self._inbox_size >= limits.inbox_size_max
        return bool(self._end_reason) or not is_behind

    async def deliver(self, frame: bytes) -> None:
        """Take a frame. Waits while the receiver is far behind. Raises InvalidInputError for a malformed one."""
        self._heard_at = self._clock.monotonic()
        messages = decode_frame(frame)
        await self._wait_for_room()
        # Our own end drops what comes later; after the peer's end nothing comes.
        if self._end_reason:
            return
        self._inbox.extend(messages)
        self._inbox_size += len(frame)
        _wake(self._receiver)

    async def _wait_for_room(self) -> None:
        while not self.has_room:
            self._room.clear()
            self._is_held_up = True
            try:
                await self._room.wait()
            finally:
                self._is_held_up = False
                self._heard_at = self._clock.monotonic()

    def end(self, reason: str, *, is_clean: bool = False) -> None:
        """End the stream. Idempotent: the first reason counts. `is_clean`: no message was lost."""
        if self._end_reason:
            return
        self.is_closed_cleanly = is_clean
        self._end_reason = reason
        self._types.clear()
        self._bodies.clear()
        self._outbox_size = 0
        self._ended.set()
        self._room.set()
        _wake(self._receiver)
        _wake(self._writer)
        if self._on_end is not None:
            self._on_end()

    async def wait_ended(self) -> str:
        """Wait for the end of the stream, and return its reason."""
        await self._ended.wait()
        return self._end_reason


async def receive_introduction(stream: MessageStream, *, within: float) -> list[Any]:
    """The first messages of a dialer. When none come, aborts the stream and raises UnavailableError."""
    try:
        async with asyncio.timeout(within):
            return list(await stream.receive())
    except TimeoutError as error:
        text = f"the dialer has not introduced itself within {within:g} s"
        stream.abort(text)
        raise UnavailableError(text) from error


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
