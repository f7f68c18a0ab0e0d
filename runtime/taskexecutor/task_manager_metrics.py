"""What a TaskManager counts of its tasks, and what it reads of its slots and of Spark at a scrape (D-110)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.common.ids import ExecutionAttemptId
from runtime.common.stream_progress import StreamProgress
from runtime.gateways.task import FailureInfo, TaskExecutionReport, TaskProgress
from runtime.metrics import table
from runtime.metrics.registry import NO_METRICS, MetricRegistry, Sample
from runtime.taskexecutor.core.slot_table import SlotState, TaskSlot
from runtime.taskexecutor.slot_pool import SlotPool, SparkState

OTHER_CODE = "-"
"""In place of a uid, for queries that are no vertex: a script or a batch task has started them."""


class TaskManagerMetrics:
    """The counters of tasks. Outcomes and kinds of failures are looked up: a task may report any text as its kind."""

    def __init__(self, registry: MetricRegistry = NO_METRICS) -> None:
        self.registry = registry
        self._started = registry.counter(table.TASKS_STARTED)
        self._seconds = {outcome: registry.histogram(table.TASK_DURATION, outcome) for outcome in table.TASK_OUTCOMES}
        self.streams = StreamFigures(registry)
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
        if report.state.value == "FAILED":
            self._failed[_kind(report.failure)].inc()

    def _count(self, one: UserAccumulator) -> None:
        match one.kind:
            case AccumulatorKind.COUNTER:
                self.registry.counter(table.USER_COUNTER, one.name).inc(one.count)
            case AccumulatorKind.GAUGE:
                self.registry.gauge(table.USER_GAUGE, one.name).set(one.total)
            case AccumulatorKind.HISTOGRAM:
                self.registry.counter(table.USER_VALUES, one.name).inc(one.count)
                self.registry.gauge(table.USER_VALUES_SUM, one.name).inc(one.total)


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
            yield Sample(table.STREAM_STATE, sum(one.state_bytes for one in found), (label,))
            if said := [one.backlog for one in found if one.backlog >= 0]:
                yield Sample(table.STREAM_BACKLOG, sum(said), (label,))
            if marks := [one.watermark_millis for one in found if one.watermark_millis]:
                yield Sample(table.STREAM_WATERMARK_LAG, max(0, now_millis - min(marks)) / 1000, (label,))


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
