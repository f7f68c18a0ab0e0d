"""What a TaskManager counts of its tasks, and what it reads of its slots and of Spark at a scrape (D-110)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.gateways.task import FailureInfo, TaskExecutionReport
from runtime.metrics import table
from runtime.metrics.registry import NO_METRICS, MetricRegistry, Sample
from runtime.taskexecutor.core.slot_table import SlotState, TaskSlot
from runtime.taskexecutor.slot_pool import SlotPool, SparkState


class TaskManagerMetrics:
    """The counters of tasks. Outcomes and kinds of failures are looked up: a task may report any text as its kind."""

    def __init__(self, registry: MetricRegistry = NO_METRICS) -> None:
        self.registry = registry
        self._started = registry.counter(table.TASKS_STARTED)
        self._seconds = {outcome: registry.histogram(table.TASK_DURATION, outcome) for outcome in table.TASK_OUTCOMES}
        self._failed = {kind: registry.counter(table.TASKS_FAILED, kind) for kind in table.FAILURE_KINDS}

    def started(self) -> None:
        """An attempt begins."""
        self._started.inc()

    def ended(self, report: TaskExecutionReport, seconds: float) -> None:
        """An attempt has reported its end, `seconds` after its begin."""
        self._seconds[report.state.value].observe(seconds)
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
