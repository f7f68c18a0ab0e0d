"""What streaming queries do, as REST tells it."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.common.stream_progress import StreamProgress
from runtime.executiongraph.archived import ArchivedExecutionGraph, ArchivedSubtask, ArchivedVertex
from runtime.rest.bodies.schema import streams as schema
from runtime.rest.bodies.schema.usage import MetricValues

NO_WATERMARK = -(2**63)
"""As Flink says it."""
NOT_SAID = -1
"""The backlog of sources that do not say what is left."""


def streams_of_job(graph: ArchivedExecutionGraph, now: int, stall_millis: int) -> schema.StreamsOfJob:
    """The body of GET /jobs/:id/streams: vertices that are streaming queries, or run some.

    `stall_millis`: in one trigger for longer is stalled.
    """
    return {
        "jid": graph.job_id,
        "now": now,
        "job-type": graph.job_type.value,
        "vertices": [_of_vertex(vertex, now - stall_millis) for vertex in graph.vertices if vertex.has_streams],
    }


def _of_vertex(vertex: ArchivedVertex, stalled_before: int) -> schema.StreamsOfVertex:
    return {
        "id": vertex.id,
        "name": vertex.name,
        "uid": vertex.stream_uid,
        "parallelism": vertex.parallelism,
        "subtasks": [_of_subtask(subtask, stalled_before) for subtask in vertex.subtasks],
    }


def _of_subtask(subtask: ArchivedSubtask, stalled_before: int) -> schema.StreamsOfSubtask:
    attempt = subtask.current
    is_live = not attempt.state.is_terminal
    progress = attempt.progress if is_live else None
    return {
        "subtask": subtask.index,
        "attempt": attempt.attempt,
        "status": attempt.state.value,
        "endpoint": attempt.endpoint,
        "taskmanager-id": attempt.task_manager_id,
        "queries": stream_queries(attempt.streams, is_live=is_live),
        "stalled": is_live and any(0 < one.busy_since_millis < stalled_before for one in attempt.streams),
        "tasks-completed": progress.spark_tasks_completed if progress is not None else 0,
        "tasks-total": progress.spark_tasks_total if progress is not None else 0,
    }


def stream_queries(streams: Sequence[StreamProgress], *, is_live: bool) -> list[schema.StreamQuery]:
    """The queries of one attempt. One of an attempt that has ended is not `is_live`, and is late for nothing."""
    return [_query(one, is_live=is_live) for one in streams]


def _query(one: StreamProgress, *, is_live: bool) -> schema.StreamQuery:
    return {
        "query-id": one.query_id,
        "run-id": one.run_id,
        "batch-id": one.batch_id,
        "batches": one.batches,
        "rows": one.rows,
        "input-rows-per-second": one.input_rows_per_second,
        "processed-rows-per-second": one.processed_rows_per_second,
        "trigger-millis": one.trigger_millis,
        "phases": {phase.name: phase.millis for phase in one.phases},
        "state-rows": one.state_rows,
        "state-bytes": one.state_bytes,
        "watermark": one.watermark_millis,
        "backlog": one.backlog,
        "progressed": one.progressed_millis,
        "has-triggered": one.has_triggered,
        "idle": one.is_idle,
        "busy-since": one.busy_since_millis,
        "name": one.name,
        "interval-millis": one.interval_millis,
        "back-pressured": is_live and one.is_back_pressured,
        "thread": one.thread,
        "stage": one.stage,
    }


def watermarks(vertex: ArchivedVertex) -> MetricValues:
    """Flink's body of the watermarks of a vertex: the lowest of each subtask's queries, none for a batch vertex."""
    if not vertex.has_streams:
        return []
    return [
        {"id": f"{one.index}.currentInputWatermark", "value": str(_watermark(one.current.streams))}
        for one in vertex.subtasks
    ]


def _watermark(streams: Sequence[StreamProgress]) -> int:
    return min((one.watermark_millis for one in streams if one.watermark_millis), default=NO_WATERMARK)


def stream_sums(vertex: ArchivedVertex) -> schema.StreamSums:
    """Of all subtasks of a vertex together."""
    attempts = [subtask.current for subtask in vertex.subtasks]
    found = [stream for one in attempts for stream in one.streams]
    live = [stream for one in attempts if not one.state.is_terminal for stream in one.streams]
    said = [one.backlog for one in found if one.backlog != NOT_SAID]
    return {
        "queries": len(found),
        "batches": sum(one.batches for one in found),
        "rows": sum(one.rows for one in found),
        "input-rows-per-second": sum(one.input_rows_per_second for one in live),
        "processed-rows-per-second": sum(one.processed_rows_per_second for one in live),
        "state-bytes": sum(one.state_bytes for one in found),
        "backlog": sum(said) if said else NOT_SAID,
    }
