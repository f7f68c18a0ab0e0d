"""Splits on demand in a slot process: what code gets, and what is refused in words (R12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState
from runtime.gateways.task import PartitionKind, ResultPartitionSpec, TaskExecutionReport
from runtime.jobgraph.graph import OperatorKind
from runtime.jobgraph.splits import NO_SPLIT
from runtime.taskexecutor.slots.work import SlotWork
from tests.kit.spark.slot_work import RecordingListener, SlotBench, operator, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]

SPLITS = ["a", {"b": 1}, ["c"]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots"), slots=2) as started:
        yield started


class Owner(RecordingListener):
    """Hands out these splits, one for each request, then none; None: no answer."""

    def __init__(self, bench: SlotBench, splits: list[int] | None) -> None:
        super().__init__()
        self._bench = bench
        self._splits = splits

    def split_wanted(self, attempt_id: ExecutionAttemptId, sequence: int) -> None:
        super().split_wanted(attempt_id, sequence)
        if self._splits is not None:
            self._bench.pool.give_split(attempt_id, self._splits.pop(0) if self._splits else NO_SPLIT)


def source(
    bench: SlotBench, function: Callable[..., Any], *more: Callable[..., Any], is_read: bool = False
) -> SlotWork:
    chain = [operator(function, "read", OperatorKind.SOURCE)]
    chain += [operator(one, f"map {place}", OperatorKind.MAP) for place, one in enumerate(more)]
    outputs = (ResultPartitionSpec(0, ExchangeMode.GATHER, (), 1, 1 << 16),) if is_read else ()
    made = bench.work(*chain, splits=SPLITS, outputs=outputs)
    return replace(made, task=replace(made.task, task=replace(made.task.task, splits_on_demand=True)))


async def run(bench: SlotBench, work: SlotWork, *splits: int) -> tuple[TaskExecutionReport, Owner]:
    owner = Owner(bench, [*splits])
    await bench.pool.run(0, work, owner)
    return owner.reports[-1], owner


async def why_failed(bench: SlotBench, function: Callable[..., Any], *splits: int) -> str:
    report, _ = await run(bench, source(bench, function), *splits)
    assert report.state is ExecutionState.FAILED
    assert report.failure is not None
    assert report.failure.kind == "USER"
    return report.failure.message


def read_all(ctx: Any) -> Any:
    return [*ctx.next_splits()]


def yield_each(ctx: Any) -> Any:
    for split in ctx.next_splits():
        yield [split]


async def test_code_gets_the_splits_that_the_owner_names_in_its_order(bench: SlotBench) -> None:
    report, owner = await run(bench, source(bench, read_all), 2, 0)
    assert json.loads(report.value) == [["c"], "a"]
    assert owner.splits_wanted.value == (0, 1, 2), "each request says how many there were"


async def test_values_that_are_yielded_are_the_list_of_the_task(bench: SlotBench) -> None:
    report, _ = await run(bench, source(bench, yield_each), 1)
    assert json.loads(report.value) == [[{"b": 1}]]


async def test_what_is_chained_gets_the_values(bench: SlotBench) -> None:
    report, _ = await run(bench, source(bench, read_all, lambda ctx, read: len(read[0])), 2, 0)
    assert json.loads(report.value) == 2


async def test_a_task_that_yields_nothing_says_so(bench: SlotBench) -> None:
    report, _ = await run(bench, source(bench, yield_each, is_read=True))
    assert [one.kind for one in report.partitions] == [PartitionKind.NOTHING]
    report, _ = await run(bench, source(bench, read_all, is_read=True))
    assert [(one.kind, one.inline) for one in report.partitions] == [(PartitionKind.JSON, b"[]")]


async def test_an_iterator_that_has_none_among_its_values_is_refused(bench: SlotBench) -> None:
    """It is no end: what comes behind it would be left out."""

    def without_one(ctx: Any) -> Any:
        return map({"a": 1, "c": 3}.get, [split if isinstance(split, str) else "b" for split in ctx.next_splits()])

    assert "yielded None" in await why_failed(bench, without_one, 0, 1, 0)


async def test_who_stops_before_none_is_left_has_failed(bench: SlotBench) -> None:
    def first_only(ctx: Any) -> Any:
        return next(ctx.next_splits())

    assert "ended while some may be left: read ctx.next_splits() to its end" in await why_failed(
        bench, first_only, 0, 1
    )
    assert "ended while some may be left" in await why_failed(bench, lambda ctx: 1)


async def test_shares_and_splits_on_demand_are_not_mixed(bench: SlotBench) -> None:
    assert "read ctx.next_splits()" in await why_failed(bench, lambda ctx: ctx.splits)
    with_share = bench.work(operator(read_all, "read", OperatorKind.SOURCE), splits=SPLITS)
    report = await bench.run(with_share)
    assert report.failure is not None
    assert "here the share is ctx.splits" in report.failure.message
    assert not report.failure.is_recoverable


async def test_splits_are_those_of_the_source_alone(bench: SlotBench) -> None:
    def more(ctx: Any, read: Any) -> Any:
        return [read, *ctx.next_splits()]

    report, _ = await run(bench, source(bench, read_all, more), 0)
    assert report.failure is not None
    assert "'map 0' has no splits of its own: those of 'read' are read there" in report.failure.message


async def test_a_child_of_the_task_reads_no_splits(bench: SlotBench) -> None:
    def forks(ctx: Any) -> Any:
        import os

        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                next(ctx.next_splits())
            except Exception as error:  # noqa: BLE001 - told to the parent
                os.write(writing, str(error).encode())
            os._exit(0)
        told = os.read(reading, 1000).decode()
        os.wait()
        return [told, *ctx.next_splits()]

    report, _ = await run(bench, source(bench, forks), 0)
    told, split = json.loads(report.value)
    assert "not for one that it has started" in told
    assert split == "a"


async def test_none_is_no_value(bench: SlotBench) -> None:
    def nothing(ctx: Any) -> Any:
        for _ in ctx.next_splits():
            yield None

    assert "'read' yielded None" in await why_failed(bench, nothing, 0)


async def test_a_task_that_waits_for_its_split_is_cancelled(bench: SlotBench) -> None:
    work, owner = source(bench, read_all), Owner(bench, None)
    running = asyncio.create_task(bench.pool.run(0, work, owner))
    await owner.splits_wanted.wait_until(bool)
    await bench.pool.cancel(0, work.task.attempt_id)
    await running
    assert owner.reports[-1].state is ExecutionState.CANCELED
