"""Every decision about one job under one owner: events in, effects out.

Invariants (checked): an attempt is deployed only on durable inputs (R10); a slot holds at most one attempt that runs
and eight that wait; one write of the job is in flight at most; after the result has been asked for nothing is deployed,
and the terminal state is entered, shown and told to TaskManagers only when it is durable (R3); a result is asked for
only when no attempt runs (R16).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.executiongraph.core.archive import archive, result_value
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.failures import CONCURRENT_FAILURES_MAX, FailureHistory, shown, system_failure
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.dispatcher import JobSummary
from runtime.gateways.task import FailureInfo, TaskExecutionReport
from runtime.jobgraph.graph import JobGraph
from runtime.jobmaster.core.declared_requirements import DeclaredRequirements
from runtime.jobmaster.core.publication import Publication
from runtime.jobmaster.core.reasons import Reasons
from runtime.jobmaster.core.recovery import Recovery
from runtime.scheduler.core import events as ev
from runtime.scheduler.core import late_reports
from runtime.scheduler.core.effects import (
    Effect,
    EndRunner,
    PublishSummary,
    ScheduleDeadline,
    ScheduleRestart,
    WriteEvents,
    WriteFence,
    WriteResult,
)
from runtime.scheduler.core.failover import failure_policy
from runtime.scheduler.core.failover_settings import NO_FAILOVER, FailoverSettings
from runtime.scheduler.core.fencing import Fences
from runtime.scheduler.core.inheritance import Inheritance
from runtime.scheduler.core.losses import Loss
from runtime.scheduler.core.outbox import Outbox
from runtime.scheduler.core.placement import ON_ITS_WAY
from runtime.scheduler.core.work import Work

_STOPPING = {JobStatus.CANCELLING: JobStatus.CANCELED, JobStatus.FAILING: JobStatus.FAILED}
_STARTED = frozenset({JobStatus.RUNNING, JobStatus.RESTARTING})
_ALIVE = _STARTED | {JobStatus.CREATED}


class JobMasterCore:
    """One job. `handle` is the only way to change it; `validate` makes it check everything after every event."""

    __slots__ = (
        "_at",
        "_declared",
        "_digest",
        "_effects",
        "_failover_settings",
        "_failures",
        "_fences",
        "_graph",
        "_is_over",
        "_outbox",
        "_publication",
        "_reasons",
        "_recovery",
        "_result",
        "_validate",
        "_work",
    )

    def __init__(
        self,
        job_id: JobId,
        epoch: int,
        *,
        digest: str,
        submit_millis: int,
        is_first_owner: bool = True,
        failover: FailoverSettings = NO_FAILOVER,
        validate: bool = False,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        self._graph = ExecutionGraph(
            job_id, epoch, submit_millis=submit_millis, prior_attempts_max=failover.prior_attempts_max
        )
        self._graph.namespace = namespace
        self._failover_settings = failover
        self._digest = digest
        self._validate = validate
        self._outbox = Outbox(job_id, epoch)
        self._failures = FailureHistory(self._graph, failover.exceptions_max, failover.enrich)
        self._publication = Publication(self._graph)
        self._declared = DeclaredRequirements()
        self._fences = Fences(failover.unconfirmed_wait)
        self._recovery = None if is_first_owner else Recovery()
        self._work: Work | None = None
        self._result: WriteResult | None = None
        self._effects: list[Effect] = []
        self._at = ev.Moment(0.0, submit_millis)
        self._reasons = Reasons()
        self._is_over = False

    @property
    def status(self) -> JobStatus:
        """Where the job is in its life; terminal only when that is durable (R3)."""
        return self._graph.status

    @property
    def graph(self) -> ExecutionGraph:
        """The execution graph, to look at."""
        return self._graph

    @property
    def awaited(self) -> frozenset[Incarnation]:
        """TaskManagers that have not said yet what they have of a job that had an owner before (R6)."""
        return self._recovery.awaited if self._recovery is not None else frozenset()

    @property
    def is_over(self) -> bool:
        """True once EndRunner was said: nothing has an effect any more."""
        return self._is_over

    @property
    def wants_tick(self) -> bool:
        """True when something was left for the process's wheel."""
        if self._is_over or self._result is not None:
            return False
        return self._publication.is_behind or (self._work is not None and self._work.acceptance.has_riders)

    @property
    def _is_decided(self) -> bool:
        """Too late for a cancel (R26)."""
        return self._result is not None or (self._work is not None and self._work.commit.is_decided)

    @property
    def _is_quiet(self) -> bool:
        """True while only the result is awaited, which takes milliseconds: the next thing shown is the end."""
        return self._result is not None and not self._reasons.store

    def summary(self) -> JobSummary:
        """What is known of the job now."""
        if not self._is_quiet and not self._is_over:
            return self._publication.refresh(self._reasons.pending(self._graph, self._work), self._at.millis)
        return self._publication.latest

    def archived(self) -> ArchivedExecutionGraph:
        """The execution graph as it is now."""
        if self._is_over and self._result is not None:
            return self._result.archived
        return self._archive(self.summary(), self._graph.timestamps)

    def _archive(self, summary: JobSummary, timestamps: Mapping[JobStatus, int]) -> ArchivedExecutionGraph:
        return archive(
            self._graph,
            digest=self._digest,
            status=summary.status,
            timestamps=timestamps,
            last_modification_millis=summary.last_modification_millis,
            pending_reason=summary.pending_reason,
            exceptions=self._failures.archived(),
            policy=failure_policy(self._graph, self._failover_settings),
            result=result_value(self._graph) if summary.status is JobStatus.FINISHED else "",
        )

    def handle(self, event: ev.Event) -> list[Effect]:
        """Take one event; the effects are to be executed in order."""
        if self._is_over:
            return []
        self._at = event.at
        self._apply(event)
        self._heed_fences()
        self._advance()
        self._conclude(event)
        self.check_invariants()
        effects, self._effects = self._effects, []
        return effects

    # --- events -------------------------------------------------------------------------------------------

    def _apply(self, event: ev.Event) -> None:
        match event:
            case ev.JobRead() | ev.TaskManagersRegistered() | ev.InitializationFailed(may_run=True):
                self._recover(event)
            case ev.JobGraphLoaded() | ev.InitializationFailed() | ev.InitializationDelayed():
                self._on_initialization(event)
            case ev.EventsWritten() | ev.WriteDelayed() | ev.ResultWritten() | ev.OwnershipLost():
                self._on_store(event)
            case ev.FenceWritten() | ev.FenceConfirmed():
                self._on_fence(event)
            case ev.CancelWanted() | ev.DeadlineReached() | ev.RestartDue() | ev.ResourcesNotified() | ev.Ticked():
                self._on_control(event)
            case _:
                self._on_task_manager(event)

    def _on_initialization(self, event: ev.InitializationEvent) -> None:
        if self.status is not JobStatus.INITIALIZING or self._result is not None:
            return
        match event:
            case ev.JobGraphLoaded(graph):
                self._start(graph)
            case ev.InitializationFailed():
                self._give_up(event)
            case ev.InitializationDelayed(reason):
                self._reasons.initialization = reason

    def _start(self, job_graph: JobGraph) -> None:
        self._graph.attach(job_graph, self._at.millis)
        self._graph.enter(JobStatus.CREATED, self._at.millis)
        self._work = Work(self._graph, self._outbox, self._failures, self._failover_settings, self._fences)

    def _recover(self, event: ev.RecoveryEvent | ev.TaskManagerEvent) -> None:
        """R6: nothing is decided before everything is known that earlier owners have left."""
        if self.status is not JobStatus.INITIALIZING or self._result is not None:
            return
        self._recovery = self._recovery or Recovery()
        self._recovery.take(event)
        self._go_on_recovering(self._recovery)

    def _go_on_recovering(self, recovery: Recovery) -> None:
        recovery.heed(self._fences)
        recovery.stop(self._outbox)
        self._reasons.initialization = recovery.reason
        found = recovery.complete()
        if isinstance(found, ev.InitializationFailed):
            self._give_up(found)
        elif found is not None:
            self._take_over(found, recovery.cancel_reason)

    def _give_up(self, event: ev.InitializationFailed) -> None:
        self._graph.name = event.name
        self._failures.add(self._failures.exception(event.failure, None), is_concurrent=False)
        reason = self._recovery.cancel_reason if self._recovery is not None else None
        if event.is_decided:
            reason = None  # R26: it came too late
        self._failures.cancelled(reason, self._at.millis)
        self._write_result(
            JobStatus.FAILED if reason is None else JobStatus.CANCELED, keeps_outputs=event.keeps_outputs
        )

    def _take_over(self, found: Inheritance, cancel_reason: str | None) -> None:
        self._recovery = None
        self._work = Work.taken_over(
            found, self._graph, self._outbox, self._failures, self._failover_settings, self._fences, self._at
        )
        self._graph.enter(JobStatus.CREATED, self._at.millis)
        # What has events has started, whatever has become of it.
        if found.read.batches or any(one.state is not ExecutionState.CREATED for one in self._graph.executions()):
            self._run()
            self._await_restarts(self._work.failover.dues_after(self._at.monotonic), "taken over")
        self._publication.counted()
        for event in found.kept:
            self._on_task_manager(event)
        if cancel_reason is not None:
            self._cancel(cancel_reason)

    def _on_store(self, event: ev.StoreEvent) -> None:
        match event:
            case ev.EventsWritten(number):
                self._reasons.store = ""
                self._on_events_written(number)
            case ev.WriteDelayed(reason):
                self._reasons.store = self._reasons.store or reason
            case ev.ResultWritten():
                self._on_result_written()
            case ev.OwnershipLost(reason):
                self._graph.enter(JobStatus.SUSPENDED, self._at.millis, reason)
                self._is_over = True

    def _on_control(self, event: ev.ControlEvent) -> None:
        match event:
            case ev.CancelWanted(reason=reason):
                self._cancel(reason)
            case ev.DeadlineReached():
                if self._work is not None and self.status in _STARTED and not self._is_decided:
                    self._fail(self._work.timeout.failure(self._at))
            case ev.RestartDue():
                return  # what is due is seen after every event
            case ev.ResourcesNotified(reason):
                self._reasons.resources = reason
            case ev.Ticked():
                if self._work is not None:
                    self._work.acceptance.make_due()

    def _on_task_manager(self, event: ev.TaskManagerEvent) -> None:
        work = self._work
        if self._recovery is not None:
            self._recover(event)
            return
        match event:
            case ev.SlotsOffered():
                self._on_offers(event)
            case ev.JobCounted() if work is not None:
                work.reconnection.counted(event)
            case ev.TaskManagerDisconnected(incarnation) if work is not None:
                work.reconnection.disconnected(incarnation)
            case ev.AttemptsReported() if work is not None:
                for report in event.failures_last():
                    self._on_report(work, report)
            case ev.AttemptsProgressed(progresses):
                self._graph.progressed(progresses)
            case ev.OutputsMoved() | ev.OutputsMoving() if work is not None:
                self._on_outputs(work, event)
            case ev.SlotsClosed() | ev.SlotsGone() | ev.TaskManagerGone() if work is not None:
                self._on_loss(work, event)
            case _:
                return  # nothing was deployed yet

    def _on_loss(self, work: Work, event: ev.SlotsClosed | ev.SlotsGone | ev.TaskManagerGone) -> None:
        for loss in work.losses.handle(event):
            self._lost(work, loss)

    # --- fences (R14) -------------------------------------------------------------------------------------

    def _on_fence(self, event: ev.FenceEvent) -> None:
        match event:
            case ev.FenceWritten(incarnation, revision):
                due = self._fences.written(incarnation, revision, self._at.monotonic)
                self._effects.append(ScheduleRestart(due))
            case ev.FenceConfirmed(incarnation):
                self._fences.confirmed(incarnation)
                self._fenced_off(incarnation, "it has confirmed that they are stopped")

    def _heed_fences(self) -> None:
        """What has been waited out, and what is to be written after this event."""
        for incarnation in self._fences.waited_out(self._at.monotonic):
            self._fenced_off(incarnation, "they are stopped by its guard (taskmanager.isolation-timeout)")
        if not self._is_over:
            self._effects += map(WriteFence, self._fences.take_to_write())

    def _fenced_off(self, incarnation: Incarnation, how: str) -> None:
        if self._recovery is not None:
            self._go_on_recovering(self._recovery)
        elif self._work is not None:
            for loss in self._work.losses.stopped(incarnation, how):
                self._lost(self._work, loss)

    def _on_offers(self, event: ev.SlotsOffered) -> None:
        if self._work is not None and self._result is None and self.status in _ALIVE:
            self._work.placement.offered(event.location, event.offers)
            return
        letter = self._outbox.to(event.location.incarnation)
        letter.rejected.extend(offer.allocation_id for offer in event.offers)

    def _on_outputs(self, work: Work, event: ev.OutputsMoved | ev.OutputsMoving) -> None:
        failure = work.commit.told(event)
        if failure is not None:
            self._fail(failure, whose="the commit of the outputs")

    # --- reports ------------------------------------------------------------------------------------------

    def _on_report(self, work: Work, report: TaskExecutionReport) -> None:
        execution = self._graph.execution(report.attempt_id)
        if execution is None or execution.location is None or execution.state.is_terminal:
            failed = late_reports.take(self._graph, work, self._outbox, report)
            if failed is not None and self.status in _ALIVE:
                self._fail(*failed)
            return
        if not report.state.is_terminal:
            if report.state in ON_ITS_WAY and execution.machine.can(report.state):
                self._transition(execution, report.state, report.timestamp_millis)
            return
        execution.metrics = report.metrics
        execution.may_have_begun = not report.has_not_begun
        problem = self._graph.incomplete(execution, report)
        conflict = "" if problem else work.commit.conflict(execution, report.outputs)
        if execution.state is ExecutionState.CANCELING:
            self._stopped(work, execution, report)
        elif report.state is ExecutionState.FINISHED and not problem and not conflict:
            self._finished(work, execution, report)
        else:
            failure = report.failure or self._system_failure("TaskEndedError", problem)
            if conflict:
                failure = self._system_failure("OutputConflictError", conflict, kind="USER", is_recoverable=False)
            execution.failure = shown(failure)
            work.losses.refused(execution, failure)
            self._transition(execution, ExecutionState.FAILED, report.timestamp_millis)
            self._tasks_failed(work, [execution], failure)
        work.placement.ended(execution.attempt_id, self._at)

    def _finished(self, work: Work, execution: Execution, report: TaskExecutionReport) -> None:
        execution.value = report.value
        execution.partitions = report.partitions
        execution.outputs = report.outputs
        if report.outputs:
            self._graph.vertex_of(execution).has_output_directories = True
        self._transition(execution, ExecutionState.FINISHED, report.timestamp_millis)
        work.acceptance.finished(execution)

    def _stopped(self, work: Work, execution: Execution, report: TaskExecutionReport) -> None:
        """A cancelled attempt has ended (in Flink, too, one that finishes meanwhile is CANCELED)."""
        execution.failure = report.failure and shown(report.failure)
        is_failed = report.state is ExecutionState.FAILED
        ended = ExecutionState.FAILED if is_failed else ExecutionState.CANCELED
        self._transition(execution, ended, report.timestamp_millis)
        if is_failed and report.failure is not None:
            exception = self._failures.exception(report.failure, execution)
            if self.status in _ALIVE and (problem := work.failover.final([execution], report.failure)):
                self._fail(work.failover.suppressed(report.failure, problem), execution)  # R36
            elif self.status in _ALIVE:
                work.failover.concurrent(exception, self._at)
            elif self.status is not JobStatus.CANCELLING:
                self._failures.add(exception, is_concurrent=True)

    def _lost(self, work: Work, loss: Loss) -> None:
        """All of them end first: what follows from the first failure must not try to cancel the others."""
        failed: list[Execution] = []
        failure = self._system_failure(loss.class_name, loss.reason)
        failure = replace(failure, is_isolation=loss.is_isolation, is_recoverable=loss.is_recoverable)
        for attempt_id in loss.attempts:
            execution = self._graph.execution(attempt_id)
            assert execution is not None, attempt_id
            if execution.state is ExecutionState.CANCELING:
                self._transition(execution, ExecutionState.CANCELED, self._at.millis)
            else:
                self._transition(execution, ExecutionState.FAILED, self._at.millis)
                failed.append(execution)
        for execution in failed:
            execution.failure = failure
        if failed or not failure.is_recoverable:
            self._tasks_failed(work, failed, failure)

    def _tasks_failed(self, work: Work, executions: list[Execution], failure: FailureInfo) -> None:
        """Attempts have FAILED, for one reason: restart what depends on them, or end the job."""
        if self.status not in _ALIVE:
            for one in executions:
                self._fail(failure, one)
            return
        kept: list[Execution | None] = [*executions[: CONCURRENT_FAILURES_MAX + 1]] or [None]
        exception, *others = [self._failures.exception(failure, one) for one in kept]
        problem = work.failover.failed(executions, failure, exception, self._at)
        if problem:
            self._fail(work.failover.suppressed(failure, problem), kept[0])
        for other in others:
            if problem:
                self._failures.add(other, is_concurrent=True)
            else:
                work.failover.concurrent(other, self._at)
        if not problem:
            self._await_restarts(work.failover.dues_after(self._at.monotonic)[-1:], failure.class_name)

    def _transition(self, execution: Execution, target: ExecutionState, at_millis: int) -> None:
        """Enter a state at the time the TaskManager says, as far as that lies between the last state and now."""
        latest = max(execution.timestamps.values())
        self._graph.transition(execution, target, max(latest, min(at_millis, self._at.millis)))
        self._publication.counted()

    def _system_failure(
        self, class_name: str, message: str, *, kind: str = "SYSTEM", is_recoverable: bool = True
    ) -> FailureInfo:
        return system_failure(class_name, message, self._at.millis, kind=kind, is_recoverable=is_recoverable)

    # --- the end of a job ---------------------------------------------------------------------------------

    def _fail(self, failure: FailureInfo, execution: Execution | None = None, whose: str = "") -> None:
        """End the job by a failure, or note one while it ends."""
        if self.status is not JobStatus.CANCELLING:
            exception = self._failures.exception(failure, execution, whose)
            self._failures.add(exception, is_concurrent=self.status is JobStatus.FAILING)
        if self.status in _ALIVE:
            self._graph.enter(JobStatus.FAILING, self._at.millis, failure.class_name)
            self._stop_attempts()

    def _cancel(self, reason: str) -> None:
        if self._is_decided:
            return
        if self._recovery is not None:
            self._recovery.cancel_reason = reason
        elif self.status is JobStatus.INITIALIZING:
            self._failures.cancelled(reason, self._at.millis)
            self._write_result(JobStatus.CANCELED)
        elif self.status in _ALIVE:
            self._failures.cancelled(reason, self._at.millis)
            self._graph.enter(JobStatus.CANCELLING, self._at.millis, reason)
            self._stop_attempts()

    def _stop_attempts(self) -> None:
        assert self._work is not None, self.status
        self._work.failover.stop()
        self._work.placement.stop(self._at)
        self._publication.counted()

    def _write_result(self, status: JobStatus, *, keeps_outputs: bool = False) -> None:
        """Ask for the terminal state to be made durable, as it will be shown (R3)."""
        summary = self._publication.ended(status, self._at.millis, keeps_outputs=keeps_outputs)
        archived = self._archive(summary, {**self._graph.timestamps, status: self._at.millis})
        self._result = WriteResult(status, archived, summary)
        self._effects.append(self._result)

    def _on_result_written(self) -> None:
        result = self._result
        assert result is not None, self.status
        self._graph.enter(result.status, result.summary.end_millis)
        if self._work is not None:
            self._work.placement.say_goodbye(keeps_outputs=result.summary.keeps_outputs)
        self._publication.latest = result.summary
        self._is_over = True

    # --- what follows from every event --------------------------------------------------------------------

    def _advance(self) -> None:
        work = self._work
        if work is None or self._result is not None or self._is_over:
            return
        if self.status in _ALIVE:
            self._advance_alive(work)
        if self.status in _STOPPING and self._graph.is_stopped and work.acceptance.in_flight is None:
            self._write_result(_STOPPING[self.status], keeps_outputs=work.commit.is_decided)
        if self._result is None:
            work.placement.release_idle()

    def _advance_alive(self, work: Work) -> None:
        self._restart(work)
        if self._graph.is_finished:
            work.commit.advance()
            if work.commit.is_complete():
                if work.acceptance.in_flight is None and self.status in _ALIVE:
                    self._write_result(JobStatus.FINISHED)
                return
        if problem := work.placement.schedule(self._at):
            self._fail(self._system_failure("MixedResultKindsError", problem, kind="USER"))
        if work.placement.deploy(self._at) and self.status is JobStatus.CREATED:
            self._run()
        if self._graph.is_finished:
            work.acceptance.make_due()
        if self.status in _ALIVE and work.acceptance.is_due:
            batch = work.acceptance.begin()
            self._effects.append(WriteEvents(batch.number, batch.events()))

    def _restart(self, work: Work) -> None:
        """Reset what is due; the job is RUNNING again when nothing waits for its restart any more."""
        batch, problem = work.failover.advance(self._at)
        if batch is not None:
            self._effects.append(WriteEvents(batch.number, batch.events()))
        if problem:
            self._fail(self._system_failure("RestartImpossibleError", problem))
        elif self.status is JobStatus.RESTARTING and not work.failover.is_pending:
            self._graph.enter(JobStatus.RUNNING, self._at.millis)

    def _run(self) -> None:
        self._graph.enter(JobStatus.RUNNING, self._at.millis)
        assert self._work is not None, self.status
        if (deadline := self._work.timeout.start(self._at)) is not None:
            self._effects.append(ScheduleDeadline(deadline))

    def _await_restarts(self, dues: list[float], reason: str) -> None:
        assert self._work is not None, self.status
        if self.status is JobStatus.RUNNING and self._work.failover.is_pending:
            self._graph.enter(JobStatus.RESTARTING, self._at.millis, reason)
        self._effects += map(ScheduleRestart, dues)

    def _on_events_written(self, number: int) -> None:
        work = self._work
        assert work is not None, number
        batch = work.acceptance.complete(number)
        for execution in batch.executions:
            work.placement.acknowledge(execution)
        work.placement.release(batch.released)
        work.placement.inputs_accepted()
        work.commit.written(batch)
        if batch.resets and self.status in _ALIVE:
            self._reset(work, batch.resets)

    def _reset(self, work: Work, executions: list[Execution]) -> None:
        """The attempts are replaced. What their TaskManagers keep of them they need not keep any more (R10)."""
        for execution in executions:
            if execution.location is not None and not execution.is_accepted:
                work.placement.acknowledge(execution)
        work.failover.reset(executions, self._at)
        self._publication.counted()

    def _conclude(self, event: ev.Event) -> None:
        """Put the effects in order: messages, writes, then what the Dispatcher is told."""
        told: list[Effect] = []
        if self._is_over:
            latest = self._publication.latest if self.status.is_globally_terminal else None
            if latest is not None:
                told = [*self._declared.update(self._graph, self._work, is_alive=False), PublishSummary(latest)]
            told.append(EndRunner(latest))
        elif not self._is_quiet:
            if self._result is None:
                told += self._declared.update(self._graph, self._work, is_alive=self.status in _ALIVE)
            self._publication.refresh(self._reasons.pending(self._graph, self._work), self._at.millis)
            if self._publication.is_due or (isinstance(event, ev.Ticked) and self._publication.is_behind):
                told.append(PublishSummary(self._publication.pushed()))
        self._effects = [*self._outbox.take(), *self._effects, *told]

    def check_invariants(self) -> None:
        """Raises AssertionError when the job contradicts itself. Everything is checked only with `validate`."""
        has_ended = self._graph.is_stopped or self._work is None
        assert self._result is None or self.status is JobStatus.SUSPENDED or has_ended
        if not self._validate or self._work is None:
            return
        self._graph.check_invariants()
        self._work.check_invariants(self._graph)
