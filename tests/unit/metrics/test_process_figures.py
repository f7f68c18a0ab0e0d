"""Figures of a process: they are there, and right in magnitude."""

from __future__ import annotations

import asyncio
import contextlib
import resource

import pytest

from runtime.aio.clock import LoopClock, SystemClock
from runtime.metrics import table
from runtime.metrics.counted import CountedMetrics
from runtime.metrics.process_figures import ProcessFigures, watch_loop_lag


def test_figures_of_this_process() -> None:
    found = {sample.metric: sample.value for sample in ProcessFigures("local", SystemClock())()}
    assert found[table.RESIDENT_BYTES] > 10 << 20
    assert found[table.CPU_SECONDS] > 0
    assert 3 <= found[table.OPEN_FDS] <= found[table.MAX_FDS] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert found[table.THREADS] >= 1
    assert abs(found[table.START_TIME] - SystemClock().epoch_millis() / 1000) < 60


@pytest.mark.asyncio
async def test_a_loop_that_stands_still_is_seen() -> None:
    metrics = CountedMetrics(100)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        watching = group.create_task(watch_loop_lag(metrics, LoopClock(), period=0.01))
        await asyncio.sleep(0.005)
        end = SystemClock().monotonic() + 0.3
        while SystemClock().monotonic() < end:
            pass
        while not metrics.families() or metrics.families()[0].distributions[0].total < 0.2:
            await asyncio.sleep(0.01)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    (family,) = metrics.families()
    buckets = dict(family.distributions[0].buckets)
    assert buckets[float("inf")] > buckets[0.1]
