"""What a TaskManager counts of its tasks, and reads of its slots."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.scope import Scope, ServiceScope
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import StreamPhase
from runtime.gateways.process import SparkJvmFigures
from runtime.gateways.spark_work import SparkStage, work_of
from runtime.gateways.task import FailureInfo, TaskProgress
from runtime.metrics import table
from runtime.metrics.counted import CountedMetrics
from runtime.taskexecutor.attempts import Attempts
from runtime.taskexecutor.core.events import AttemptEnded, RunAttempt
from runtime.taskexecutor.core.slot_table import TaskSlotTable
from runtime.taskexecutor.credentials.secret_files import SecretFiles
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.directories.job_directory import JobDirectories
from runtime.taskexecutor.task_manager_metrics import (
    LOOK_SECONDS,
    LOOKED_FOR_SECONDS,
    JvmLooks,
    TaskManagerMetrics,
    slot_samples,
)
from runtime.taskexecutor.unpacking.limits import UnpackLimits
from tests.kit.control_plane.streaming_jobs import PROGRESS, told
from tests.kit.control_plane.task_executor_cluster import NoBlobs
from tests.kit.control_plane.task_messages import attempt_id, incarnation, job_information, task
from tests.kit.control_plane.testing_slot_pool import AT_ONCE, TestingSlotPool, report_of
from tests.kit.control_plane.virtual_time import run_virtual


def counts(metrics: CountedMetrics) -> dict[tuple[str, tuple[str, ...]], float]:
    found = {(one.metric.name, labels): value for one in metrics.families() for labels, value in one.values.items()}
    found |= {
        (one.metric.name, series.labels): series.buckets[-1][1]
        for one in metrics.families()
        for series in one.distributions
    }
    return {key: value for key, value in found.items() if value}


@pytest.mark.parametrize(
    ("state", "kind", "counted"),
    [
        (ExecutionState.FINISHED, "", None),
        (ExecutionState.CANCELED, "", None),
        (ExecutionState.FAILED, "USER", "USER"),
        (ExecutionState.FAILED, "SYSTEM", "SYSTEM"),
        (ExecutionState.FAILED, "RESOURCE", "RESOURCE"),
        (ExecutionState.FAILED, "whatever a task says", "OTHER"),
        (ExecutionState.FAILED, "", "OTHER"),
    ],
)
def test_ends_are_counted_by_outcome_and_kind(state: ExecutionState, kind: str, counted: str | None) -> None:
    metrics = CountedMetrics(100)
    failure = FailureInfo("E", "m", "t", kind, True, 1) if kind else None
    TaskManagerMetrics(metrics).ended(replace(report_of(attempt_id(1, 0), state), failure=failure), 0.5)
    expected = {(table.TASK_DURATION.name, (state.value,)): 1.0}
    if counted is not None:
        expected[table.TASKS_FAILED.name, (counted,)] = 1
    assert counts(metrics) == expected


@pytest.mark.asyncio
async def test_an_attempt_is_counted_from_its_begin_to_its_report(tmp_path: Path) -> None:
    heard: list[Any] = []
    metrics, scope = CountedMetrics(100), ServiceScope("test")
    await scope.open()
    attempts = Attempts(
        TestingSlotPool(),
        JobDirectories(tmp_path / "jobs", NoBlobs(), scope, UnpackLimits()),
        ExchangeDirectory(str(tmp_path / "exchange"), incarnation(3)),
        log_directory=tmp_path / "logs",
        secrets=SecretFiles("", "tm-1"),
        clock=LoopClock(),
        scope=scope,
        post=heard.append,
        metrics=TaskManagerMetrics(metrics),
    )
    attempts.run(RunAttempt(0, job_information(), task(1, 0, 1, operators=AT_ONCE)))
    while not heard or not isinstance(heard[-1], AttemptEnded):
        await asyncio.sleep(0)
    await scope.close()
    assert counts(metrics) == {
        (table.TASKS_STARTED.name, ()): 1,
        (table.TASK_DURATION.name, ("FINISHED",)): 1,
    }


def test_slots_are_told_by_state_with_their_memory() -> None:
    pool = TestingSlotPool()
    pool.slots[1] = attempt_id(1, 0)
    found = {
        (sample.metric, sample.labels): sample.value for sample in slot_samples(TaskSlotTable(2, queue_max=1), pool)
    }
    assert found[table.SLOTS, ("FREE",)] == 2
    assert found[table.SLOTS, ("ACTIVE",)] == 0
    assert found[table.SLOT_MEMORY, ("1",)] == 1 << 20


def progress(number: int, **changes: object) -> TaskProgress:
    return TaskProgress(attempt_id(number, 0), 0.0, "", 0, 0, 0, 0, streams=(told(**changes),))


def test_streaming_queries_count_by_uid_and_their_gauges_end_with_the_attempt() -> None:
    metrics = CountedMetrics(100)
    figures = TaskManagerMetrics(metrics)
    for one in (progress(1), progress(1), progress(1, batches=8, rows=7100), progress(2, run_id="other", backlog=-1)):
        figures.streams.progressed("orders", one)
    figures.streams.progressed("", progress(3, run_id="third", watermark_millis=0))
    assert counts(metrics) == {
        (table.STREAM_BATCHES.name, ("orders",)): 15,
        (table.STREAM_ROWS.name, ("orders",)): 14_100,
        (table.STREAM_BATCHES.name, ("-",)): 7,
        (table.STREAM_ROWS.name, ("-",)): 7000,
    }
    at = PROGRESS.watermark_millis + 9000
    found = {(one.metric.name, one.labels[0]): one.value for one in figures.streams.samples(at)}
    assert found[table.STREAM_RATE.name, "orders"] == 500.0
    assert found[table.STREAM_TRIGGER.name, "orders"] == 0.34
    assert found[table.STREAM_STATE.name, "orders"] == 8192
    assert found[table.STREAM_STATE_ROWS.name, "orders"] == 24
    assert found[table.STREAM_BACK_PRESSURE.name, "orders"] == 0
    assert found[table.STREAM_BUSY.name, "orders"] == 0
    assert found[table.STREAM_BACKLOG.name, "orders"] == 3, "of the query whose source says it"
    assert found[table.STREAM_WATERMARK_LAG.name, "orders"] == 9.0
    assert (table.STREAM_WATERMARK_LAG.name, "-") not in found
    for number in (1, 3):
        figures.ended(report_of(attempt_id(number, 0), ExecutionState.CANCELED), 1.0)
    found = {(one.metric.name, one.labels[0]): one.value for one in figures.streams.samples(at)}
    assert found[table.STREAM_RATE.name, "orders"] == 250.0
    assert (table.STREAM_RATE.name, "-") not in found
    assert (table.STREAM_BACKLOG.name, "orders") not in found


def test_a_restarted_query_counts_from_its_own_begin() -> None:
    metrics = CountedMetrics(100)
    figures = TaskManagerMetrics(metrics).streams
    figures.progressed("orders", progress(1, batches=5, rows=50))
    figures.progressed("orders", progress(1, run_id="again", batches=2, rows=20))
    assert counts(metrics)[table.STREAM_ROWS.name, ("orders",)] == 70


def test_what_spark_has_done_is_counted_when_the_attempt_ends() -> None:
    metrics = CountedMetrics(100)
    stage = SparkStage(0, tasks_completed=38, tasks_failed=2, shuffle_write_bytes=1 << 20, spilled_disk_bytes=512)
    work = work_of(2, 1, [stage, replace(stage, stage_id=1)], 16)
    report = replace(report_of(attempt_id(1, 0), ExecutionState.FAILED), spark_work=work)
    TaskManagerMetrics(metrics).ended(report, 0.5)
    found = counts(metrics)
    assert found[table.SPARK_STAGES.name, ()] == 2
    assert found[table.SPARK_TASKS.name, ("completed",)] == 76
    assert found[table.SPARK_TASKS.name, ("failed",)] == 4
    assert found[table.SPARK_SHUFFLED.name, ()] == 2 << 20
    assert found[table.SPARK_SPILLED.name, ()] == 1024


class Jvms:
    """Spark with two JVMs, of which one does not answer."""

    def __init__(self) -> None:
        self.asked = 0

    async def jvm_figures(self) -> tuple[SparkJvmFigures, ...]:
        self.asked += 1
        there = SparkJvmFigures("", 600, 200, 400, 768, 120, 80, 12, 340, ())
        return there, SparkJvmFigures("0123456789abcdef", 600, -1, -1, -1, -1, -1, -1, -1, ())


def test_jvms_are_asked_while_somebody_scrapes_and_no_scrape_waits() -> None:
    async def main() -> None:
        spark, clock = Jvms(), LoopClock()
        looks = JvmLooks(spark, clock)  # type: ignore[arg-type]  # of Spark's state it asks for nothing else
        async with Scope("test") as scope:
            scope.spawn_eternal("looks", looks.run())
            await asyncio.sleep(LOOKED_FOR_SECONDS)
            assert spark.asked == 0, "nobody scrapes"
            assert list(looks.samples()) == []
            await asyncio.sleep(LOOK_SECONDS / 2)
            found = {(one.metric, one.labels): one.value for one in looks.samples()}
            assert found == {
                (table.SPARK_HEAP, ("default", "used")): 200,
                (table.SPARK_HEAP, ("default", "committed")): 400,
                (table.SPARK_HEAP, ("default", "max")): 768,
                (table.SPARK_NON_HEAP, ("default",)): 120,
                (table.SPARK_COLLECTIONS, ("default",)): 12,
                (table.SPARK_COLLECTION_SECONDS, ("default",)): 0.34,
            }
            await asyncio.sleep(2 * LOOKED_FOR_SECONDS)
            asked = spark.asked
            assert LOOKED_FOR_SECONDS / LOOK_SECONDS <= asked <= LOOKED_FOR_SECONDS / LOOK_SECONDS + 2
            await asyncio.sleep(LOOKED_FOR_SECONDS)
            assert spark.asked == asked
            assert list(looks.samples()) == [], "what nobody asked for is forgotten"
            scope.cancel_all()

    run_virtual(main())


def test_a_late_query_a_query_that_hangs_and_phases_of_batches() -> None:
    figures = TaskManagerMetrics(CountedMetrics(100))
    now = PROGRESS.progressed_millis + 100_000
    slow = (StreamPhase("addBatch", 500),)
    for one in (
        progress(1, interval_millis=339),
        progress(2, interval_millis=340, phases=slow),
        progress(3, busy_since_millis=now - 20_000),
        progress(4, busy_since_millis=now - 30_000),
    ):
        figures.streams.progressed("orders", one)
    found = {(one.metric.name, *one.labels[1:]): one.value for one in figures.streams.samples(now)}
    assert found[table.STREAM_BACK_PRESSURE.name,] == 1
    assert found[table.STREAM_BUSY.name,] == 30.0
    assert found[table.STREAM_PHASE.name, "addBatch"] == 0.5
    assert found[table.STREAM_PHASE.name, "walCommit"] == 0.02
