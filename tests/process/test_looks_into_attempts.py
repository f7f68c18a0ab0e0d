"""The stacks of a running attempt, as its flame graph counts them: no cost before, and nothing of another attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from runtime.common.errors import NotFoundError, UnavailableError
from runtime.common.states import ExecutionState
from tests.kit.spark.slot_work import SlotBench, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots"), slots=2) as started:
        yield started


def burn(ctx: Any) -> None:
    def of_mine() -> None:
        sum(range(20_000))

    while not ctx.cancelled:
        of_mine()


async def test_stacks_of_a_running_attempt_are_counted(bench: SlotBench) -> None:
    work = bench.work(burn)
    attempt_id = work.task.attempt_id
    _, task = await bench.started(work)
    first = await bench.pool.views.stacks(attempt_id, 10)
    while not any("of_mine" in one.frames[-1] for one in first.stacks):  # it has just begun
        await asyncio.sleep(2.1)
        first = await bench.pool.views.stacks(attempt_id, 10)
    (seen,) = [one for one in first.stacks if "of_mine" in one.frames[-1] and one.is_on_cpu][:1]
    assert seen.frames[-2].startswith("burn (")
    assert "/runtime/taskexecutor/" not in seen.frames[0]
    assert await bench.pool.views.stacks(attempt_id, 10) is first, "whoever asks at once gets the same"
    stranger = replace(attempt_id, counter=attempt_id.counter + 1)
    with pytest.raises(NotFoundError):
        await bench.pool.views.stacks(stranger, 10)
    other = bench.work(burn)
    _, beside = await bench.started(other, slot=1)
    await asyncio.sleep(2.1)
    async with asyncio.TaskGroup() as group:
        again = group.create_task(bench.pool.views.stacks(attempt_id, 5))
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="another attempt"):
            await bench.pool.views.stacks(other.task.attempt_id, 5)
    assert sum(one.count for one in again.result().stacks) >= 5
    await bench.pool.cancel(1, other.task.attempt_id)
    await bench.pool.cancel(0, attempt_id)
    await task
    await beside
    with pytest.raises(NotFoundError):
        await bench.pool.views.stacks(attempt_id, 1)


async def test_an_attempt_ends_as_ever_while_it_is_looked_at(bench: SlotBench) -> None:
    work = bench.work(burn)
    listener, task = await bench.started(work)
    async with asyncio.TaskGroup() as group:
        looking = group.create_task(bench.pool.views.stacks(work.task.attempt_id, 100))
        await asyncio.sleep(0.3)
        await bench.pool.cancel(0, work.task.attempt_id)
    await task
    assert listener.terminal.state is ExecutionState.CANCELED
    assert looking.result().end_millis > 0
