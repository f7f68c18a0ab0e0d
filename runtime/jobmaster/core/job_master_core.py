"""Every decision about one job under one owner: events in, effects out.

The core itself decides how a job begins (afresh, or taken over), when TaskManagers are fenced off, how it ends and
what is shown of it; what happens between is its scheduler's. Invariants (checked): writes of the job are made one after
the other; after the result has been asked for nothing is deployed, and the terminal state is entered, shown and told to
TaskManagers only when it is durable (R3); a result is asked for only when no attempt runs (R16).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from runtime.common.checkpoint_settings import NO_CHECKPOINTS, CheckpointSettings
from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.states import JobStatus, SchedulerType
from runtime.common.waiting import NOT_WAITING, Waiting, WaitingKind
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.executiongraph.core.archive import archive, result_value
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.dispatcher import JobSummary
from runtime.gateways.job_master import OfferSlots
from runtime.jobmaster.core.declared_requirements import DeclaredRequirements
from runtime.jobmaster.core.publication import Publication
from runtime.jobmaster.core.reasons import Reasons
from runtime.jobmaster.core.recovery import Recovery
from runtime.scheduler.core import events as ev
from runtime.scheduler.core.adaptive.settings import DEFAULT_ADAPTIVE_SCHEDULER, AdaptiveSchedulerSettings
from runtime.scheduler.core.effects import (
    AnswerOperation,
    AnswerRequirements,
    Effect,
    EndRunner,
    PublishSummary,
    ScheduleRestart,
    WriteFence,
    WriteResult,
)
from runtime.scheduler.core.failover.failover import failure_policy
from runtime.scheduler.core.failover.settings import NO_FAILOVER, FailoverSettings
from runtime.scheduler.core.job_context import JobContext
from runtime.scheduler.core.parallelism.settings import AdaptiveOf, default_adaptive
from runtime.scheduler.core.scheduler import JobEnd, Scheduler
from runtime.scheduler.core.scheduler_factory import rescales_of, restore_scheduler, start_scheduler
from runtime.scheduler.core.speculation.speculative_execution import NO_SPECULATIONS, SpeculationCounts
from runtime.scheduler.core.takeover.inheritance import Inheritance


class JobMasterCore:
    """One job. `handle` is the only way to change it; `validate` makes it check everything after every event."""

    __slots__ = (
        "_context",
        "_declared",
        "_digest",
        "_graph",
        "_is_over",
        "_publication",
        "_reasons",
        "_recovery",
        "_result",
        "_scheduler",
        "_validate",
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
        checkpointing: CheckpointSettings = NO_CHECKPOINTS,
        scheduler_type: SchedulerType = SchedulerType.ADAPTIVE_BATCH,
        adaptive_of: AdaptiveOf = default_adaptive,
        adaptive: AdaptiveSchedulerSettings = DEFAULT_ADAPTIVE_SCHEDULER,
    ) -> None:
        self._graph = ExecutionGraph(
            job_id, epoch, submit_millis=submit_millis, prior_attempts_max=failover.prior_attempts_max
        )
        self._graph.namespace = namespace
        self._digest = digest
        self._validate = validate
        self._context = JobContext(
            self._graph,
            failover,
            ev.Moment(0.0, submit_millis),
            checkpointing,
            scheduler_type=scheduler_type,
            adaptive_of=adaptive_of,
            adaptive=adaptive,
        )
        self._publication = Publication(self._context)
        self._declared = DeclaredRequirements()
        self._recovery = None if is_first_owner else Recovery()
        self._scheduler: Scheduler | None = None
        self._result: WriteResult | None = None
        self._reasons = Reasons()
        self._is_over = False

    # --- what is seen of it -------------------------------------------------------------------------------

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
        """True when something was left for the wheel of the process."""
        if self._is_over or self._result is not None:
            return False
        return self._publication.is_behind or (self._scheduler is not None and self._scheduler.wants_tick)

    @property
    def _is_decided(self) -> bool:
        """True when a cancel comes too late (R26)."""
        return self._result is not None or (self._scheduler is not None and self._scheduler.is_decided)

    @property
    def _is_quiet(self) -> bool:
        """True while only the result is awaited, which takes milliseconds: the next thing shown is the end."""
        return self._result is not None and not self._reasons.store

    def summary(self) -> JobSummary:
        """What is known of the job now."""
        if not self._is_quiet and not self._is_over:
            return self._refreshed()
        return self._publication.latest

    def _refreshed(self) -> JobSummary:
        waiting = self._reasons.pending(self._graph.status, self._scheduler)
        return self._publication.refresh(waiting, self._context.at.millis)

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
            exceptions=self._context.failures.archived(),
            policy=failure_policy(self._graph, self._context.settings),
            result=result_value(self._graph) if summary.status is JobStatus.FINISHED else "",
            checkpoints=self._scheduler.checkpoints() if self._scheduler is not None else None,
            rescales=rescales_of(self._scheduler),
        )

    # --- events -------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event) -> list[Effect]:
        """Take one event; the effects are to be executed in order."""
        if self._is_over:
            return []
        self._context.at = event.at
        self._apply(event)
        self._heed_fences()
        self._advance()
        self._conclude(event)
        self.check_invariants()
        effects, self._context.effects = self._context.effects, []
        return effects

    def _apply(self, event: ev.Event) -> None:
        match event:
            case ev.JobRead() | ev.TaskManagersRegistered() | ev.InitializationFailed(may_run=True):
                self._recover(event)
            case ev.JobGraphLoaded() | ev.InitializationFailed() | ev.InitializationDelayed():
                self._on_initialization(event)
            case (
                ev.EventsWritten()
                | ev.CheckpointWritten()
                | ev.OperationWritten()
                | ev.WriteDelayed()
                | ev.ResultWritten()
                | ev.OwnershipLost()
            ):
                self._on_store(event)
            case ev.FenceWritten() | ev.FenceConfirmed():
                self._on_fence(event)
            case (
                ev.CancelWanted()
                | ev.OperationWanted()
                | ev.RequirementsWanted()
                | ev.DeadlineReached()
                | ev.RestartDue()
                | ev.ResourcesNotified()
                | ev.Ticked()
            ):
                self._on_control(event)
            case (
                ev.TaskManagerSpoke()
                | ev.TaskManagerDisconnected()
                | ev.TaskManagerLost()
                | ev.TaskManagerDied()
                | ev.SendFailed()
            ):
                self._on_task_manager(event)
            case _:
                assert_never(event)

    def _on_store(self, event: ev.StoreEvent) -> None:
        match event:
            case ev.EventsWritten(number):
                self._reasons.store = NOT_WAITING
                assert self._scheduler is not None, number
                self._scheduler.events_written(number)
            case ev.CheckpointWritten(checkpoint_id):
                self._reasons.store = NOT_WAITING
                assert self._scheduler is not None, checkpoint_id
                self._scheduler.checkpoint_written(checkpoint_id)
            case ev.OperationWritten(operation, dropped):
                self._reasons.store = NOT_WAITING
                assert self._scheduler is not None, operation
                self._scheduler.operation_written(operation, dropped)
            case ev.WriteDelayed(reason):
                self._reasons.store = self._reasons.store or Waiting(WaitingKind.STORE, reason)
            case ev.ResultWritten():
                self._on_result_written()
            case ev.OwnershipLost(reason):
                self._graph.enter(JobStatus.SUSPENDED, self._context.at.millis, reason)
                self._is_over = True
            case _:
                assert_never(event)

    def _on_control(self, event: ev.ControlEvent) -> None:
        match event:
            case ev.CancelWanted(reason=reason):
                self._cancel(reason)
            case ev.OperationWanted() | ev.RequirementsWanted():
                self._on_wanted(event)
            case ev.DeadlineReached():
                if self._scheduler is not None:
                    self._scheduler.deadline_reached()
            case ev.RestartDue():
                return  # what is due is seen after every event
            case ev.ResourcesNotified(waiting):
                self._reasons.resources = waiting
            case ev.Ticked():
                if self._scheduler is not None:
                    self._scheduler.ticked()
            case _:
                assert_never(event)

    @property
    def failed_checkpoints(self) -> int:
        """How many checkpoints of the job have failed under this owner."""
        return 0 if self._scheduler is None else self._scheduler.failed_checkpoints

    @property
    def preempted_attempts(self) -> int:
        """How many attempts of the job have ended under this owner because their slots went to other queues."""
        return 0 if self._scheduler is None else self._scheduler.preempted_attempts

    @property
    def speculation(self) -> SpeculationCounts:
        """Slow tasks of the job under this owner, and what became of them."""
        return NO_SPECULATIONS if self._scheduler is None else self._scheduler.speculation

    def _on_wanted(self, event: ev.OperationWanted | ev.RequirementsWanted) -> None:
        is_ending = self._result is not None
        refusal = "the job is ending" if is_ending else "the job is being initialized: ask again when it runs"
        scheduler = None if is_ending else self._scheduler
        answer: AnswerOperation | AnswerRequirements
        match event:
            case ev.OperationWanted(wanted=operation):
                if scheduler is not None:
                    scheduler.operation_wanted(operation)
                    return
                answer = AnswerOperation(operation.trigger_id, None, refusal, is_for_now=not is_ending)
            case ev.RequirementsWanted(wanted=requirements):
                if scheduler is not None:
                    scheduler.requirements_wanted(requirements)
                    return
                answer = AnswerRequirements(requirements.request_id, refusal, is_for_now=not is_ending)
            case _:
                assert_never(event)
        self._context.effects.append(answer)

    def _on_task_manager(self, event: ev.TaskManagerEvent) -> None:
        if self._recovery is not None:
            self._recover(event)
        elif self._scheduler is not None:
            _pass_on(event, self._scheduler)
        elif isinstance(event, ev.TaskManagerSpoke) and isinstance(event.message, OfferSlots):
            letter = self._context.outbox.to(event.incarnation)
            letter.rejected.extend(offer.allocation_id for offer in event.message.offers)

    # --- the beginning ------------------------------------------------------------------------------------

    def _on_initialization(self, event: ev.InitializationEvent) -> None:
        if self.status is not JobStatus.INITIALIZING or self._result is not None:
            return
        match event:
            case ev.JobGraphLoaded(graph, checkpointing=checkpointing):
                self._context.checkpointing = checkpointing or self._context.checkpointing
                self._scheduler = start_scheduler(self._context, graph)
            case ev.InitializationFailed():
                self._give_up(event)
            case ev.InitializationDelayed(reason):
                self._reasons.initialization = Waiting(WaitingKind.STORE, reason)
            case _:
                assert_never(event)

    def _recover(self, event: ev.RecoveryEvent | ev.TaskManagerEvent) -> None:
        """Collect what earlier owners have left. The core decides nothing before it has all of that (R6)."""
        if self.status is not JobStatus.INITIALIZING or self._result is not None:
            return
        self._recovery = self._recovery or Recovery()
        self._recovery.take(event)
        self._go_on_recovering(self._recovery)

    def _go_on_recovering(self, recovery: Recovery) -> None:
        recovery.heed(self._context.fences)
        recovery.stop(self._context.outbox)
        self._reasons.initialization = recovery.waiting
        found = recovery.complete()
        if isinstance(found, ev.InitializationFailed):
            self._give_up(found)
        elif found is not None:
            self._take_over(found, recovery.cancel_reason)

    def _take_over(self, found: Inheritance, cancel_reason: str | None) -> None:
        self._recovery = None
        self._context.checkpointing = found.read.checkpointing or self._context.checkpointing
        self._scheduler = restore_scheduler(self._context, found)
        if cancel_reason is not None:
            self._cancel(cancel_reason)

    def _give_up(self, event: ev.InitializationFailed) -> None:
        failures = self._context.failures
        self._graph.name = event.name
        failures.add(failures.exception(event.failure, None), is_concurrent=False)
        reason = self._recovery.cancel_reason if self._recovery is not None else None
        if event.is_decided:
            reason = None  # R26: it came too late
        failures.cancelled(reason, self._context.at.millis)
        status = JobStatus.FAILED if reason is None else JobStatus.CANCELED
        self._write_result(JobEnd(status, keeps_outputs=event.keeps_outputs))

    # --- fences (R14) -------------------------------------------------------------------------------------

    def _on_fence(self, event: ev.FenceEvent) -> None:
        match event:
            case ev.FenceWritten(incarnation, revision):
                due = self._context.fences.written(incarnation, revision, self._context.at.monotonic)
                self._context.effects.append(ScheduleRestart(due))
            case ev.FenceConfirmed(incarnation):
                self._context.fences.confirmed(incarnation)
                self._stopped(incarnation, "it has confirmed that they are stopped")
            case _:
                assert_never(event)

    def _heed_fences(self) -> None:
        """Note fences that are waited out, and ask for those that are to be written."""
        fences = self._context.fences
        for incarnation in fences.waited_out(self._context.at.monotonic):
            self._stopped(incarnation, "they are stopped by its guard (taskmanager.isolation-timeout)")
        if not self._is_over:
            self._context.effects += map(WriteFence, fences.take_to_write())

    def _stopped(self, incarnation: Incarnation, how: str) -> None:
        if self._recovery is not None:
            self._go_on_recovering(self._recovery)
        elif self._scheduler is not None:
            self._scheduler.task_manager_stopped(incarnation, how)

    # --- the end ------------------------------------------------------------------------------------------

    def _cancel(self, reason: str) -> None:
        if self._is_decided:
            return
        if self._recovery is not None:
            self._recovery.cancel_reason = reason
        elif self._scheduler is not None:
            self._scheduler.cancel(reason)
        elif self.status is JobStatus.INITIALIZING:
            self._context.failures.cancelled(reason, self._context.at.millis)
            self._write_result(JobEnd(JobStatus.CANCELED))

    def _advance(self) -> None:
        if self._scheduler is None or self._result is not None or self._is_over:
            return
        if (end := self._scheduler.advance()) is not None:
            self._write_result(end)

    def _write_result(self, end: JobEnd) -> None:
        """Ask for the terminal state to be made durable, as it will be shown (R3)."""
        millis = self._context.at.millis
        summary = self._publication.ended(end.status, millis, keeps_outputs=end.keeps_outputs)
        archived = self._archive(summary, {**self._graph.timestamps, end.status: millis})
        self._result = WriteResult(end.status, archived, summary)
        self._context.effects.append(self._result)

    def _on_result_written(self) -> None:
        result = self._result
        assert result is not None, self.status
        self._graph.enter(result.status, result.summary.end_millis)
        if self._scheduler is not None:
            self._scheduler.ended(keeps_outputs=result.summary.keeps_outputs)
        self._publication.latest = result.summary
        self._is_over = True

    # --- after every event --------------------------------------------------------------------------------

    def _conclude(self, event: ev.Event) -> None:
        """Put the effects in order: messages, writes, then what the Dispatcher is told."""
        told: list[Effect] = []
        if self._is_over:
            latest = self._publication.latest if self.status.is_globally_terminal else None
            if latest is not None:
                told = [*self._declared.update(self._graph, self._scheduler), PublishSummary(latest)]
            told.append(EndRunner(latest))
        elif not self._is_quiet:
            if self._result is None:
                told += self._declared.update(self._graph, self._scheduler)
            self._refreshed()
            if self._publication.is_due or (isinstance(event, ev.Ticked) and self._publication.is_behind):
                told.append(PublishSummary(self._publication.push()))
        self._context.effects = [*self._context.outbox.take(), *self._context.effects, *told]

    def check_invariants(self) -> None:
        """Raises AssertionError when the job contradicts itself. Everything is checked only with `validate`."""
        has_ended = self._graph.is_stopped or self._scheduler is None
        assert self._result is None or self.status is JobStatus.SUSPENDED or has_ended
        if not self._validate or self._scheduler is None:
            return
        self._graph.check_invariants()
        self._scheduler.check_invariants()


def _pass_on(event: ev.TaskManagerEvent, scheduler: Scheduler) -> None:
    match event:
        case ev.TaskManagerSpoke():
            scheduler.message(event)
        case ev.TaskManagerDisconnected(incarnation):
            scheduler.task_manager_disconnected(incarnation)
        case ev.TaskManagerLost(incarnation, reason):
            scheduler.task_manager_lost(incarnation, reason)
        case ev.TaskManagerDied(incarnation, reason):
            scheduler.task_manager_died(incarnation, reason)
        case ev.SendFailed():
            scheduler.send_failed(event)
        case _:
            assert_never(event)
