"""Archived graphs of streaming jobs, for tests of REST and of its clients."""

from __future__ import annotations

from dataclasses import replace

from runtime.common.ids import JobId, VertexId
from runtime.common.states import JobStatus, JobType
from runtime.common.stream_progress import StreamProgress
from runtime.executiongraph.archived import ArchivedExecutionGraph, ArchivedSubtask
from runtime.executiongraph.archived_checkpoints import (
    ArchivedCheckpoint,
    ArchivedCheckpoints,
    ArchivedSummary,
    CheckpointStatus,
    SubtaskOfCheckpoint,
)
from runtime.gateways.checkpoints import QueryPosition
from tests.kit.rest.fakes import FakeDispatcher, archived

_VERTEX = VertexId(f"{1:032x}")


def position(subtask: int, batch: int, acknowledged: int) -> QueryPosition:
    """What a subtask of `orders` has answered."""
    return QueryPosition(
        _VERTEX, subtask, "orders", "0b1f3a52-6c07-4f7e-9a0a-8a3f0f6a3c11", batch, 12, 4096, acknowledged
    )


def completed(number: int, at: int, *, is_discarded: bool = False) -> ArchivedCheckpoint:
    """A checkpoint of both subtasks, which have answered after 28 and 38 milliseconds."""
    positions = (position(0, 40 + number, at + 28), position(1, 39 + number, at + 38))
    return ArchivedCheckpoint(
        number, CheckpointStatus.COMPLETED, at, at + 40, at + 38, 8192, 2, 2, is_discarded, positions=positions
    )


def checkpoints_at(at: int) -> ArchivedCheckpoints:
    """Number 7 is under way, 6 is completed, 5 has failed, 4 was subsumed, and queries have gone on behind 4."""
    first = (position(0, 47, at + 12),)
    pending = ArchivedCheckpoint(
        7, CheckpointStatus.IN_PROGRESS, at, -1, at + 12, 4096, 2, 1,
        positions=first, missing=(SubtaskOfCheckpoint(_VERTEX, 1),),
    )  # fmt: skip
    failed = ArchivedCheckpoint(
        5, CheckpointStatus.FAILED, at - 20_000, at - 15_000, -1, 0, 2, 0,
        failure="Checkpoint was declined. orders (1/2): the query has ended",
        missing=(SubtaskOfCheckpoint(_VERTEX, 0), SubtaskOfCheckpoint(_VERTEX, 1)),
    )  # fmt: skip
    before, latest = completed(4, at - 30_000, is_discarded=True), completed(6, at - 10_000)
    return ArchivedCheckpoints(
        interval_millis=10_000,
        timeout_millis=600_000,
        min_pause_millis=500,
        tolerable_failures=3,
        restored_count=1,
        in_progress_count=1,
        completed_count=2,
        failed_count=1,
        state_bytes=ArchivedSummary(8192, 8192, 8192, (8192.0,) * 5),
        duration_millis=ArchivedSummary(30, 38, 34, (34.0, 38.0, 38.0, 38.0, 38.0)),
        history=(pending, latest, failed, before),
        latest_completed=latest,
        latest_failed=replace(failed, missing=()),
        restored=replace(before, positions=()),
        restored_millis=at - 25_000,
    )


CHECKPOINTS = checkpoints_at(1_000_000)


def streaming_graph(job_id: JobId, *streams: StreamProgress, is_running: bool = True) -> ArchivedExecutionGraph:
    """The first of its two vertices is the query `orders` with two subtasks; the first has told of `streams`."""
    graph = archived(job_id, JobStatus.RUNNING if is_running else JobStatus.FINISHED)
    first, second = graph.vertices
    (subtask,) = first.subtasks
    subtasks = (
        replace(subtask, current=replace(subtask.current, streams=streams)),
        ArchivedSubtask(1, subtask.current, ()),
    )
    first = replace(first, parallelism=2, stream_uid="orders", subtasks=subtasks)
    return replace(graph, job_type=JobType.STREAMING, vertices=(first, second))


def put_streams(dispatcher: FakeDispatcher, job_id: JobId, *streams: StreamProgress) -> None:
    """Make a streaming job known that runs."""
    dispatcher.put(job_id, JobStatus.RUNNING)
    dispatcher.graphs[job_id] = streaming_graph(job_id, *streams)
    dispatcher.summaries[job_id] = replace(dispatcher.summaries[job_id], job_type=JobType.STREAMING)


def put_checkpoints(
    dispatcher: FakeDispatcher, job_id: JobId, checkpoints: ArchivedCheckpoints | None, *streams: StreamProgress
) -> None:
    """Make a streaming job known that runs and has checkpoints."""
    put_streams(dispatcher, job_id, *streams)
    dispatcher.graphs[job_id] = replace(dispatcher.graphs[job_id], checkpoints=checkpoints)
