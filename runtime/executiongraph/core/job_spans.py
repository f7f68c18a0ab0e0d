"""The spans of a job that has ended, made of its execution graph: whoever has written its result tells all of them.

R55: so a trace is told once, whole, and by one process, however often the job has changed its owner. Attempts are spans
below the job, with spans for their wait for a slot, their deployment, their run, and their longest stages of Spark;
takeovers are events of its span.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.archived import ArchivedExecution, ArchivedExecutionGraph, ArchivedVertex
from runtime.gateways.spark_work import STAGES_KEPT_MAX
from runtime.traces.span import Span, SpanEvent, TraceContext, span_id

SPANS_MAX = 5000
"""Spans of one job; a job of 500 subtasks without restarts has 2,000. The latest attempts come first."""
_TEXT_MAX = 500
_ERROR = "error.type"


def job_spans(graph: ArchivedExecutionGraph, context: TraceContext, namespace: str = "") -> Sequence[Span]:
    """All spans. None of a job that is not sampled, or has not ended."""
    if not context.is_sampled or graph.end_millis < 0 or graph.start_millis < 0:
        return ()
    spans = [_job(graph, context, namespace), *_phases(graph, context)]
    for of_attempt in _attempts(graph, context):
        if len(spans) + len(of_attempt) > SPANS_MAX:
            break
        spans += of_attempt
    return spans


def submit_span(job_id: str, context: TraceContext, start_millis: int, end_millis: int) -> Sequence[Span]:
    """The submit, from its checked request until it was durable. The leader tells it, with the first answer."""
    if not context.is_sampled:
        return ()
    name = "submit"
    return (
        Span(
            name,
            context.trace_id,
            span_id(job_id, name),
            span_id(job_id),
            start_millis,
            end_millis,
            {"flinklike.job.id": job_id},
        ),
    )


def _job(graph: ArchivedExecutionGraph, context: TraceContext, namespace: str) -> Span:
    attributes: dict[str, str | int | float] = {
        "flinklike.job.id": graph.job_id,
        "flinklike.job.name": graph.name[:_TEXT_MAX],
        "flinklike.job.status": graph.status.value,
        "flinklike.job.restarts": sum(vertex.restarts for vertex in graph.vertices),
    }
    if namespace:
        attributes["flinklike.namespace"] = namespace
    failure = graph.failure if graph.status is JobStatus.FAILED else None
    if failure is not None:
        attributes[_ERROR] = failure.class_name[:_TEXT_MAX]
    events = tuple(
        SpanEvent("takeover", one.millis, {"from": one.former, "to": one.owner, "reason": one.reason[:_TEXT_MAX]})
        for one in graph.takeovers
    )
    return Span(
        f"job {graph.name[:_TEXT_MAX]}",
        context.trace_id,
        span_id(graph.job_id),
        context.parent_id,
        graph.start_millis,
        graph.end_millis,
        attributes,
        events,
        "" if failure is None else failure.message[:_TEXT_MAX] or failure.class_name[:_TEXT_MAX],
    )


def _phases(graph: ArchivedExecutionGraph, context: TraceContext) -> Iterator[Span]:
    """From the submit to the JobMaster (`assignment`), and from there to the first task (`wait`)."""
    created = graph.timestamps.get(JobStatus.CREATED, -1)
    running = min((one.start_millis for one in graph.vertices if one.start_millis >= 0), default=-1)
    for name, start, end in (("assignment", graph.start_millis, created), ("wait", created, running)):
        if 0 <= start <= end:
            yield Span(name, context.trace_id, span_id(graph.job_id, name), span_id(graph.job_id), start, end)


def _attempts(graph: ArchivedExecutionGraph, context: TraceContext) -> Iterator[list[Span]]:
    current = [(vertex, sub.index, sub.current) for vertex in graph.vertices for sub in vertex.subtasks]
    prior = [(vertex, sub.index, one) for vertex in graph.vertices for sub in vertex.subtasks for one in sub.prior]
    for vertex, subtask, attempt in (*current, *prior):
        if found := list(_attempt(graph.job_id, vertex, subtask, attempt, context)):
            yield found


def _attempt(
    job_id: str, vertex: ArchivedVertex, subtask: int, attempt: ArchivedExecution, context: TraceContext
) -> Iterator[Span]:
    times = attempt.timestamps
    start, end = min(times.values(), default=-1), attempt.end_millis
    if start < 0 or end < start:
        return
    name = f"{vertex.name[:_TEXT_MAX]} ({subtask + 1}/{vertex.parallelism})"
    attributes: dict[str, str | int | float] = {
        "flinklike.vertex.id": vertex.id,
        "flinklike.subtask": subtask,
        "flinklike.attempt": attempt.attempt,
        "flinklike.attempt.id": attempt.attempt_id,
        "flinklike.attempt.state": attempt.state.value,
        "flinklike.taskmanager.id": attempt.task_manager_id,
        "flinklike.rows.read": attempt.metrics.read_records,
        "flinklike.rows.written": attempt.metrics.write_records,
        "flinklike.cpu.millis": attempt.metrics.cpu_millis,
        "flinklike.memory.peak.bytes": attempt.metrics.memory_bytes_peak,
    }
    if attempt.progress is not None and attempt.progress.spark_tasks_total:
        attributes["flinklike.spark.tasks"] = attempt.progress.spark_tasks_total
    failure, own = attempt.failure, span_id(job_id, attempt.attempt_id)
    if failure is not None:
        attributes[_ERROR] = failure.class_name[:_TEXT_MAX]
    error = "" if failure is None else failure.message[:_TEXT_MAX] or failure.class_name[:_TEXT_MAX]
    yield Span(name, context.trace_id, own, span_id(job_id), start, end, attributes, (), error)
    steps = (
        ("slot wait", ExecutionState.SCHEDULED, ExecutionState.DEPLOYING),
        ("deployment", ExecutionState.DEPLOYING, ExecutionState.RUNNING),
        ("run", ExecutionState.RUNNING, None),
    )
    for step, first, last in steps:
        begin, finish = times.get(first, -1), end if last is None else times.get(last, end)
        if 0 <= begin <= finish:
            step_id = span_id(job_id, attempt.attempt_id, step)
            yield Span(step, context.trace_id, step_id, own, begin, finish)
    yield from _stages(job_id, attempt, context.trace_id)


def _stages(job_id: str, attempt: ArchivedExecution, trace_id: str) -> Iterator[Span]:
    """The stages of Spark that the report of the attempt has kept (R57); one without an end has that of the attempt."""
    if attempt.spark_work is None:
        return
    for stage in attempt.spark_work.stages[:STAGES_KEPT_MAX]:
        begin = stage.submitted_millis
        end = stage.completed_millis if stage.completed_millis >= 0 else attempt.end_millis
        if not 0 <= begin <= end:
            continue
        attributes: dict[str, str | int | float] = {
            "flinklike.spark.stage.id": stage.stage_id,
            "flinklike.spark.stage.attempt": stage.attempt,
            "flinklike.spark.stage.status": stage.state[:_TEXT_MAX],
            "flinklike.spark.tasks": stage.tasks_total,
            "flinklike.spark.tasks.failed": stage.tasks_failed,
            "flinklike.spark.run.millis": stage.run_millis,
            "flinklike.spark.cpu.millis": stage.cpu_millis,
            "flinklike.spark.gc.millis": stage.gc_millis,
            "flinklike.spark.read.bytes": stage.read_bytes,
            "flinklike.spark.written.bytes": stage.write_bytes,
            "flinklike.spark.shuffle.read.bytes": stage.shuffle_read_bytes,
            "flinklike.spark.shuffle.written.bytes": stage.shuffle_write_bytes,
            "flinklike.spark.spilled.bytes": stage.spilled_disk_bytes,
        }
        own = span_id(job_id, attempt.attempt_id, "stage", str(stage.stage_id), str(stage.attempt))
        name = f"stage {stage.stage_id} {stage.name}"[:_TEXT_MAX]
        error = "the stage has failed" if stage.state == "FAILED" else ""
        yield Span(name, trace_id, own, span_id(job_id, attempt.attempt_id), begin, end, attributes, (), error)
