"""Archived graphs of streaming jobs, for tests of REST and of its clients."""

from __future__ import annotations

from dataclasses import replace

from runtime.common.ids import JobId
from runtime.common.states import JobStatus, JobType
from runtime.common.stream_progress import StreamProgress
from runtime.executiongraph.archived import ArchivedExecutionGraph, ArchivedSubtask
from tests.kit.rest.fakes import FakeDispatcher, archived


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
