"""Ends streaming queries between two batches for an owner that gives its job another parallelism (R68).

The owner's cancel waits here until the JVM has ended the queries of the attempt, so that what they do in a batch is not
done twice. It does not wait longer than a drain would, nor for queries of which nothing is known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from runtime.aio.scope import ServiceScope
from runtime.common.errors import FlinklikeError
from runtime.common.ids import ExecutionAttemptId
from runtime.gateways.job_master import CancelTasks
from runtime.taskexecutor.slots.stream_queries import StreamQueries

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05


class EndingQueries:
    """Those of one TaskManager. `runs`: whether an attempt runs and nobody has cancelled it.

    `queries`: None where nothing runs queries.
    """

    def __init__(
        self,
        queries: StreamQueries | None,
        scope: ServiceScope,
        timeout: float,
        runs: Callable[[ExecutionAttemptId], bool],
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self._queries = queries
        self._scope = scope
        self._timeout = timeout
        self._runs = runs
        self._flush = flush
        self._begun = 0
        self._ending: dict[ExecutionAttemptId, Callable[[], None]] = {}
        """Those whose queries end, each with the cancel of the owner that has ordered it last."""

    def is_ending(self, attempt_id: ExecutionAttemptId) -> bool:
        """True for an attempt whose queries end here, or have."""
        return attempt_id in self._ending

    def defer(self, order: CancelTasks, cancel: Callable[[CancelTasks], None]) -> None:
        """Cancel each of these attempts, once its queries have ended."""
        for attempt_id in order.attempts:
            one = replace(order, attempts=(attempt_id,), ends_batches=False)
            if self._queries is None or not self._runs(attempt_id):
                cancel(one)
                continue
            is_new = attempt_id not in self._ending
            self._ending[attempt_id] = partial(cancel, one)
            if is_new:
                self._begun += 1
                work = self._end(self._queries, attempt_id, f"rescale-{self._begun}")
                self._scope.spawn(f"end the queries of {attempt_id}", work)

    async def _end(self, queries: StreamQueries, attempt_id: ExecutionAttemptId, hold: str) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._held(queries, attempt_id, hold)
        except TimeoutError:
            logger.warning("the queries of %s have not ended their batches within %g s", attempt_id, self._timeout)
        except (FlinklikeError, ValueError) as error:  # it may have ended, or its Spark: its report says so
            logger.info("the queries of %s cannot be ended between two batches now: %s", attempt_id, error)
        self._ending[attempt_id]()
        await self._flush()
        if self._runs(attempt_id):  # another owner has the job meanwhile, whose cancel that is not
            queries.release(attempt_id, hold, finishes=False)
        del self._ending[attempt_id]

    async def _held(self, queries: StreamQueries, attempt_id: ExecutionAttemptId, hold: str) -> None:
        while self._runs(attempt_id):
            is_held, behind = await queries.end_between_batches(attempt_id, hold)
            if is_held:
                logger.info("the queries of %s have ended%s, as their job is rescaled", attempt_id, behind)
                return
            await asyncio.sleep(_LOOK_SECONDS)
