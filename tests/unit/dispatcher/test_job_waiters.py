"""Long polls: who is woken, and how many may wait."""

from __future__ import annotations

import asyncio

import pytest

from runtime.common.errors import BackpressureError
from runtime.common.ids import JobId
from runtime.dispatcher.waiters import JobWaiters
from tests.kit.control_plane import eventually

A, B = JobId("a" * 32), JobId("b" * 32)


@pytest.mark.asyncio
async def test_more_waits_than_there_is_room_for_are_refused() -> None:
    waiters = JobWaiters(count_max=3)
    async with asyncio.TaskGroup() as group:
        group.create_task(waiters.wait([A, B], 30.0))
        await eventually(lambda: waiters.count == 2)
        with pytest.raises(BackpressureError):
            await waiters.wait([A, B], 30.0)
        group.create_task(waiters.wait([A], 30.0))
        await eventually(lambda: waiters.count == 3)
        waiters.wake(A)
    assert waiters.count == 0
    await waiters.wait([A, B], 0.001)
