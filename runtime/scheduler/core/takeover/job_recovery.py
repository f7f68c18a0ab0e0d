"""The durable part of an execution graph, rebuilt from the job graph and the events of earlier owners.

Invariant: after any number of batches it equals what the owner that wrote them had made durable (R10): which attempts
are accepted with which partitions, which attempt of a subtask comes next, what failed, and what was counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from runtime.common.ids import ExecutionAttemptId, JobId, PartitionId, VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived_rescales import Rescale
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.failures import FailureHistory
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.rescales import VertexBounds
from runtime.gateways.task import FailureInfo
from runtime.jobgraph.graph import JobGraph
from runtime.scheduler.core.failover.settings import FailoverSettings
from runtime.scheduler.core.job_events import (
    AttemptFinished,
    BatchCommitted,
    FailureHandled,
    HandedSplit,
    JobEvent,
    JobRescaled,
    JobStarted,
    OutputsCommitting,
    ParallelismDecided,
    PartitionsLost,
    PartitionsReleased,
    RequirementsChanged,
    RescaleEnded,
    SpeculativeAttempts,
    SplitsHandedOut,
    SubtasksReset,
)

Subtask = tuple[VertexId, int]


_BEFORE_ITS_FAILURE = (ExecutionState.CREATED, ExecutionState.DEPLOYING)


@dataclass(frozen=True, slots=True)
class HandledAttempt:
    """An attempt that has failed, by the clock of the owner at the time, and waits for its restart at `due_millis`.

    `deployed_millis`: -1 for one that was not deployed, and where an earlier release has stored the failure.
    """

    attempt_id: ExecutionAttemptId
    failure: FailureInfo
    deployed_millis: int
    failed_millis: int
    due_millis: int


class RecoveredJob:
    """A job as its events tell it. `graph` is attached; what is not accepted there is CREATED.

    `handled`: attempts whose failure an earlier owner has handled, and which are not reset yet. `bounds`, `rescales`:
    what was changed of a job that an AdaptiveScheduler has, in its order.
    """

    __slots__ = (
        "_due_millis",
        "bounds",
        "counted",
        "failures",
        "graph",
        "handled",
        "is_committing",
        "losses",
        "rescales",
        "started_millis",
    )

    def __init__(self, graph: ExecutionGraph, failures: FailureHistory) -> None:
        self.graph = graph
        self.failures = failures
        self.counted: list[tuple[int, float]] = []
        self.losses: dict[Subtask, int] = {}
        self.handled: dict[Subtask, HandledAttempt] = {}
        self.started_millis: int | None = None
        self.is_committing = False
        self.bounds: dict[VertexId, VertexBounds] = {}
        self.rescales: list[Rescale] = []
        self._due_millis = 0

    def apply(self, event: JobEvent, at_millis: int) -> None:
        """Take one event, in the order in which they were written."""
        match event:
            case JobStarted(started_millis):
                self.started_millis = started_millis
            case AttemptFinished():
                self._accept(event)
            case OutputsCommitting():
                self.is_committing = True
            case PartitionsReleased():
                return  # follows from who is accepted and who is reset
            case FailureHandled():
                self._fail(event)
            case PartitionsLost(partitions):
                self._lose(partitions)
            case SubtasksReset():
                for index, ordinal in zip(event.subtasks, event.ordinals, strict=True):
                    self._reset(event, index, ordinal, at_millis)
            case (
                BatchCommitted()
                | ParallelismDecided()
                | SpeculativeAttempts()
                | SplitsHandedOut()
                | RequirementsChanged()
                | JobRescaled()
                | RescaleEnded()
            ):
                self._note(event, at_millis)
            case _:
                assert_never(event)

    def _note(
        self,
        event: BatchCommitted
        | ParallelismDecided
        | SpeculativeAttempts
        | SplitsHandedOut
        | RequirementsChanged
        | JobRescaled
        | RescaleEnded,
        at_millis: int,
    ) -> None:
        match event:
            case BatchCommitted(vertex_id, index, batch):
                self.graph.vertices[vertex_id].note_committed(index, batch)
            case ParallelismDecided(vertex_id, shares, broadcast, reason):
                self.graph.decide(vertex_id, shares, broadcast, reason, at_millis)
            case SpeculativeAttempts(vertex_id, subtasks, ordinals):
                for index, ordinal in zip(subtasks, ordinals, strict=True):
                    self.graph.concurrent.note_number((vertex_id, index), ordinal)
            case SplitsHandedOut(vertex_id, handouts):
                self._hand_out(vertex_id, handouts)
            case RequirementsChanged(bounds):
                self.bounds |= {one.vertex_id: one for one in bounds}
            case JobRescaled():
                self._rescale(event, at_millis)
            case RescaleEnded(rescale):
                self.rescales.append(rescale)
            case _:
                assert_never(event)

    def _hand_out(self, vertex_id: VertexId, handouts: Iterable[HandedSplit]) -> None:
        handed = self.graph.vertices[vertex_id].handed
        assert handed is not None, vertex_id
        for one in handouts:
            assert len(handed.of(one.attempt_id)) == one.sequence, one
            handed.add(one.attempt_id, one.split)

    def _rescale(self, event: JobRescaled, at_millis: int) -> None:
        self.rescales.append(event.rescale)
        for changed, ordinals in zip(event.rescale.vertices, event.ordinals, strict=True):
            vertex = self.graph.vertices[changed.vertex_id]
            is_first = changed.vertex_id in event.unbegun
            self.graph.rescale(changed.vertex_id, changed.after, at_millis, is_first_to_begin=is_first)
            for execution, ordinal in zip(vertex.executions, ordinals, strict=True):
                execution.ordinal = ordinal
            for execution in vertex.retired.values():
                execution.ordinal += 1  # it has run, as far as is known
            self.handled = {one: how for one, how in self.handled.items() if one[0] != changed.vertex_id}

    def put_failed(self, at_millis: int) -> None:
        """After adoption: handled attempts that no TaskManager has are FAILED, and wait for their restart as before.

        They failed when their failure was handled, not at the takeover, which may come much later.
        """
        for (vertex_id, index), handled in self.handled.items():
            current = self.graph.vertices[vertex_id].executions[index]
            if current.state is ExecutionState.CREATED:
                failed_millis = min(handled.failed_millis, at_millis)
                execution = Execution(handled.attempt_id, current.ordinal, failed_millis)
                if handled.deployed_millis >= 0:
                    deployed_millis = min(handled.deployed_millis, failed_millis)
                    execution.timestamps |= dict.fromkeys(_BEFORE_ITS_FAILURE, deployed_millis)
                execution.failure = handled.failure
                execution.may_have_begun = True
                self.graph.adopt(execution)
                self.graph.transition(execution, ExecutionState.FAILED, failed_millis)

    def _lose(self, partitions: Iterable[PartitionId]) -> None:
        for subtask in {(one.producer.vertex_id, one.producer.subtask_index) for one in partitions}:
            self.losses[subtask] = self.losses.get(subtask, 0) + 1

    def _fail(self, event: FailureHandled) -> None:
        self.failures.add(event.exception, is_concurrent=event.is_concurrent)
        if event.backoff_seconds is not None:
            self.counted.append((event.at_millis, event.backoff_seconds))
        pause_millis = round((event.backoff_seconds or 0.0) * 1000)
        earliest = self._due_millis if event.is_concurrent else 0  # it falls into the pause of the one before
        self._due_millis = max(event.at_millis + pause_millis, earliest)
        is_told = len(event.deployed_millis) == len(event.attempts)
        told = event.deployed_millis if is_told else (-1,) * len(event.attempts)
        for attempt_id, deployed in zip(event.attempts, told, strict=True):
            handled = HandledAttempt(attempt_id, event.exception.failure, deployed, event.at_millis, self._due_millis)
            self.handled[attempt_id.vertex_id, attempt_id.subtask_index] = handled

    def _accept(self, event: AttemptFinished) -> None:
        execution = Execution.finished(event.attempt_id, event.ordinal, event.timestamps, event.location)
        execution.value = event.value
        execution.partitions = event.partitions
        execution.outputs = event.outputs
        execution.metrics = event.metrics
        execution.accumulators = event.accumulators  # R57
        execution.spark_work = event.spark_work
        if event.outputs:
            self.graph.vertex_of(execution).has_output_directories = True
        self.graph.restore(execution)

    def _reset(self, event: SubtasksReset, index: int, ordinal: int, at_millis: int) -> None:
        vertex = self.graph.vertices[event.vertex_id]
        execution = vertex.executions[index]
        if execution.is_accepted:
            execution = self.graph.reset(execution, at_millis)
        else:
            vertex.note_restart(index)
        execution.ordinal = ordinal
        execution.is_first_to_begin = index in event.unbegun
        self.handled.pop((event.vertex_id, index), None)


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
