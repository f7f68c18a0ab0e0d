"""What an owner knows of a job that others had before: the durable part of the execution graph, from graph and events.

Invariant: after any number of batches it equals what the owner that wrote them had made durable (R10): who is accepted
with which partitions, which attempt of a subtask comes next, what failed, and what was counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from runtime.common.ids import JobId, VertexId
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.failures import FailureHistory
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.jobgraph.graph import JobGraph
from runtime.scheduler.core.failover_settings import FailoverSettings
from runtime.scheduler.core.job_events import (
    AttemptFinished,
    FailureHandled,
    JobEvent,
    PartitionsLost,
    PartitionsReleased,
    SubtasksReset,
)

Subtask = tuple[VertexId, int]


class RecoveredJob:
    """A job as its events tell it. `graph` is attached; what is not accepted there is CREATED."""

    __slots__ = ("counted", "failures", "graph", "losses")

    def __init__(self, graph: ExecutionGraph, failures: FailureHistory) -> None:
        self.graph = graph
        self.failures = failures
        self.counted: list[tuple[int, float]] = []
        self.losses: dict[Subtask, int] = {}

    def apply(self, event: JobEvent, at_millis: int) -> None:
        """Take one event, in the order in which they were written."""
        match event:
            case AttemptFinished():
                self._accept(event)
            case PartitionsReleased():
                return  # follows from who is accepted and who is reset
            case FailureHandled(exception, failed_millis, is_concurrent, backoff):
                self.failures.add(exception, is_concurrent=is_concurrent)
                if backoff is not None:
                    self.counted.append((failed_millis, backoff))
            case PartitionsLost(partitions):
                for subtask in {(one.producer.vertex_id, one.producer.subtask_index) for one in partitions}:
                    self.losses[subtask] = self.losses.get(subtask, 0) + 1
            case SubtasksReset(vertex_id, subtasks, ordinals):
                for index, ordinal in zip(subtasks, ordinals, strict=True):
                    self._reset(vertex_id, index, ordinal, at_millis)
            case _:
                assert_never(event)

    def _accept(self, event: AttemptFinished) -> None:
        execution = Execution.finished(event.attempt_id, event.ordinal, event.timestamps, event.location)
        execution.value = event.value
        execution.partitions = event.partitions
        execution.outputs = event.outputs
        execution.metrics = event.metrics
        if event.outputs:
            self.graph.vertex_of(execution).has_output_directories = True
        self.graph.restore(execution)

    def _reset(self, vertex_id: VertexId, index: int, ordinal: int, at_millis: int) -> None:
        execution = self.graph.vertices[vertex_id].executions[index]
        if execution.is_accepted:
            execution = self.graph.reset(execution, at_millis)
        execution.ordinal = ordinal


def recover(
    job_graph: JobGraph,
    job_id: JobId,
    epoch: int,
    events: Iterable[JobEvent],
    *,
    submit_millis: int,
    at_millis: int,
    settings: FailoverSettings,
) -> RecoveredJob:
    """The durable part of a job, for the owner with that epoch. New attempts carry it (R9)."""
    graph = ExecutionGraph(job_id, epoch, submit_millis=submit_millis, prior_attempts_max=settings.prior_attempts_max)
    graph.attach(job_graph, at_millis)
    recovered = RecoveredJob(graph, FailureHistory(graph, settings.exceptions_max, settings.enrich))
    for event in events:
        recovered.apply(event, at_millis)
    return recovered
