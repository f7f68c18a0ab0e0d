"""Checkpoints of the job's streaming queries: what the coordinator needs of graph and TaskManagers, and its orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from runtime.checkpoint.core.checkpoint_archive import archived_checkpoints, with_savepoints
from runtime.checkpoint.core.checkpoint_coordinator import (
    AskPositions,
    CheckpointCoordinator,
    RecordCheckpoint,
    WakeUp,
)
from runtime.checkpoint.core.checkpoints import CompletedCheckpoint
from runtime.checkpoint.core.stream_operations import (
    CopyQueries,
    EndOperation,
    FinishCopies,
    OperationOrder,
    RecordOperation,
    StreamOperations,
    WakeUpOperation,
)
from runtime.common.ids import ExecutionAttemptId, Incarnation, VertexId
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import NO_BATCH
from runtime.executiongraph.archived_checkpoints import ArchivedCheckpoints
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.checkpoints import QueryPosition
from runtime.gateways.job_master import (
    CheckpointAnswer,
    CheckpointAnswered,
    EndedQuery,
    EndSavepoint,
    FinishSavepoint,
    HeldAttempt,
    SavepointAnswered,
    SavepointFinished,
    TriggerSavepoint,
)
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation, TriggerOperation
from runtime.gateways.task import TaskProgress
from runtime.jobgraph.splits import query_number
from runtime.jobgraph.streams import StreamSinkSpec
from runtime.scheduler.core.acceptance import Acceptance
from runtime.scheduler.core.effects import AnswerOperation, ScheduleRestart, WriteCheckpoint, WriteOperation
from runtime.scheduler.core.job_context import JobContext
from runtime.scheduler.core.job_events import BatchCommitted
from runtime.scheduler.core.slots.deployment import splits_of

NO_QUERIES = "the job has no streaming query: there is no state of which a checkpoint or savepoint could be made"

NO_DRAIN = (
    "the queries of this job are started by its script, which alone knows how to start them again to read what is "
    "there: stop the job without drain"
)
NO_DRAIN_OF_SEVERAL = (
    "queries that can be rescaled (jobmanager.scheduler: Adaptive) share slots, and do not read to the end of what is "
    "there one by one: stop the job without drain"
)
NOT_STARTED = "The script has started no query yet whose state the cluster keeps."


class StreamCheckpoints:
    """Of one job under one owner. A job without streaming queries has no coordinator, and costs nothing here."""

    __slots__ = ("_acceptance", "_context", "_coordinator", "_graph", "_operations")

    def __init__(
        self,
        context: JobContext,
        acceptance: Acceptance,
        completed: Sequence[CompletedCheckpoint] = (),
        operations: Sequence[StreamOperation] = (),
    ) -> None:
        self._context = context
        self._acceptance = acceptance
        self._graph: ExecutionGraph = context.graph
        self._coordinator: CheckpointCoordinator | None = None
        self._operations: StreamOperations | None = None
        if any(vertex.vertex.runs_queries for vertex in self._graph.vertices.values()):
            taken = max((one.checkpoint_id for one in operations), default=0)
            self._coordinator = CheckpointCoordinator(
                context.checkpointing, context.at.monotonic, completed=completed, taken=taken, named=self._named
            )
            self._operations = StreamOperations(self._graph.job_id, self._coordinator, operations, named=self._named)
            self._graph.finishes_queries = self._operations.is_stopped
            for one in operations:
                self._count_savepoint(one, above=self._coordinator.statistics.completed_count)
        for position in completed[-1].positions if completed else ():
            self._committed(position.vertex_id, position.subtask_index, position.batch_id)

    def archived(self) -> ArchivedCheckpoints | None:
        """What is shown of them; None for a job without queries."""
        if self._coordinator is None or self._operations is None:
            return None
        shown = with_savepoints(archived_checkpoints(self._coordinator), self._operations)
        graph, begun = self._graph.job_graph, self._begun_millis()
        savepoint = graph.savepoint if graph is not None else None
        if savepoint is None or shown.restored is not None or begun is None:
            return shown
        count = shown.restored_count + 1
        return replace(shown, restored_count=count, restored_millis=begun, restored_savepoint=savepoint.path)

    @property
    def problem(self) -> str:
        """Why the job has to fail, "" as long as it has not to."""
        return "" if self._coordinator is None else self._coordinator.problem

    @property
    def failed_count(self) -> int:
        """Checkpoints that this owner has not made."""
        return 0 if self._coordinator is None else self._coordinator.statistics.failed_count

    def progressed(self, progresses: Sequence[TaskProgress]) -> None:
        """Queries have told which batches their directories have: later attempts must find these (R59)."""
        if self._coordinator is None:
            return
        for progress in progresses:
            execution = self._graph.execution(progress.attempt_id)
            if execution is None or self._graph.vertex_of(execution).vertex.stream_sink is None:
                continue  # of a script's queries the directories alone tell it
            for stream in progress.streams:
                if stream.committed_batch is not None:
                    index = self._number(execution, query_number(stream.name))
                    self._committed(progress.attempt_id.vertex_id, index, stream.committed_batch)

    def _number(self, execution: Execution, told: int | None) -> int:
        """Which query of its vertex an attempt tells of: that of its subtask, or of one of its splits (R68)."""
        vertex, index = self._graph.vertex_of(execution), execution.attempt_id.subtask_index
        is_its_own = told is not None and told < vertex.queries and told % vertex.parallelism == index
        return told if told is not None and is_its_own else index

    def _committed(self, vertex_id: VertexId, index: int, batch: int) -> None:
        vertex = self._graph.vertices[vertex_id]
        if batch == NO_BATCH:
            return
        if index not in vertex.committed:
            self._acceptance.record(BatchCommitted(vertex_id, index, batch), rides=True)
        vertex.note_committed(index, batch)

    def answered(self, message: CheckpointAnswered) -> None:
        """Queries have told their positions, or that they cannot."""
        if self._coordinator is None:
            return
        millis = self._context.at.millis
        for answer in message.answers:
            execution = self._graph.execution(answer.attempt_id)
            if execution is None or execution.state is not ExecutionState.RUNNING:
                continue
            sink = self._graph.vertex_of(execution).vertex.stream_sink
            has_none = answer.position is None and not answer.queries
            if answer.declined or (sink is not None and has_none):
                self._coordinator.declined(message.checkpoint_id, answer.attempt_id, answer.declined, millis)
            elif sink is None and not answer.queries:
                self._coordinator.not_begun(message.checkpoint_id, answer.attempt_id, NOT_STARTED, millis)
            else:
                self._acknowledged(message.checkpoint_id, answer, sink, execution)

    def _acknowledged(
        self, checkpoint_id: int, answer: CheckpointAnswer, sink: StreamSinkSpec | None, execution: Execution
    ) -> None:
        vertex_id = answer.attempt_id.vertex_id
        told = answer.queries if answer.position is None else (answer.position,)
        positions = [
            QueryPosition(
                vertex_id,
                self._number(execution, int(one.name) if sink is not None and one.name.isdecimal() else None),
                one.name if sink is None else sink.uid,
                one.query_id,
                one.batch_id,
                one.state_rows,
                one.state_bytes,
                self._context.at.millis,
            )
            for one in told
        ]
        for position in positions if sink is not None else ():
            self._committed(vertex_id, position.subtask_index, position.batch_id)
        assert self._coordinator is not None, checkpoint_id
        self._coordinator.acknowledged(checkpoint_id, answer.attempt_id, *positions)

    def disconnected(self, incarnation: Incarnation) -> None:
        """The stream to a TaskManager has ended, and what was said on it of a checkpoint may be lost."""
        if self._coordinator is None or self._operations is None:
            return
        there = [
            attempt_id
            for attempt_id in self._queries()
            if (found := self._graph.execution(attempt_id)) is not None
            and found.location is not None
            and found.location.incarnation == incarnation
        ]
        why = "The stream to a TaskManager of its queries has ended."
        self._coordinator.interrupted(there, why, self._context.at.millis)
        self._operations.interrupted(there, why)

    def recorded(self, checkpoint_id: int) -> None:
        """The record of a checkpoint is durable."""
        assert self._coordinator is not None, checkpoint_id
        self._coordinator.recorded(checkpoint_id, self._context.at.monotonic)
        self._context.changes += 1

    def note_restarts(self, executions: Sequence[Execution]) -> None:
        """These subtasks are started again: queries among them go on behind their last batches."""
        if self._coordinator is not None and any(map(self._is_query, executions)):
            self._coordinator.statistics.note_restored(self._context.at.millis)

    def stop(self) -> None:
        """The job is ending."""
        if self._coordinator is not None and self._operations is not None:
            self._coordinator.stop(self._context.at.millis)
            self._operations.stop()
            self._advance_operations()

    def advance(self) -> None:
        """Complete, end or begin a checkpoint or an operation, and send what it asks for."""
        if self._coordinator is None:
            return
        at = self._context.at
        self._advance_operations()
        for order in self._coordinator.advance(at.monotonic, at.millis, self._queries()):
            match order:
                case AskPositions(checkpoint_id, attempts):
                    for incarnation, asked in self._by_place(attempts).items():
                        self._context.outbox.to(incarnation).checkpoint = (checkpoint_id, tuple(asked))
                case RecordCheckpoint(checkpoint, subsumed):
                    self._context.effects.append(WriteCheckpoint(checkpoint, subsumed))
                case WakeUp(due):
                    self._context.effects.append(ScheduleRestart(due))

    def _begun_millis(self) -> int | None:
        """When the first of the queries began to run, in their present attempts; None if none runs yet."""
        running = [
            execution.timestamps[ExecutionState.RUNNING]
            for vertex in self._graph.vertices.values()
            if vertex.vertex.runs_queries
            for execution in vertex.executions
            if ExecutionState.RUNNING in execution.timestamps
        ]
        return min(running, default=None)

    # --- operations (R61) ---------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """True from the wish to stop the job with a savepoint on, as long as it has not failed."""
        return self._operations is not None and self._operations.is_stopping

    @property
    def may_deploy(self) -> bool:
        """False for the moment in which it is not known whether the job is stopped."""
        return self._operations is None or self._operations.may_deploy

    def operation_wanted(self, wanted: TriggerOperation) -> None:
        """A client wants one. It is answered at once if it is known or refused, else when its record is durable."""
        refusal = NO_QUERIES if self._operations is None else self._operations.refusal(wanted)
        refusal = refusal or self._of_a_script(wanted)
        if self._operations is None or refusal:
            self._context.effects.append(AnswerOperation(wanted.trigger_id, None, refusal))
        elif (known := self._operations.known(wanted.trigger_id)) is not None:
            self._context.effects.append(AnswerOperation(wanted.trigger_id, known))
        else:
            self._order(self._operations.want(wanted, self._context.at.millis))

    def _of_a_script(self, wanted: TriggerOperation) -> str:
        vertices = self._graph.vertices.values()
        if wanted.drains and any(vertex.queries for vertex in vertices):
            return NO_DRAIN_OF_SEVERAL
        is_script = any(vertex.vertex.is_streaming_script for vertex in vertices)
        return NO_DRAIN if is_script and wanted.drains else ""

    def operation_written(self, operation: StreamOperation, dropped: Sequence[str]) -> None:
        """The record of an operation is durable."""
        assert self._operations is not None, operation
        self._operations.recorded(operation, dropped)
        self._graph.finishes_queries = self._operations.is_stopped
        self._count_savepoint(operation)
        self._context.effects.append(AnswerOperation(operation.trigger_id, operation))
        self._context.changes += 1

    def _count_savepoint(self, operation: StreamOperation, *, above: int = 0) -> None:
        """Flink counts savepoints with the checkpoints. `above`: completed ones up to that number are counted."""
        assert self._coordinator is not None, operation
        is_completed = operation.state is OperationState.COMPLETED
        is_counted = is_completed and operation.checkpoint_id <= above
        if operation.directory and operation.state is not OperationState.IN_PROGRESS and not is_counted:
            self._coordinator.statistics.savepoint_ended(is_completed=is_completed)

    def savepoint_told(self, message: SavepointAnswered | SavepointFinished) -> None:
        """A TaskManager has copied queries, or made the last step, or cannot."""
        if self._operations is None:
            return
        if isinstance(message, SavepointFinished):
            at, size_bytes = self._context.at.millis, message.size_bytes
            self._operations.finished(message.operation, message.failure, at, size_bytes=size_bytes)
            return
        for answer in message.answers:
            count = max(1, len(answer.queries))
            self._operations.answered(message.operation, answer.attempt_id, answer.declined, count)

    def found_held(self, attempts: Sequence[HeldAttempt]) -> None:
        """A census names them: what is held here for an operation that is over waits for a word."""
        if self._operations is not None:
            self._operations.found_held({one.attempt_id: one.hold for one in attempts if one.hold})

    def _advance_operations(self) -> None:
        assert self._operations is not None
        assert self._coordinator is not None
        at = self._context.at
        self._order(self._operations.advance(at.monotonic, at.millis, self._queries(), self._ended()))
        self._coordinator.pause(is_paused=self._operations.holds, millis=at.millis)

    def _order(self, orders: Sequence[OperationOrder]) -> None:
        for order in orders:
            match order:
                case CopyQueries(operation, attempts, ended):
                    self._copy(operation, attempts, ended)
                case FinishCopies(operation, attempt_id, queries):
                    self._finish(operation, attempt_id, queries)
                case EndOperation(operation, attempts):
                    self._end(operation, attempts, finishes=order.finishes, discards=order.discards)
                case RecordOperation(operation, dropped):
                    self._context.effects.append(WriteOperation(operation, dropped))
                case WakeUpOperation(due):
                    self._context.effects.append(ScheduleRestart(due))
                case _:
                    assert_never(order)

    def _copy(
        self,
        operation: StreamOperation,
        attempts: Sequence[ExecutionAttemptId],
        ended: Sequence[ExecutionAttemptId],
    ) -> None:
        """What has ended is copied where the first of those runs that have not: all TaskManagers reach all of it."""
        job_id, epoch, part = self._graph.job_id, self._graph.epoch, part_of(operation.directory)
        holds = operation.kind is OperationKind.STOP
        for incarnation, asked in self._by_place(attempts).items():
            also = tuple(map(self._ended_query, ended)) if attempts[0] in asked else ()
            self._context.outbox.to(incarnation).savepoints.append(
                TriggerSavepoint(
                    job_id,
                    epoch,
                    operation.trigger_id,
                    part,
                    tuple(asked),
                    holds=holds,
                    drains=operation.drains,
                    ended=also,
                )
            )

    def _ended_query(self, attempt_id: ExecutionAttemptId) -> EndedQuery:
        vertex, index = self._graph.vertices[attempt_id.vertex_id], attempt_id.subtask_index
        sink = vertex.vertex.stream_sink
        assert sink is not None, attempt_id
        committed = vertex.committed.get(index, NO_BATCH)
        return EndedQuery(attempt_id, sink.uid, vertex.parallelism, splits_of(vertex, index), committed)

    def _finish(self, operation: StreamOperation, attempt_id: ExecutionAttemptId, queries: int) -> None:
        for incarnation in self._by_place([attempt_id]):
            self._context.outbox.to(incarnation).savepoints.append(
                FinishSavepoint(
                    self._graph.job_id,
                    self._graph.epoch,
                    operation.trigger_id,
                    part_of(operation.directory),
                    operation.directory,
                    operation.checkpoint_id,
                    operation.trigger_millis,
                    self._graph.name,
                    queries,
                )
            )

    def _end(
        self, operation: StreamOperation, attempts: Sequence[ExecutionAttemptId], *, finishes: bool, discards: bool
    ) -> None:
        job_id, epoch = self._graph.job_id, self._graph.epoch
        part = part_of(operation.directory) if discards else ""
        for incarnation, there in self._by_place(attempts).items():
            self._context.outbox.to(incarnation).savepoints.append(
                EndSavepoint(job_id, epoch, operation.trigger_id, tuple(there), finishes=finishes, part=part)
            )

    # --- the graph ----------------------------------------------------------------------------------------

    def _queries(self) -> dict[ExecutionAttemptId, bool]:
        """Current attempts of queries that have not finished, and whether they are RUNNING."""
        return {
            execution.attempt_id: execution.state is ExecutionState.RUNNING
            for vertex in self._graph.vertices.values()
            if vertex.vertex.runs_queries
            for execution in vertex.executions
            if execution.state is not ExecutionState.FINISHED
        }

    def _ended(self) -> list[ExecutionAttemptId]:
        """Attempts of queries that have finished."""
        return [
            execution.attempt_id
            for vertex in self._graph.vertices.values()
            if vertex.vertex.stream_sink is not None
            for execution in vertex.executions
            if execution.state is ExecutionState.FINISHED
        ]

    def _named(self, attempt_id: ExecutionAttemptId) -> str:
        """The query of an attempt, as its users know it."""
        vertex = self._graph.vertices[attempt_id.vertex_id]
        sink = vertex.vertex.stream_sink
        name = vertex.vertex.name if sink is None else sink.uid
        return f"query {name!r}, subtask {attempt_id.subtask_index} of {vertex.parallelism}"

    def _by_place(self, attempts: Sequence[ExecutionAttemptId]) -> dict[Incarnation, list[ExecutionAttemptId]]:
        found: dict[Incarnation, list[ExecutionAttemptId]] = {}
        for attempt_id in attempts:
            execution = self._graph.execution(attempt_id)
            if execution is not None and execution.location is not None:  # else it was replaced, and nothing of it runs
                found.setdefault(execution.location.incarnation, []).append(attempt_id)
        return found

    def _is_query(self, execution: Execution) -> bool:
        return self._graph.vertex_of(execution).vertex.runs_queries

    def check_invariants(self) -> None:
        """Raises AssertionError when the coordinator contradicts itself."""
        if self._coordinator is not None and self._operations is not None:
            self._coordinator.check_invariants()
            self._operations.check_invariants()


def part_of(directory: str) -> str:
    """Where a savepoint is written before it is whole (R60)."""
    target, _, name = directory.rpartition("/")
    return f"{target}/.{name}.part"
