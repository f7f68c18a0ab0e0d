"""Driver of reconcilers: background work without input that makes reality match what is wanted.

A reconciler is idempotent and has no retry loop of its own. It runs one at a time, on a signal or when the period is
over; a signal during a run leads to one more run. An expected failure (FlinklikeError that is no bug) is logged, and
tried again after the period; anything else ends the driver.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from runtime.common.errors import BugError, FlinklikeError

logger = logging.getLogger(__name__)


class Reconciler:
    """Runs `activate` whenever it is signalled, and every `period` seconds."""

    def __init__(self, name: str, activate: Callable[[], Awaitable[object]], *, period: float) -> None:
        self.name = name
        self._activate = activate
        self._period = period
        self._signal = asyncio.Event()

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
        try:
            await self._activate()
        except BugError:
            raise
        except FlinklikeError as error:
            logger.warning("%s failed, next try in %.1f s: %s", self.name, self._period, error)
