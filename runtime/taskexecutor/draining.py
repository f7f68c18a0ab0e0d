"""Empties a TaskManager: asked for by a person, who may take it back, or by the end of its process, which is for good.

Invariant: whatever happens, nothing runs here any more soon after the time for draining is over; what is ended then is
reported with no fault, so that its owner runs it elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from runtime.aio.watch import Watch
from runtime.taskexecutor.core.events import DrainChanged, Released
from runtime.taskexecutor.moving_queries import MovingQueries

logger = logging.getLogger(__name__)

_RELEASE_PATIENCE = 3.0
"""How long the end of released attempts is waited for: longer than they are asked to stop before they are killed."""

_ASKED = "somebody has asked to drain this TaskManager"
_STOPPING = "this TaskManager is being stopped"


class Draining:
    """Drains one TaskManager. `running`: how many attempts run; `kept`: how many reports are not acknowledged.

    `queries`: streaming queries, which do not end by themselves.
    """

    def __init__(
        self,
        timeout: float,
        running: Watch[int],
        kept: Watch[int],
        post: Callable[[DrainChanged | Released], None],
        flush: Callable[[], Awaitable[None]],
        queries: MovingQueries,
    ) -> None:
        self._timeout = timeout
        self._running = running
        self._kept = kept
        self._post = post
        self._flush = flush
        self._queries = queries
        self._timer: asyncio.TimerHandle | None = None
        self._is_final = False

    def ask(self, *, is_draining: bool) -> None:
        """A person wants this TaskManager emptied, or used again."""
        if self._is_final:
            logger.warning("a drain or undrain was asked for, and ignored: %s", _STOPPING)
            return
        self._stop_timer()
        self._post(DrainChanged(_ASKED if is_draining else ""))
        if is_draining:
            timer = asyncio.get_running_loop().call_later(self._timeout, self._release, _ASKED, self._timeout)
            self._timer = timer
            self._queries.begin(_ASKED)
        else:
            self._queries.take_back()

    async def finish(self, timeout: float, *, report_patience: float) -> None:
        """Empty it for good: wait for what ends within `timeout`, release the rest, and let owners take the reports.

        The rest of `timeout`, at least `report_patience`, is for the reports: what has finished runs again without.
        """
        reports_until = asyncio.get_running_loop().time() + timeout
        self._is_final = True
        self._stop_timer()
        self._post(DrainChanged(_STOPPING))
        self._queries.begin(_STOPPING)
        await self._flush()
        if not await _reaches_zero(self._running, timeout):
            self._release(_STOPPING, timeout)
            if not await _reaches_zero(self._running, _RELEASE_PATIENCE):
                logger.warning("%d attempts have not ended yet", self._running.value)
        rest = reports_until - asyncio.get_running_loop().time()
        if not await _reaches_zero(self._kept, max(report_patience, rest)):
            logger.warning("%d reports have not been taken by the owners of their jobs", self._kept.value)

    def close(self) -> None:
        """Nothing happens by itself any more."""
        self._stop_timer()

    def _release(self, why: str, timeout: float) -> None:
        logger.info("%d attempts still run after %g s of draining: they are released", self._running.value, timeout)
        option = " (taskmanager.drain-timeout)" if timeout == self._timeout else ""
        self._post(Released(f"{why}, and the task did not end within {timeout:g} s{option}"))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def _reaches_zero(count: Watch[int], timeout: float) -> bool:
    try:
        async with asyncio.timeout(timeout):
            await count.wait_until(lambda value: value == 0)
    except TimeoutError:
        return False
    return True
