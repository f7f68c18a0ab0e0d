"""R68: the order to end queries between two batches is that of whoever owns the job when they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from runtime.common.ids import ExecutionAttemptId, JobId, VertexId
from runtime.gateways.job_master import CancelTasks
from runtime.taskexecutor.ending_queries import EndingQueries

JOB = JobId("1" * 32)
ATTEMPT = ExecutionAttemptId(JOB, VertexId("2" * 32), 0, 5, 0)


class Queries:
    """Of one attempt."""

    def __init__(self) -> None:
        self.have_ended = False
        self.released = 0

    async def end_between_batches(self, attempt_id: ExecutionAttemptId, hold: str) -> tuple[bool, str]:
        assert attempt_id == ATTEMPT
        assert hold
        return self.have_ended, ""

    def release(self, attempt_id: ExecutionAttemptId, hold: str, *, finishes: bool) -> None:
        assert attempt_id == ATTEMPT
        assert hold
        assert not finishes
        self.released += 1


class TaskManager:
    """What is beside the queries: orders of an older epoch than the latest are refused."""

    def __init__(self) -> None:
        self.queries = Queries()
        self.epoch = 5
        self.cancelled_by: list[int] = []
        self._work: list[asyncio.Task[None]] = []
        self.ending = EndingQueries(cast("Any", self.queries), cast("Any", self), 30.0, self._runs, self._flush)

    def _runs(self, attempt_id: ExecutionAttemptId) -> bool:
        assert attempt_id == ATTEMPT
        return not self.cancelled_by

    async def _flush(self) -> None:
        await asyncio.sleep(0)

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._work.append(asyncio.create_task(work, name=name))

    def ordered(self, epoch: int) -> None:
        self.epoch = epoch
        self.ending.defer(CancelTasks(JOB, epoch, (ATTEMPT,), ends_batches=True), self._cancel)

    def _cancel(self, order: CancelTasks) -> None:
        assert not order.ends_batches
        if order.epoch >= self.epoch:
            self.cancelled_by.append(order.epoch)

    async def ended(self) -> None:
        self.queries.have_ended = True
        for task in self._work:
            await task


@pytest.mark.parametrize("orders", [(5,), (5, 6), (5, 5), (5, 6, 7)])
@pytest.mark.asyncio
async def test_the_last_owner_that_has_ordered_it_cancels(orders: tuple[int, ...]) -> None:
    there = TaskManager()
    for epoch in orders:
        there.ordered(epoch)
        await asyncio.sleep(0)
    await there.ended()
    assert there.cancelled_by == [orders[-1]]
    assert there.queries.released == 0


@pytest.mark.asyncio
async def test_for_an_owner_that_has_not_ordered_it_they_go_on() -> None:
    there = TaskManager()
    there.ordered(5)
    await asyncio.sleep(0)
    there.epoch = 6
    await there.ended()
    assert there.cancelled_by == []
    assert there.queries.released == 1
    assert not there.ending.is_ending(ATTEMPT)
