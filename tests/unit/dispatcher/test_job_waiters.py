"""Long polls: who is woken, and how many may wait."""

from __future__ import annotations

import asyncio

import pytest

from runtime.common.errors import BackpressureError
from runtime.common.ids import JobId
from runtime.dispatcher.waiters import JobWaiters
from tests.kit.control_plane import eventually

A, B, C = JobId("a" * 32), JobId("b" * 32), JobId("c" * 32)


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
    assert await waiters.wait([A, B], 0.001) == frozenset()


@pytest.mark.asyncio
async def test_everybody_hears_which_of_its_jobs_have_changed() -> None:
    waiters = JobWaiters()
    async with asyncio.TaskGroup() as group:
        both = group.create_task(waiters.wait([A, B, C], 30.0))
        one = group.create_task(waiters.wait([B], 30.0))
        other = group.create_task(waiters.wait([C], 0.01))
        await eventually(lambda: waiters.count == 5)
        waiters.wake(A)
        waiters.wake(B)
    assert [sorted(poll.result()) for poll in (both, one, other)] == [[A, B], [B], []]
    assert waiters.count == 0
    assert waiters._waiting == {}


@pytest.mark.asyncio
async def test_a_poll_ends_an_earlier_one_of_its_name_only() -> None:
    waiters = JobWaiters()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(waiters.wait([A], 30.0, "mine"))
        other = group.create_task(waiters.wait([A], 30.0, "yours"))
        await eventually(lambda: waiters.count == 2)
        waiters.end("mine")
        second = group.create_task(waiters.wait([A, B], 30.0, "mine"))
        assert await first == frozenset()
        await eventually(lambda: waiters.count == 3)
        waiters.end("nobody's")
        waiters.end("mine")
        assert await second == frozenset()
        assert not other.done()
        waiters.wake(A)
    assert waiters._named == {}
