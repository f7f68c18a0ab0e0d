"""Ends the streaming queries of a TaskManager that is emptied, each between two batches, so that they go on elsewhere.

A query never ends by itself, so a drain would only wait for it, and then end it within a batch. The JVM ends it as it
does for a stop (`jvm/HeldQueries.java`), under a hold of this TaskManager's own: the batch that runs is committed, none
follows, and then the attempt is released. A query that an owner holds for a stop is left to that stop (R61).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.common.errors import FlinklikeError
from runtime.common.ids import ExecutionAttemptId
from runtime.taskexecutor.core.events import Released
from runtime.taskexecutor.slots.stream_queries import StreamQueries

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1


class MovingQueries:
    """Those of one TaskManager. `is_held`: whether an owner holds a query for a stop. `running`: how many attempts run.

    `queries`: None where nothing runs queries.
    """

    def __init__(
        self,
        queries: StreamQueries | None,
        scope: ServiceScope,
        post: Callable[[Released], None],
        is_held: Callable[[ExecutionAttemptId], bool],
        running: Watch[int],
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self._queries = queries
        self._scope = scope
        self._post = post
        self._is_held = is_held
        self._running = running
        self._flush = flush
        self._begun = 0
        self._hold = ""
        self._asked: set[ExecutionAttemptId] = set()
        self._released: set[ExecutionAttemptId] = set()

    def begin(self, why: str) -> None:
        """End what runs, and what begins yet. Does nothing while that goes on already."""
        if self._queries is None or self._hold:
            return
        self._begun += 1
        self._hold = f"drain-{self._begun}"
        self._scope.spawn(f"move queries, {self._hold}", self._move(self._queries, self._hold, why))

    def take_back(self) -> None:
        """What has not ended yet goes on here."""
        hold, self._hold = self._hold, ""
        for attempt_id in self._asked - self._released:
            if self._queries is not None:
                self._queries.release(attempt_id, hold, finishes=False)
        self._asked.clear()
        self._released.clear()

    def is_moving(self, attempt_id: ExecutionAttemptId) -> bool:
        """True for an attempt whose query ends here, or has: no owner holds it any more."""
        return attempt_id in self._asked

    async def _move(self, queries: StreamQueries, hold: str, why: str) -> None:
        await self._flush()
        while self._hold == hold and self._running.value > 0:
            for attempt_id in queries.endless():
                if self._hold != hold:
                    return
                if attempt_id not in self._released and not self._is_held(attempt_id):
                    await self._end(queries, attempt_id, hold, why)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _end(self, queries: StreamQueries, attempt_id: ExecutionAttemptId, hold: str, why: str) -> None:
        self._asked.add(attempt_id)
        try:
            is_held, behind = await queries.end_between_batches(attempt_id, hold)
        except (FlinklikeError, ValueError) as error:  # it may have ended, or its Spark: its report says so
            logger.info("the query of %s cannot be ended between two batches now: %s", attempt_id, error)
            return
        finally:
            if self._hold != hold:  # taken back meanwhile: a look that came behind that word holds the query again
                queries.release(attempt_id, hold, finishes=False)
        if is_held and self._hold == hold:
            self._released.add(attempt_id)
            logger.info("%s: the query of %s has ended%s, and is released", why, attempt_id, behind)
            self._post(Released(f"{why}: its query has ended{behind}, and goes on elsewhere", attempt_id))
