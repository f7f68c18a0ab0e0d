"""Flink's metrics of jobs, vertices, subtasks and processes, as far as they mean something here. Pure.

Names are Flink's where it has one. Of user accumulators counters are `user.<name>`. All come from the archived graph
and from what a process says of itself, so nothing is collected between two questions.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from runtime.common.accumulators import AccumulatorKind
from runtime.common.errors import InvalidInputError
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.archived import ArchivedExecution, ArchivedExecutionGraph, ArchivedVertex
from runtime.gateways.dispatcher import JobSummary
from runtime.gateways.process import ProcessFiguresResponse
from runtime.rest.bodies.schema.usage import AggregatedMetrics, MetricValue, MetricValues

Values = Mapping[str, float]

AGGREGATES = ("min", "max", "avg", "sum", "skew")
_DEFAULT_AGGREGATES = frozenset({"min", "max", "avg", "sum"})
_ASKED_MAX = 200


def names_in(text: str | None) -> list[str] | None:
    """The names of a list with commas; None where there is no list. Raises InvalidInputError."""
    if text is None:
        return None
    names = [name for name in text.split(",") if name]
    if len(names) > _ASKED_MAX:
        message = f"{len(names)} names at once: at most {_ASKED_MAX}"
        raise InvalidInputError(message)
    return names


def of_job(graph: ArchivedExecutionGraph, now: int) -> Values:
    """Restarts and times in milliseconds."""
    running = graph.timestamps.get(JobStatus.RUNNING, -1)
    end = graph.end_millis if graph.end_millis >= 0 else now
    return {
        "numRestarts": sum(vertex.restarts for vertex in graph.vertices),
        "uptime": max(0, end - running) if running >= 0 else 0,
        "runningTime": max(0, end - running) if running >= 0 else 0,
        **{f"user.{one.name}": one.count for one in graph.accumulators() if one.kind is AccumulatorKind.COUNTER},
    }


def of_summary(summary: JobSummary, now: int) -> Values:
    """What is known of every job without asking its owner."""
    end = summary.end_millis if summary.end_millis >= 0 else now
    tasks = summary.tasks
    return {
        "uptime": max(0, end - summary.start_millis),
        "numRunningTasks": tasks.running,
        "numFinishedTasks": tasks.finished,
        "numFailedTasks": tasks.failed,
    }


def of_attempt(attempt: ArchivedExecution) -> Values:
    """What one subtask has read, written and used."""
    metrics, progress, work = attempt.metrics, attempt.progress, attempt.spark_work
    found: dict[str, float] = {
        "numRecordsIn": metrics.read_records,
        "numRecordsOut": metrics.write_records,
        "numBytesIn": metrics.read_bytes,
        "numBytesOut": metrics.write_bytes,
        "accumulateBusyTimeMs": metrics.cpu_millis,
        "memoryBytesPeak": metrics.memory_bytes_peak,
        "isBackPressured": 0,
        "backPressuredTimeMsPerSecond": 0,
        "busyTimeMsPerSecond": 1000 if attempt.state is ExecutionState.RUNNING else 0,
    }
    if progress is not None and not attempt.state.is_terminal:
        found |= {"progress": progress.fraction, "sparkTasksCompleted": progress.spark_tasks_completed}
    if work is not None:
        found |= {
            "sparkTasksCompleted": work.total.tasks_completed,
            "sparkShuffleBytesWritten": work.total.shuffle_write_bytes,
            "sparkBytesSpilled": work.total.spilled_disk_bytes,
        }
    counters = (one for one in attempt.accumulators if one.kind is AccumulatorKind.COUNTER)
    return {**found, **{f"user.{one.name}": one.count for one in counters}}


def of_vertex(vertex: ArchivedVertex) -> Values:
    """Those of its subtasks, `<subtask>.<name>`."""
    return {f"{one.index}.{name}": value for one in vertex.subtasks for name, value in of_attempt(one.current).items()}


def of_process(told: ProcessFiguresResponse) -> Values:
    """Of a process; its heap is that of Spark's JVMs together, which Flink's clients draw."""
    jvms = [one for one in told.jvms if one.heap_max >= 0]
    found: dict[str, float] = {
        "Status.JVM.CPU.Time": told.cpu_millis * 1_000_000,
        "Status.JVM.Threads.Count": told.threads,
        "Status.JVM.FileDescriptor.Open": told.open_files,
        "Status.Process.Memory.Resident": told.resident_bytes,
    }
    if jvms:
        found |= {
            "Status.JVM.Memory.Heap.Used": sum(one.heap_used for one in jvms),
            "Status.JVM.Memory.Heap.Committed": sum(one.heap_committed for one in jvms),
            "Status.JVM.Memory.Heap.Max": sum(one.heap_max for one in jvms),
            "Status.JVM.Memory.NonHeap.Used": sum(one.non_heap_used for one in jvms),
            "Status.JVM.GarbageCollector.All.Count": sum(one.gc_count for one in jvms),
            "Status.JVM.GarbageCollector.All.Time": sum(one.gc_millis for one in jvms),
        }
    return found


def listed(values: Values, wanted: Sequence[str] | None) -> MetricValues:
    """Names, or the values of those that are wanted; names that nobody knows are left out, as by Flink."""
    if wanted is None:
        return [{"id": name} for name in values]
    found: list[MetricValue] = [{"id": name, "value": _text(values[name])} for name in wanted if name in values]
    return found


def aggregated(
    each: Iterable[Values], wanted: Sequence[str] | None, aggregates: Sequence[str] | None
) -> AggregatedMetrics:
    """Names, or of those that are wanted the aggregates over all that have them. Raises InvalidInputError."""
    if wrong := [one for one in aggregates or () if one not in AGGREGATES]:
        message = f"agg={wrong[0][:40]}: it is one of {', '.join(AGGREGATES)}"
        raise InvalidInputError(message)
    every = list(each)
    if wanted is None:
        return [{"id": name} for name in dict.fromkeys(name for values in every for name in values)]
    chosen = frozenset(aggregates) if aggregates else _DEFAULT_AGGREGATES
    found: AggregatedMetrics = []
    for name in wanted:
        values = [float(one[name]) for one in every if name in one]
        if values:
            numbers = _numbers(values)
            found.append({"id": name, **{key: numbers[key] for key in AGGREGATES if key in chosen}})  # type: ignore[typeddict-item]  # a choice of its keys
    return found


def _numbers(values: Sequence[float]) -> dict[str, float]:
    """`skew`: the mean distance from the mean, in percent of the mean, as Flink has it."""
    mean = statistics.fmean(values)
    distance = statistics.fmean(abs(one - mean) for one in values)
    skew = 100 * distance / mean if mean else 0.0
    return {"min": min(values), "max": max(values), "avg": mean, "sum": sum(values), "skew": skew}


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
