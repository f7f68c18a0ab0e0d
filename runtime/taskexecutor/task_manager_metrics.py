"""What a TaskManager counts of its tasks, and what it reads of its slots and of Spark at a scrape (D-110)."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError
from runtime.common.ids import ExecutionAttemptId
from runtime.common.stream_progress import StreamProgress
from runtime.gateways.process import SparkJvmFigures
from runtime.gateways.spark_work import SparkWork
from runtime.gateways.task import FailureInfo, TaskExecutionReport, TaskProgress
from runtime.metrics import table
from runtime.metrics.registry import NO_METRICS, MetricRegistry, Sample
from runtime.taskexecutor.core.slot_table import SlotState, TaskSlot
from runtime.taskexecutor.slot_pool import SlotPool, SparkState

logger = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
LOOKED_FOR_SECONDS = 120.0
OTHER_CODE = "-"
"""In place of a uid, for queries that are no vertex: a script or a batch task has started them."""


class TaskManagerMetrics:
    """The counters of tasks. Outcomes and kinds of failures are looked up: a task may report any text as its kind."""

    def __init__(self, registry: MetricRegistry = NO_METRICS) -> None:
        self.registry = registry
        self._started = registry.counter(table.TASKS_STARTED)
        self._seconds = {outcome: registry.histogram(table.TASK_DURATION, outcome) for outcome in table.TASK_OUTCOMES}
        self.streams = StreamFigures(registry)
        self._stages = registry.counter(table.SPARK_STAGES)
        self._shuffled, self._spilled = registry.counter(table.SPARK_SHUFFLED), registry.counter(table.SPARK_SPILLED)
        self._spark_tasks = {one: registry.counter(table.SPARK_TASKS, one) for one in table.SPARK_TASK_OUTCOMES}
        self._failed = {kind: registry.counter(table.TASKS_FAILED, kind) for kind in table.FAILURE_KINDS}

    def started(self) -> None:
        """An attempt begins."""
        self._started.inc()

    def ended(self, report: TaskExecutionReport, seconds: float) -> None:
        """An attempt has reported its end, `seconds` after its begin."""
        self._seconds[report.state.value].observe(seconds)
        self.streams.forget(report.attempt_id)
        if self.registry.is_on and report.state.value == "FINISHED":
            for one in report.accumulators:
                self._count(one)
        if report.spark_work is not None:
            self._count_spark(report.spark_work)
        if report.state.value == "FAILED":
            self._failed[_kind(report.failure)].inc()

    def _count_spark(self, work: SparkWork) -> None:
        self._stages.inc(work.stages_total)
        self._shuffled.inc(work.total.shuffle_write_bytes)
        self._spilled.inc(work.total.spilled_disk_bytes)
        for outcome, count in (("completed", work.total.tasks_completed), ("failed", work.total.tasks_failed)):
            self._spark_tasks[outcome].inc(count)

    def _count(self, one: UserAccumulator) -> None:
        match one.kind:
            case AccumulatorKind.COUNTER:
                self.registry.counter(table.USER_COUNTER, one.name).inc(one.count)
            case AccumulatorKind.GAUGE:
                self.registry.gauge(table.USER_GAUGE, one.name).set(one.total)
            case AccumulatorKind.HISTOGRAM:
                self.registry.counter(table.USER_VALUES, one.name).inc(one.count)
                self.registry.gauge(table.USER_VALUES_SUM, one.name).inc(one.total)


class JvmLooks:
    """The figures of Spark's JVMs, asked every LOOK_SECONDS while somebody scrapes (D-110).

    A scrape tells what was found last, and waits for no JVM. What nobody has scraped for LOOKED_FOR_SECONDS is not
    asked, and forgotten.
    """

    def __init__(self, spark: SparkState, clock: Clock) -> None:
        self._spark = spark
        self._clock = clock
        self._scraped_at = -math.inf
        self._is_scraped = asyncio.Event()
        self._found: tuple[SparkJvmFigures, ...] = ()

    def samples(self) -> Iterator[Sample]:
        """At a scrape."""
        self._scraped_at = self._clock.monotonic()
        self._is_scraped.set()
        for one in self._found:
            if one.heap_max < 0:
                continue
            of = (one.key[:8] or "default",)
            heap = zip(table.HEAP_KINDS, (one.heap_used, one.heap_committed, one.heap_max), strict=True)
            yield from (Sample(table.SPARK_HEAP, value, (*of, kind)) for kind, value in heap)
            yield Sample(table.SPARK_NON_HEAP, one.non_heap_used, of)
            yield Sample(table.SPARK_COLLECTIONS, one.gc_count, of)
            yield Sample(table.SPARK_COLLECTION_SECONDS, one.gc_millis / 1000, of)

    async def run(self) -> None:
        """Ask. Eternal."""
        while True:
            await self._is_scraped.wait()
            self._is_scraped.clear()
            while self._clock.monotonic() - self._scraped_at < LOOKED_FOR_SECONDS:
                try:
                    self._found = await self._spark.jvm_figures()
                except* FlinklikeError as errors:
                    logger.info("what Spark's JVMs take is not known now: %s", errors.exceptions[0])
                    self._found = ()
                await asyncio.sleep(LOOK_SECONDS)
            self._found = ()


class StreamFigures:
    """Streaming queries of attempts that run, by the uid of their state. Counters go on beyond the attempt.

    Invariant: what an attempt has told once counts once, whatever is told of it again.
    """

    def __init__(self, registry: MetricRegistry = NO_METRICS) -> None:
        self._registry = registry
        self._told: dict[ExecutionAttemptId, tuple[str, tuple[StreamProgress, ...]]] = {}

    def progressed(self, uid: str, progress: TaskProgress) -> None:
        """An attempt tells what its queries do."""
        if not self._registry.is_on or not progress.streams:
            return
        label = uid or OTHER_CODE
        _, before = self._told.get(progress.attempt_id, ("", ()))
        known = {one.run_id: one for one in before}
        for one in progress.streams:
            last = known.get(one.run_id)
            batches, rows = (last.batches, last.rows) if last is not None else (0, 0)
            self._registry.counter(table.STREAM_BATCHES, label).inc(max(0, one.batches - batches))
            self._registry.counter(table.STREAM_ROWS, label).inc(max(0, one.rows - rows))
        self._told[progress.attempt_id] = label, progress.streams

    def forget(self, attempt_id: ExecutionAttemptId) -> None:
        """The attempt has ended: its gauges are gone."""
        self._told.pop(attempt_id, None)

    def samples(self, now_millis: int) -> Iterator[Sample]:
        """Gauges by uid: sums over the attempts, of times the longest."""
        by_uid: dict[str, list[StreamProgress]] = {}
        for label, streams in self._told.values():
            by_uid.setdefault(label, []).extend(streams)
        for label, found in sorted(by_uid.items()):
            yield Sample(table.STREAM_RATE, sum(one.processed_rows_per_second for one in found), (label,))
            yield Sample(table.STREAM_TRIGGER, max(one.trigger_millis for one in found) / 1000, (label,))
            yield from _phases(label, found)
            yield Sample(table.STREAM_BACK_PRESSURE, sum(one.is_back_pressured for one in found), (label,))
            since = min((one.busy_since_millis for one in found if one.busy_since_millis), default=now_millis)
            yield Sample(table.STREAM_BUSY, max(0, now_millis - since) / 1000, (label,))
            yield Sample(table.STREAM_STATE_ROWS, sum(one.state_rows for one in found), (label,))
            yield Sample(table.STREAM_STATE, sum(one.state_bytes for one in found), (label,))
            if said := [one.backlog for one in found if one.backlog >= 0]:
                yield Sample(table.STREAM_BACKLOG, sum(said), (label,))
            if marks := [one.watermark_millis for one in found if one.watermark_millis]:
                yield Sample(table.STREAM_WATERMARK_LAG, max(0, now_millis - min(marks)) / 1000, (label,))


def _phases(label: str, streams: Iterable[StreamProgress]) -> Iterator[Sample]:
    longest: dict[str, int] = {}
    for phase in (one for stream in streams for one in stream.phases):
        longest[phase.name] = max(longest.get(phase.name, 0), phase.millis)
    for name, millis in sorted(longest.items()):
        yield Sample(table.STREAM_PHASE, millis / 1000, (label, name))


def _kind(failure: FailureInfo | None) -> str:
    kind = "" if failure is None else failure.kind
    return kind if kind in table.FAILURE_KINDS else "OTHER"


def slot_samples(slots: Iterable[TaskSlot], pool: SlotPool) -> Iterator[Sample]:
    """Slots by state, and the memory of each."""
    states = Counter(slot.state for slot in slots)
    yield from (Sample(table.SLOTS, states[state], (state.value,)) for state in SlotState)
    memory: Mapping[int, int] = pool.memory_bytes()
    yield from (Sample(table.SLOT_MEMORY, used, (str(index),)) for index, used in sorted(memory.items()))


def spark_samples(spark: SparkState) -> Iterator[Sample]:
    """The environments beside the default one."""
    environments = spark.statuses()
    yield Sample(table.SPARK_WARM, spark.is_warm)
    yield Sample(table.SPARK_ENVIRONMENTS, len(environments))
    yield Sample(table.SPARK_ENVIRONMENT_BYTES, sum(one.memory_bytes for one in environments))
