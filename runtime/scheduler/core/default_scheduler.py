"""Flink's default scheduler: tasks start when what they read is durable, and restart with their pipelined region.

Invariants (checked): an attempt is deployed only on durable inputs (R10); a slot holds at most one attempt that runs
and eight that wait; one batch of events is in flight at most; a job ends only when no attempt runs (R16).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self, assert_never

from runtime.checkpoint.core.checkpoints import CompletedCheckpoint
from runtime.common.ids import Incarnation
from runtime.common.states import ExecutionState, JobStatus, SchedulerType
from runtime.common.waiting import Waiting
from runtime.executiongraph.archived_checkpoints import ArchivedCheckpoints
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.failures import CONCURRENT_FAILURES_MAX, shown, system_failure
from runtime.gateways.job_master import (
    CheckpointAnswered,
    CommitOutputs,
    CommitProgress,
    DeployTasks,
    JobCensus,
    OfferSlots,
    OutputsCommitted,
    SavepointAnswered,
    SavepointFinished,
    SlotsDraining,
    SlotsLost,
    SplitsRequested,
    TaskProgresses,
    TaskReports,
)
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.rescales import UpdateRequirements
from runtime.gateways.task import FailureInfo, Fault, TaskExecutionReport
from runtime.jobgraph.graph import JobGraph
from runtime.scheduler.core.acceptance import Acceptance, Batch
from runtime.scheduler.core.adaptive.bounds import NOT_ADAPTIVE
from runtime.scheduler.core.attempt_places import check_places
from runtime.scheduler.core.effects import AnswerRequirements, ScheduleDeadline, ScheduleRestart, WriteEvents
from runtime.scheduler.core.events import SendFailed, TaskManagerSpoke
from runtime.scheduler.core.failover.execution_timeout import ExecutionTimeout
from runtime.scheduler.core.failover.failover import Failover
from runtime.scheduler.core.job_context import JobContext
from runtime.scheduler.core.outputs.output_commit import OutputCommit
from runtime.scheduler.core.parallelism.settings import AdaptiveSettings
from runtime.scheduler.core.parallelism.vertex_parallelism import VertexParallelism
from runtime.scheduler.core.scheduler import JobEnd, SlotNeeds
from runtime.scheduler.core.slots.placement import ON_ITS_WAY, Placement
from runtime.scheduler.core.speculation.speculative_execution import SpeculationCounts, SpeculativeExecution
from runtime.scheduler.core.split_assigner import SplitAssigner
from runtime.scheduler.core.stream_checkpoints import StreamCheckpoints
from runtime.scheduler.core.takeover.adoption import Adoption, adopt
from runtime.scheduler.core.takeover.inheritance import Inheritance
from runtime.scheduler.core.takeover.job_recovery import RecoveredJob
from runtime.scheduler.core.task_managers.losses import Loss, Losses
from runtime.scheduler.core.task_managers.reconnection import Reconnection
from runtime.scheduler.core.task_managers.reports import LateReports, failed_report, failures_last
from runtime.scheduler.core.waiting_reason import waiting_of

_ENDS = {JobStatus.CANCELLING: JobStatus.CANCELED, JobStatus.FAILING: JobStatus.FAILED}
_STARTED = frozenset({JobStatus.RUNNING, JobStatus.RESTARTING})
_ALIVE = _STARTED | {JobStatus.CREATED}


class DefaultScheduler:
    """Implements `Scheduler`. Its parts decide, each about one thing; it passes on what one part means for another."""

    __slots__ = (
        "_acceptance",
        "_checkpoints",
        "_commit",
        "_context",
        "_end",
        "_failover",
        "_graph",
        "_late_reports",
        "_losses",
        "_parallelism",
        "_placement",
        "_reconnection",
        "_speculation",
        "_splits",
        "_timeout",
    )

    def __init__(
        self,
        context: JobContext,
        recovered: RecoveredJob | None = None,
        *,
        batches: int = 0,
        checkpoints: Sequence[CompletedCheckpoint] = (),
        operations: Sequence[StreamOperation] = (),
    ) -> None:
        """`recovered`: what `batches` durable batches of events say of the job, None for a job that begins.

        `checkpoints`, `operations`: those that earlier owners have recorded.
        """
        started_millis = recovered.started_millis if recovered is not None else None
        is_committing = recovered is not None and recovered.is_committing
        graph, outbox, fences = context.graph, context.outbox, context.fences
        self._context = context
        self._graph = graph
        self._placement = Placement(graph, outbox, fences)
        self._acceptance = Acceptance(graph, first_number=batches)
        self._commit = OutputCommit(graph, self._placement, self._acceptance, outbox, fences, is_decided=is_committing)
        self._reconnection = Reconnection(graph, self._placement, self._commit, outbox)
        self._losses = Losses(graph, self._placement, self._commit, self._reconnection, fences)
        self._failover = Failover(graph, self._placement, self._acceptance, context.failures, context.settings)
        self._late_reports = LateReports(graph, self._placement, self._failover, outbox)
        self._timeout = ExecutionTimeout(graph, self._acceptance, started_millis)
        settings = self._adaptive_settings(context)
        self._parallelism = VertexParallelism(graph, self._acceptance, settings)
        self._speculation = SpeculativeExecution(context, self._placement, self._acceptance, settings.speculation)
        self._splits = SplitAssigner(graph, self._acceptance, outbox)
        self._checkpoints = StreamCheckpoints(context, self._acceptance, checkpoints, operations)
        self._end: JobEnd | None = None

    @staticmethod
    def _adaptive_settings(context: JobContext) -> AdaptiveSettings:
        """A vertex without a parallelism of its own gets `parallelism.default`."""
        job_graph = context.graph.job_graph
        assert job_graph is not None, context.graph.job_id
        return replace(context.adaptive_of(job_graph.configuration), is_enabled=False)

    # --- the beginning ------------------------------------------------------------------------------------

    @classmethod
    def started(cls, context: JobContext, job_graph: JobGraph) -> Self:
        """The scheduler of a job that has not run yet."""
        context.graph.attach(job_graph, context.at.millis)
        context.graph.enter(JobStatus.CREATED, context.at.millis)
        return cls(context)

    @classmethod
    def restored(cls, context: JobContext, found: Inheritance) -> Self:
        """Attach the graph, replay events, adopt running attempts (R6, R9, R10), and handle the kept messages."""
        graph, at = context.graph, context.at
        graph.attach(found.read.graph, at.millis)
        graph.takeovers = found.read.takeovers
        recovered = RecoveredJob(graph, context.failures)
        for batch in found.read.batches:
            for event in batch:
                recovered.apply(event, at.millis)
        adoptions = adopt(graph, found.answers, at.millis)
        recovered.put_failed(at.millis)
        read = found.read
        scheduler = cls(
            context,
            recovered,
            batches=len(read.batches),
            checkpoints=read.checkpoints,
            operations=read.operations,
        )
        scheduler.adopt(recovered, adoptions, found)
        return scheduler

    def adopt(self, recovered: RecoveredJob, adoptions: Sequence[Adoption], found: Inheritance) -> None:
        """Take over what TaskManagers have of the job, and go on where its last owner stopped."""
        self._failover.restore(recovered, self._context.at)
        for adoption in adoptions:
            self._placement.inherit(adoption, self._context.at)
            self._checkpoints.found_held(adoption.answer.attempts)
        self._commit.adopt([adoption.answer.location for adoption in adoptions if adoption.answer.is_moving])
        self._placement.lost.update(dict.fromkeys(sorted(found.unheard)))
        self._graph.enter(JobStatus.CREATED, self._context.at.millis)
        # What has events has started, whatever has become of it.
        if found.read.batches or any(one.state is not ExecutionState.CREATED for one in self._graph.executions()):
            self._run()
            self._await_restarts(self._failover.dues_after(self._context.at.monotonic), "taken over")
        self._context.changes += 1
        self._decide_parallelism()
        for event in found.kept:
            self.message(event)

    def _run(self) -> None:
        self._graph.enter(JobStatus.RUNNING, self._context.at.millis)
        if (deadline := self._timeout.start(self._context.at)) is not None:
            self._context.effects.append(ScheduleDeadline(deadline))

    # --- what others are told -----------------------------------------------------------------------------

    @property
    def scheduler_type(self) -> SchedulerType:
        """Flink's type Default."""
        return SchedulerType.DEFAULT

    @property
    def is_decided(self) -> bool:
        """True once the job can only finish, or fail with everything kept that a repeat needs (R26)."""
        return self._commit.is_decided

    @property
    def wants_tick(self) -> bool:
        """True when finished attempts, or events that nothing waits for, wait for a batch."""
        return self._acceptance.has_riders

    def slot_needs(self) -> SlotNeeds:
        """Slots for what may run, none once the job is ending."""
        is_alive = self._graph.status in _ALIVE
        requirements = self._placement.requirements(self._losses.unseen()) if is_alive else ()
        placement = self._placement
        return SlotNeeds(requirements, len(placement.pool), placement.unreachable, tuple(placement.blocked))

    def waiting(self, resources: Waiting) -> Waiting:
        """What the job waits for, if it does."""
        return waiting_of(self._graph, self._placement, self._losses, self._commit, self._failover, resources)

    # --- TaskManagers -------------------------------------------------------------------------------------

    def message(self, event: TaskManagerSpoke) -> None:
        """Take a message of a TaskManager about slots, attempts or outputs."""
        match event.message:
            case OfferSlots() as offered:
                self._offered(event, offered)
            case JobCensus() as census:
                self._reconnection.counted(event.location, census)
                self._checkpoints.found_held(census.attempts)
            case TaskReports(reports=reports):
                for report in failures_last(reports):
                    self._reported(report)
            case TaskProgresses(progresses=progresses):
                self._graph.progressed(progresses)
                self._checkpoints.progressed(progresses)
            case SlotsLost() as lost:
                self._lose(self._losses.slots_lost(lost))
            case SplitsRequested() as requested:
                self._splits.requested(requested)
            case SlotsDraining(allocations=allocations):
                self._placement.pool.close(allocations)
            case _:
                self._answered(event.message)

    def _answered(
        self,
        message: CommitProgress | OutputsCommitted | CheckpointAnswered | SavepointAnswered | SavepointFinished,
    ) -> None:
        match message:
            case CommitProgress():
                self._commit.progressed(message)
            case OutputsCommitted(order=order, failure=failure):
                self._outputs_committed(order, failure)
            case CheckpointAnswered():
                self._checkpoints.answered(message)
            case SavepointAnswered() | SavepointFinished():
                self._checkpoints.savepoint_told(message)
            case _:
                assert_never(message)

    def _offered(self, event: TaskManagerSpoke, message: OfferSlots) -> None:
        if self._end is None and self._graph.status in _ALIVE:
            self._placement.offered(event.location, message.offers)
            return
        letter = self._context.outbox.to(event.incarnation)
        letter.rejected.extend(offer.allocation_id for offer in message.offers)

    def _outputs_committed(self, order: int, failure: FailureInfo | None) -> None:
        if (problem := self._commit.answered(order, failure)) is not None:
            self._fail(problem, whose="the commit of the outputs")

    def send_failed(self, event: SendFailed) -> None:
        """Attempts that cannot be deployed have failed, a commit that cannot be ordered too."""
        match event.message:
            case DeployTasks(tasks=tasks):
                for task in tasks:
                    self._reported(failed_report(task.attempt_id, event.failure, event.at.millis))
            case CommitOutputs(order=order):
                self._outputs_committed(order, event.failure)
            case _:
                assert_never(event.message)

    def task_manager_disconnected(self, incarnation: Incarnation) -> None:
        """The last messages may not have arrived: the census on the TaskManager's next stream settles that (R11)."""
        self._reconnection.disconnected(incarnation)
        self._checkpoints.disconnected(incarnation)

    def task_manager_lost(self, incarnation: Incarnation, reason: str) -> None:
        """The attempts on the TaskManager have failed, except exclusive ones, which may still run (R14, R18)."""
        self._lose(self._losses.task_manager_lost(incarnation, reason))

    def task_manager_died(self, incarnation: Incarnation, reason: str) -> None:
        """All attempts on the TaskManager have failed (R13)."""
        self._lose(self._losses.task_manager_died(incarnation, reason))

    def task_manager_stopped(self, incarnation: Incarnation, how: str) -> None:
        """Exclusive attempts there have ended, which counts as no failure (R14)."""
        self._lose(self._losses.stopped(incarnation, how))

    # --- reports ------------------------------------------------------------------------------------------

    def _reported(self, report: TaskExecutionReport) -> None:
        execution = self._graph.execution(report.attempt_id)
        if execution is None or execution.location is None or execution.state.is_terminal:
            failed = self._late_reports.take(report)
            if failed is not None and self._graph.status in _ALIVE:
                self._fail(*failed)
            return
        if not report.state.is_terminal:
            if report.state in ON_ITS_WAY and execution.machine.can(report.state):
                self._transition(execution, report.state, report.timestamp_millis)
            return
        execution.metrics = report.metrics
        execution.accumulators = report.accumulators
        execution.spark_work = report.spark_work
        execution.may_have_begun = not report.has_not_begun
        problem = self._graph.incomplete(execution, report) or self._splits.problem_of(execution)
        conflict = "" if problem else self._commit.conflict(execution, report.outputs)
        if execution.state is ExecutionState.CANCELING:
            self._stopped(execution, report)
        elif report.state is ExecutionState.FINISHED and not problem and not conflict:
            self._speculation.finishing(execution)
            self._finished(execution, report)
            self._speculation.finished(execution)
        else:
            failure = report.failure or self._system_failure("TaskEndedError", problem)
            if conflict:
                failure = self._system_failure("OutputConflictError", conflict, kind="USER", is_recoverable=False)
            execution.failure = shown(failure)
            self._losses.refused(execution, failure)
            self._transition(execution, ExecutionState.FAILED, report.timestamp_millis)
            if self._not_outlived([execution], failure):
                self._tasks_failed([execution], failure)
        self._placement.ended(execution.attempt_id, self._context.at)

    def _finished(self, execution: Execution, report: TaskExecutionReport) -> None:
        execution.value = report.value
        execution.partitions = report.partitions
        execution.outputs = report.outputs
        if report.outputs:
            self._graph.vertex_of(execution).has_output_directories = True
        self._transition(execution, ExecutionState.FINISHED, report.timestamp_millis)
        self._acceptance.finished(execution)
        self._decide_parallelism()

    def _decide_parallelism(self) -> None:
        """Vertices whose inputs have finished get their subtasks, in the batch that accepts those inputs (R66)."""
        if self._graph.status in _ALIVE:
            for vertex in self._parallelism.decide(self._context.at.millis):
                self._placement.wait(vertex.executions)

    def _stopped(self, execution: Execution, report: TaskExecutionReport) -> None:
        """A cancelled attempt has ended (in Flink, too, one that finishes meanwhile is CANCELED)."""
        execution.failure = report.failure and shown(report.failure)
        is_failed = report.state is ExecutionState.FAILED
        ended = ExecutionState.FAILED if is_failed else ExecutionState.CANCELED
        self._transition(execution, ended, report.timestamp_millis)
        if self._graph.current(execution) is not execution:
            self._placement.release(report.partitions)  # another attempt of its subtask has finished first
            return
        if not is_failed or report.failure is None:
            return
        exception, status = self._context.failures.exception(report.failure, execution), self._graph.status
        if status in _ALIVE and (problem := self._failover.final([execution], report.failure)):
            self._fail(self._failover.suppressed(report.failure, problem), execution)  # R36
        elif status in _ALIVE:
            self._failover.concurrent(exception, self._context.at)
        elif status is not JobStatus.CANCELLING:
            self._context.failures.add(exception, is_concurrent=True)

    def _transition(self, execution: Execution, target: ExecutionState, at_millis: int) -> None:
        """Enter a state at the time the TaskManager says, as far as that lies between the last state and now."""
        latest = max(execution.timestamps.values())
        self._graph.transition(execution, target, max(latest, min(at_millis, self._context.at.millis)))
        self._context.changes += 1

    # --- failures -----------------------------------------------------------------------------------------

    def _lose(self, loss: Loss | None) -> None:
        """All attempts of a loss end first: what follows from one failure must not try to cancel the others."""
        if loss is None:
            return
        failed: list[Execution] = []
        failure = self._system_failure(loss.class_name, loss.reason)
        failure = replace(failure, is_isolation=loss.is_isolation, is_recoverable=loss.is_recoverable)
        for attempt_id in loss.attempts:
            execution = self._graph.execution(attempt_id)
            assert execution is not None, attempt_id
            if execution.state is ExecutionState.CANCELING:
                self._transition(execution, ExecutionState.CANCELED, self._context.at.millis)
            else:
                self._transition(execution, ExecutionState.FAILED, self._context.at.millis)
                failed.append(execution)
        for execution in failed:
            execution.failure = failure
        failed = self._not_outlived(failed, failure)
        if failed or not failure.is_recoverable:
            self._tasks_failed(failed, failure)

    def _not_outlived(self, executions: list[Execution], failure: FailureInfo) -> list[Execution]:
        """Those of them whose subtasks have no other attempt that may finish. Of the others only the history tells."""
        if not self._graph.concurrent or self._graph.status not in _ALIVE:
            return executions
        is_for_all = bool(failure.lost_partitions) or bool(self._failover.final(executions, failure))
        is_users = failure.at_fault is Fault.USER
        left = []
        for one in executions:
            if not self._speculation.is_outlived(one, is_for_all=is_for_all, is_users=is_users):
                left.append(one)
            else:
                self._failover.concurrent(self._context.failures.exception(failure, one), self._context.at)
        return left

    def _tasks_failed(self, executions: list[Execution], failure: FailureInfo) -> None:
        """Attempts have FAILED, for one reason: restart what depends on them, or end the job."""
        if self._graph.status not in _ALIVE:
            for one in executions:
                self._fail(failure, one)
            return
        kept: list[Execution | None] = [*executions[: CONCURRENT_FAILURES_MAX + 1]] or [None]
        exception, *others = [self._context.failures.exception(failure, one) for one in kept]
        problem = self._failover.failed(executions, failure, exception, self._context.at)
        if problem:
            self._fail(self._failover.suppressed(failure, problem), kept[0])
        for other in others:
            if problem:
                self._context.failures.add(other, is_concurrent=True)
            else:
                self._failover.concurrent(other, self._context.at)
        if not problem:
            dues = self._failover.dues_after(self._context.at.monotonic)
            self._await_restarts(dues[-1:], failure.class_name)

    def _await_restarts(self, dues: list[float], reason: str) -> None:
        if self._graph.status is JobStatus.RUNNING and self._failover.is_pending:
            self._graph.enter(JobStatus.RESTARTING, self._context.at.millis, reason)
        self._context.effects += map(ScheduleRestart, dues)

    def _system_failure(
        self, class_name: str, message: str, *, kind: str = "SYSTEM", is_recoverable: bool = True
    ) -> FailureInfo:
        millis = self._context.at.millis
        return system_failure(class_name, message, millis, kind=kind, is_recoverable=is_recoverable)

    # --- the end ------------------------------------------------------------------------------------------

    def _fail(self, failure: FailureInfo, execution: Execution | None = None, whose: str = "") -> None:
        """End the job by a failure, or note one while it ends."""
        history, status = self._context.failures, self._graph.status
        if status is not JobStatus.CANCELLING:
            exception = history.exception(failure, execution, whose)
            history.add(exception, is_concurrent=status is JobStatus.FAILING)
        if status in _ALIVE:
            self._graph.enter(JobStatus.FAILING, self._context.at.millis, failure.class_name)
            self._stop_attempts()

    def cancel(self, reason: str) -> None:
        """End the job, unless it is ending."""
        if self._graph.status in _ALIVE:
            self._context.failures.cancelled(reason, self._context.at.millis)
            self._graph.enter(JobStatus.CANCELLING, self._context.at.millis, reason)
            self._stop_attempts()

    def deadline_reached(self) -> None:
        """The job fails, if it runs and its outcome is open."""
        if self._end is None and self._graph.status in _STARTED and not self.is_decided:
            self._fail(self._timeout.failure(self._context.at))

    def _stop_attempts(self) -> None:
        self._checkpoints.stop()
        self._failover.stop()
        self._placement.stop(self._context.at)
        self._context.changes += 1

    def ended(self, *, keeps_outputs: bool) -> None:
        """The result is durable: every slot goes back, and every TaskManager that had one forgets the job."""
        self._placement.say_goodbye(keeps_outputs=keeps_outputs)

    # --- what follows from every event --------------------------------------------------------------------

    def advance(self) -> JobEnd | None:
        """Restart subtasks that are due, start those that can run, ask for the next write; or return the job's end."""
        self._speculation.sweep()
        end = self._advance_alive() if self._graph.status in _ALIVE else None
        if self._graph.status in _ENDS and self._graph.is_stopped and self._acceptance.in_flight is None:
            end = JobEnd(_ENDS[self._graph.status], keeps_outputs=self._commit.is_decided)
        if end is None and self._checkpoints.may_deploy:
            self._placement.release_idle()
        self._end = end
        return end

    def _advance_alive(self) -> JobEnd | None:
        at = self._context.at
        self._restart()
        if self._graph.is_finished and self._graph.is_stopped:
            self._commit.advance()
            if self._commit.is_complete():
                is_over = self._acceptance.in_flight is None and self._graph.status in _ALIVE
                return JobEnd(JobStatus.FINISHED) if is_over else None
        self._speculation.advance()
        if self._may_deploy and (problem := self._placement.schedule(at)):
            self._fail(self._system_failure("MixedResultKindsError", problem, kind="USER"))
        if self._may_deploy and self._placement.deploy(at) and self._graph.status is JobStatus.CREATED:
            self._run()
        self._splits.advance()
        if self._graph.is_finished:
            self._acceptance.make_due()
        if self._graph.status in _ALIVE and self._acceptance.is_due:
            self._write(self._acceptance.begin())
        self._advance_checkpoints()
        return None

    @property
    def _may_deploy(self) -> bool:
        return self._checkpoints.may_deploy

    @property
    def _is_restarting(self) -> bool:
        return self._failover.is_pending

    def _advance_checkpoints(self) -> None:
        self._checkpoints.advance()
        if self._graph.status in _ALIVE and (problem := self._checkpoints.problem):
            self._fail(self._system_failure("CheckpointException", problem, is_recoverable=False))

    def checkpoint_written(self, checkpoint_id: int) -> None:
        """The record of a checkpoint is durable."""
        self._checkpoints.recorded(checkpoint_id)

    def operation_wanted(self, wanted: TriggerOperation) -> None:
        """A client wants a checkpoint, a savepoint, or a stop with one."""
        self._checkpoints.operation_wanted(wanted)

    def operation_written(self, operation: StreamOperation, dropped: Sequence[str]) -> None:
        """The record of an operation is durable."""
        self._checkpoints.operation_written(operation, dropped)

    def requirements_wanted(self, wanted: UpdateRequirements) -> None:
        """Refused."""
        self._context.effects.append(AnswerRequirements(wanted.request_id, NOT_ADAPTIVE))

    def checkpoints(self) -> ArchivedCheckpoints | None:
        """What is shown of them; None for a job without streaming queries."""
        return self._checkpoints.archived()

    @property
    def failed_checkpoints(self) -> int:
        """How many checkpoints have failed under this owner."""
        return self._checkpoints.failed_count

    @property
    def preempted_attempts(self) -> int:
        """How many attempts have ended under this owner because their slots went to other queues."""
        return self._failover.preempted

    @property
    def speculation(self) -> SpeculationCounts:
        """Slow tasks under this owner, and what became of them."""
        return self._speculation.counts

    def ticked(self) -> None:
        """Write the events that have waited to be written together with later ones."""
        self._acceptance.make_due()

    def _write(self, batch: Batch) -> None:
        self._context.effects.append(WriteEvents(batch.number, batch.events()))

    def _restart(self) -> None:
        """Reset the subtasks that are due; the job is RUNNING again when no subtask waits for its restart any more."""
        batch, problem = self._failover.advance(self._context.at)
        if batch is not None:
            self._write(batch)
        if problem:
            self._fail(self._system_failure("RestartImpossibleError", problem))
        elif self._graph.status is JobStatus.RESTARTING and not self._is_restarting:
            self._graph.enter(JobStatus.RUNNING, self._context.at.millis)

    def events_written(self, number: int) -> None:
        """Acknowledge accepted reports, release read partitions, and reset restarting subtasks (R10)."""
        batch = self._acceptance.complete(number)
        for execution in batch.executions:
            self._placement.acknowledge(execution)
        self._placement.release(batch.released)
        self._placement.inputs_accepted()
        self._commit.written(batch)
        self._speculation.written(batch)
        self._splits.written(batch)
        if batch.resets and self._graph.status in _ALIVE:
            self._reset(batch.resets)

    def _reset(self, executions: list[Execution]) -> None:
        """The attempts are replaced. What their TaskManagers keep of them they need not keep any more (R10)."""
        for execution in executions:
            if execution.location is not None and not execution.is_accepted:
                self._placement.acknowledge(execution)
        self._checkpoints.note_restarts(executions)
        self._failover.reset(executions, self._context.at)
        self._context.changes += 1

    def check_invariants(self) -> None:
        """Raises AssertionError when slots and attempts contradict each other."""
        self._placement.pool.check_invariants()
        self._checkpoints.check_invariants()
        self._splits.check_invariants()
        check_places(self._graph, self._placement, self._losses)
