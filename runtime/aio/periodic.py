"""Driver of reconcilers: background work without input that makes reality match what is wanted.

A reconciler is idempotent and has no retry loop of its own. It runs one at a time, on a signal or when the period is
over; a signal during a run leads to one more run. An expected failure (FlinklikeError that is no bug) shows in the
status and is tried again after the period; anything else ends the driver.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from runtime.common.clock import Clock
from runtime.common.errors import BugError, FlinklikeError

logger = logging.getLogger(__name__)

StatusT = TypeVar("StatusT")


@dataclass(frozen=True, slots=True)
class ReconcilerStatus(Generic[StatusT]):
    """The outcome of the last run. `failure` is "" after a success."""

    runs: int
    failures: int
    failure: str
    last: StatusT | None
    last_duration: float


class Reconciler(Generic[StatusT]):
    """Runs `activate` whenever it is signalled, and every `period` seconds."""

    def __init__(self, name: str, activate: Callable[[], Awaitable[StatusT]], *, period: float, clock: Clock) -> None:
        self.name = name
        self._activate = activate
        self._period = period
        self._clock = clock
        self._signal = asyncio.Event()
        self.status: ReconcilerStatus[StatusT] = ReconcilerStatus(0, 0, "", None, 0.0)

    def signal(self) -> None:
        """There may be something to do: run soon. Signals before a run has begun are one."""
        self._signal.set()

    async def run(self) -> None:
        """Drive until cancelled. Eternal: spawn it with `spawn_eternal`."""
        while True:
            self._signal.clear()
            await self._run_once()
            timer = asyncio.get_running_loop().call_later(self._period, self._signal.set)
            try:
                await self._signal.wait()
            finally:
                timer.cancel()

    async def _run_once(self) -> None:
        before, started = self.status, self._clock.monotonic()
        try:
            last = await self._activate()
        except BugError:
            raise
        except FlinklikeError as error:
            logger.warning("%s failed, next try in %.1f s: %s", self.name, self._period, error)
            took = self._clock.monotonic() - started
            failure = f"{type(error).__name__}: {error}"
            self.status = ReconcilerStatus(before.runs + 1, before.failures + 1, failure, before.last, took)
        else:
            took = self._clock.monotonic() - started
            self.status = ReconcilerStatus(before.runs + 1, before.failures, "", last, took)
