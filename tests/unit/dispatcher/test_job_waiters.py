"""Long polls: which ones are woken, and how many may wait."""

from __future__ import annotations

import asyncio

import pytest

from runtime.common.errors import BackpressureError
from runtime.common.ids import JobId
from runtime.dispatcher.waiters import JobWaiters
from tests.kit.control_plane.plane import eventually

A, B, C = JobId("a" * 32), JobId("b" * 32), JobId("c" * 32)


@pytest.mark.asyncio
async def test_more_waits_than_there_is_room_for_are_refused() -> None:
    waiters = JobWaiters(count_max=6)
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
async def test_nobody_has_more_than_half_of_what_others_leave() -> None:
    waiters = JobWaiters(count_max=8)
    async with asyncio.TaskGroup() as group:
        for job in (A, B, C, A):
            group.create_task(waiters.wait([job], 30.0, principal="vic"))
        await eventually(lambda: waiters.count == 4)
        with pytest.raises(BackpressureError, match="you wait for 4 already, and 4 is your share"):
            await waiters.wait([A], 30.0, principal="vic")
        group.create_task(waiters.wait([A, B], 30.0, principal="admin"))
        await eventually(lambda: waiters.count == 6)
        with pytest.raises(BackpressureError):
            await waiters.wait([A], 30.0, principal="admin")
        group.create_task(waiters.wait([C], 30.0, principal="sam"))
        await eventually(lambda: waiters.count == 7)
        for job in (A, B, C):
            waiters.wake(job)
    assert (waiters.count, waiters._counts) == (0, {})


@pytest.mark.asyncio
async def test_who_replaces_its_own_poll_is_counted_once() -> None:
    """A client that waits for more jobs than a quarter of the room ends the earlier poll in the same step."""
    waiters = JobWaiters(count_max=8)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(waiters.wait([A, B, C], 30.0, "mine", principal="vic"))
        await eventually(lambda: waiters.count == 3)

        async def replace() -> frozenset[JobId]:
            waiters.end("mine")
            return await waiters.wait([A, B, C], 30.0, "mine", principal="vic")

        second = group.create_task(replace())
        assert await first == frozenset()
        assert waiters.count == 3
        with pytest.raises(BackpressureError, match="you wait for 3 already"):
            await waiters.wait([A, B], 30.0, principal="vic")
        waiters.wake(B)
        assert await second == frozenset({B})
    assert (waiters.count, waiters._counts, waiters._waiting) == (0, {}, {})


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
        waiters.end("unknown")
        waiters.end("mine")
        assert await second == frozenset()
        assert not other.done()
        waiters.wake(A)
    assert waiters._named == {}
