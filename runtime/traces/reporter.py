"""SpanReporter: what components tell their spans. Nothing waits for it (R55), and without a reporter it does nothing.

Invariant: what is told is made into spans, and sent, in a thread; at most QUEUED_MAX tellings wait, and what has no
place is counted and said in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from runtime.traces.span import Span

logger = logging.getLogger(__name__)

QUEUED_MAX = 2000
GATHER_SECONDS = 1.0
_BATCH_MAX = 200
_FLUSH_SECONDS = 3.0
_SAID_EVERY = 60.0

MakeSpans = Callable[[], Sequence[Span]]


class SpanReporter(Protocol):
    """Where spans go."""

    @property
    def is_on(self) -> bool:
        """False when nothing is reported: a component may leave out what it would do for it."""

    def tell(self, make: MakeSpans, /) -> None:
        """Have these spans made and reported soon. Never blocks. `make` is called in a thread."""


class NoSpans:
    """Implements `SpanReporter`: nothing is reported."""

    __slots__ = ()

    @property
    def is_on(self) -> bool:
        """Never."""
        return False

    def tell(self, _make: MakeSpans, /) -> None:
        """No effect."""


NO_SPANS: SpanReporter = NoSpans()


def _nobody(_number: int, /) -> None:
    """Nobody counts."""


class QueuedSpans:
    """Implements `SpanReporter` over `export`, which blocks, and returns whether the spans were taken.

    `count_lost` is told how many tellings are lost.
    """

    def __init__(self, export: Callable[[Sequence[Span]], bool], count_lost: Callable[[int], None] = _nobody) -> None:
        self._export = export
        self._count_lost = count_lost
        self._sending: asyncio.Future[bool] | None = None
        self._sent = 0
        """The tellings of the batch that a thread sends."""
        self._queue: deque[MakeSpans] = deque()
        self._wake = asyncio.Event()
        self._lost = 0
        self._said_at = -_SAID_EVERY

    @property
    def is_on(self) -> bool:
        """Always."""
        return True

    def tell(self, make: MakeSpans, /) -> None:
        """Of a full queue the oldest goes."""
        if len(self._queue) >= QUEUED_MAX:
            self._queue.popleft()
            self._lose(1)
        self._queue.append(make)
        self._wake.set()

    async def run(self) -> None:
        """Report until cancelled, and then what is left, within _FLUSH_SECONDS. Eternal."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await asyncio.sleep(GATHER_SECONDS)
                while self._queue:
                    await self._send()
        finally:
            await self._flush()

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                while self._sending is not None or self._queue:
                    await self._send()
        except TimeoutError:
            self._lose(len(self._queue) + (self._sent if self._sending is not None else 0))
        self._say(is_last=True)

    async def _send(self) -> None:
        """Send a batch. Who is cancelled meanwhile leaves it to the thread, and the next call waits for that one."""
        if self._sending is None:
            batch = list(islice(self._queue, _BATCH_MAX))
            for _ in batch:
                self._queue.popleft()
            self._sent = len(batch)
            self._sending = asyncio.get_running_loop().run_in_executor(None, self._send_now, batch)
        _ = await asyncio.wait({self._sending})
        if not self._sending.result():
            self._lose(self._sent)
        self._sending = None
        self._say()

    def _lose(self, number: int) -> None:
        self._lost += number
        self._count_lost(number)

    def _send_now(self, batch: Sequence[MakeSpans]) -> bool:
        try:
            return self._export([span for make in batch for span in make()])
        except Exception:  # the boundary of the reporter: a trace that cannot be told ends nothing
            logger.exception("spans could not be reported")
            return False

    def _say(self, *, is_last: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        if self._lost and (is_last or now - self._said_at >= _SAID_EVERY):
            logger.warning("the spans of %d jobs or submits could not be reported, and are lost", self._lost)
            self._lost, self._said_at = 0, now
