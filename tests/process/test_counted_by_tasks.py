"""What tasks count in a real slot process: in their reports, live, and never for another attempt (R57)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from runtime.common.states import ExecutionState
from runtime.gateways.task import TaskExecutionReport
from tests.kit.spark.slot_work import SlotBench, script, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots")) as started:
        yield started


def counts(report: TaskExecutionReport) -> dict[str, int]:
    return {one.name: one.count for one in report.accumulators}


def count(ctx: Any) -> None:
    ctx.counter("rows").add(3)
    ctx.gauge("accuracy").set(0.5)
    ctx.histogram("seconds").record(1.5)
    ctx.counter("rows").add(4)


def count_nothing(ctx: Any) -> None:
    ctx.logger.info("nothing")


def count_and_fail(ctx: Any) -> None:
    ctx.counter("rows").add(5)
    raise ValueError("boom")


def count_badly(ctx: Any) -> None:
    ctx.counter("rows").add(-1)


def count_until_cancelled(ctx: Any) -> None:
    while not ctx.cancelled:
        ctx.counter("loops").add()


async def test_a_report_has_what_its_attempt_has_counted_and_no_other(bench: SlotBench) -> None:
    first = await bench.run(count)
    assert counts(first) == {"rows": 7, "accuracy": 1, "seconds": 1}
    assert counts(await bench.run(count_nothing)) == {}
    assert counts(await bench.run(count)) == {"rows": 7, "accuracy": 1, "seconds": 1}


async def test_scripts_count_without_a_ctx(bench: SlotBench) -> None:
    text = """
import threading
from airflow_flinklike import task_counter, task_gauge
thread = threading.Thread(target=lambda: task_counter("rows").add(2))
thread.start()
task_gauge("share").set(0.25)
"""
    report = await bench.run(bench.work(script(text)))
    assert report.state is ExecutionState.FINISHED, report.failure
    assert counts(report) == {"rows": 2, "share": 1}


async def test_a_failed_attempt_says_how_far_it_came(bench: SlotBench) -> None:
    report = await bench.run(count_and_fail)
    assert report.state is ExecutionState.FAILED
    assert counts(report) == {"rows": 5}


async def test_what_cannot_be_counted_is_the_fault_of_the_code(bench: SlotBench) -> None:
    report = await bench.run(count_badly)
    assert report.failure is not None
    assert report.failure.kind == "USER"
    assert "only whole numbers from 0 on" in report.failure.message


async def test_live_values_come_while_they_change_and_not_in_a_flood(bench: SlotBench) -> None:
    work = bench.work(count_until_cancelled)
    listener, task = await bench.started(work)
    told = await listener.progresses.wait_until(lambda all_: len(all_) >= 2)
    await bench.pool.cancel(0, work.task.attempt_id)
    await task
    first, second = (one.accumulators[0].count for one in told[:2])
    assert 0 < first < second


async def test_a_short_task_sends_nothing_more(bench: SlotBench) -> None:
    listener, task = await bench.started(bench.work(count))
    await task
    assert listener.progresses.value == ()
