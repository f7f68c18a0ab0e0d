"""TaskExecutorCore: what a TaskManager does about each order, report and timer.

Joins slots, jobs and attempts. Invariants beside theirs: every attempt that an owner sent ends in a terminal report;
a job that is ending starts nothing and reports nothing; a job leaves when none of its attempts runs; a fence is obeyed,
and contact regained, before anything that they forbid is run (R14).
"""

from __future__ import annotations

from typing import assert_never

from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId
from runtime.gateways.job_master import (
    AcknowledgeReports,
    AnswerSlotOffers,
    AnswerSplits,
    CancelTasks,
    CheckpointAnswered,
    CommitOutputs,
    DeployTasks,
    EndJob,
    EndSavepoint,
    FinishSavepoint,
    FreeSlots,
    RegisterJob,
    ReleasePartitions,
    SlotsLost,
    SplitRequest,
    SplitsRequested,
    TriggerCheckpoint,
    TriggerSavepoint,
)
from runtime.gateways.resource_manager import (
    JobsEnded,
    PreemptSlots,
    RequestSlot,
    SlotRequestRefused,
    SlotStatus,
)
from runtime.gateways.task import TaskExecutionReport
from runtime.taskexecutor.core.absence import OwnerAbsence
from runtime.taskexecutor.core.deployments import Deployments
from runtime.taskexecutor.core.events import (
    AskPositions,
    AttemptEnded,
    AttemptProgressed,
    AttemptReported,
    CensusRequested,
    ClusterChanged,
    ConnectJobMaster,
    ContactLost,
    ContactRegained,
    DeletePartitions,
    Deregistered,
    DoSavepoint,
    DrainChanged,
    Effect,
    EnvironmentRenewed,
    Event,
    FenceReadable,
    FenceRequested,
    ForgetJob,
    GiveSplit,
    JobMasterConnected,
    JobMasterDisconnected,
    MoveProgressed,
    OutputsMoved,
    OwnerMessage,
    OwnerNews,
    OwnersAwaited,
    OwnerSpoke,
    PositionsTold,
    Refused,
    Released,
    SavepointTold,
    SlotTimedOut,
    SplitWanted,
    StartSlotTimer,
    TellResourceManager,
)
from runtime.taskexecutor.core.isolation import Isolation, StopReason
from runtime.taskexecutor.core.jobs import Job, JobMasterLocation, JobTable
from runtime.taskexecutor.core.moves import Moves
from runtime.taskexecutor.core.owner_links import OwnerLinks
from runtime.taskexecutor.core.reports import AttemptLedger, AttemptState
from runtime.taskexecutor.core.slot_table import SlotState, TaskSlotTable
from runtime.taskexecutor.core.split_requests import SplitRequests
from runtime.taskexecutor.core.stopping import Stopping
from runtime.taskexecutor.core.tenancy import Tenancy
from runtime.taskexecutor.core.withdrawn_slots import WithdrawnSlots

_LETS_GO = (AnswerSlotOffers, CancelTasks, AcknowledgeReports, FreeSlots, ReleasePartitions, EndJob)
"""What is done already where the job is over: the leader's word of its end may overtake its owner's last ones."""


class TaskExecutorCore:
    """Pure. One instance per life of a TaskManager process."""

    def __init__(
        self,
        task_manager_id: str,
        *,
        slots: int,
        queue_max: int,
        reports_max: int,
        report_bytes_max: int,
        owner_timeout: float,
        has_tenants: bool = False,
    ) -> None:
        self.slots = TaskSlotTable(slots, queue_max=queue_max)
        self.ledger = AttemptLedger(reports_max=reports_max, bytes_max=report_bytes_max)
        self.jobs = JobTable()
        self.isolation = Isolation()
        self.moves = Moves(self.isolation)
        self.tenancy = Tenancy(self.slots, self.jobs, self.moves, is_enforced=has_tenants)
        self.stopping = Stopping(self.slots, self.ledger, self.isolation, self.moves)
        self._split_requests = SplitRequests()
        self._absence = OwnerAbsence(owner_timeout)
        self._owners = OwnerLinks(task_manager_id, self.slots, self.ledger, self.moves)
        self.withdrawn = WithdrawnSlots(self.slots, self.jobs, self._owners, self.stopping)
        self._deployments = Deployments(self.slots, self.ledger, self.jobs, self.isolation, self.stopping, self.tenancy)

    def handle(self, event: Event) -> list[Effect]:
        """Apply one event."""
        effects: list[Effect]
        match event:
            case RequestSlot() | PreemptSlots():
                effects = self._on_leader(event)
            case OwnerSpoke(owner, message):
                effects = self._on_owner_message(owner, message)
            case CensusRequested():
                effects = self._on_census_requested(event)
            case AttemptReported() | AttemptProgressed() | SplitWanted() | AttemptEnded():
                effects = self._on_attempt(event)
            case SlotTimedOut(allocation_id):
                effects = self._on_slot_timed_out(allocation_id)
            case JobsEnded() | ClusterChanged() | Deregistered():
                effects = self._on_end(event)
            case JobMasterConnected() | JobMasterDisconnected():
                effects = self._on_connection(event)
            case OutputsMoved() | MoveProgressed():
                effects = self._on_move(event)
            case EnvironmentRenewed():
                effects = self.tenancy.renewed()
            case _:
                effects = self._on_query_or_withdrawal(event)
        return effects + self.stopping.obeyed_fences()

    def _on_query_or_withdrawal(
        self,
        event: PositionsTold
        | SavepointTold
        | FenceRequested
        | FenceReadable
        | ContactLost
        | ContactRegained
        | OwnersAwaited
        | DrainChanged
        | Released,
    ) -> list[Effect]:
        if isinstance(event, PositionsTold | SavepointTold):
            return self._on_query(event)
        return self._on_withdrawal(event)

    def _on_end(self, event: JobsEnded | ClusterChanged | Deregistered) -> list[Effect]:
        if not isinstance(event, JobsEnded):
            return [effect for job in tuple(self.jobs) for effect in self._end_job(job.job_id, is_over=False)]
        kept = frozenset(event.kept)
        return [
            effect
            for job_id in event.jobs
            for effect in self._end_job(job_id, is_over=True, keeps_outputs=job_id in kept)
        ]

    def _on_connection(self, event: JobMasterConnected | JobMasterDisconnected) -> list[Effect]:
        match event:
            case JobMasterConnected(incarnation):
                self._owners.connect(incarnation)
                return [effect for job in self.jobs.owned_by(incarnation) for effect in self._resume(job)]
            case JobMasterDisconnected(incarnation):
                self._owners.disconnect(incarnation)
                return []
            case _:
                assert_never(event)

    def _on_move(self, event: OutputsMoved | MoveProgressed) -> list[Effect]:
        job = self.jobs.get(event.job_id)
        assert job is not None, event.job_id
        answer: OwnerNews | None
        if isinstance(event, MoveProgressed):
            answer, effects = self.moves.progressed(event), list[Effect]()
        else:
            answer, effects = self.moves.ended(event)
        told = self._owners.tell(job, answer) if answer is not None else []
        return told + effects + self._leave_if_over(job)

    def statuses(self) -> tuple[SlotStatus, ...]:
        """Which job holds which slot."""
        return self.slots.statuses()

    def has_jobs_of(self, incarnation: Incarnation) -> bool:
        """True while a stream to that process is needed."""
        return bool(self.jobs.owned_by(incarnation))

    def unattended_jobs(self, *, idle: bool) -> list[JobId]:
        """Jobs without an owner that is connected; with `idle` also those that have no slot here."""
        holding = {slot.job_id for slot in self.slots}
        return [
            job.job_id
            for job in self.jobs
            if not job.is_ending and (not self._owners.is_connected(job) or (idle and job.job_id not in holding))
        ]

    @property
    def running(self) -> int:
        """How many attempts run."""
        return sum(slot.running is not None for slot in self.slots)

    def check_invariants(self) -> None:
        """Raises AssertionError when the parts contradict each other."""
        self.slots.check_invariants()
        self.ledger.check_invariants()
        for slot in self.slots:
            if slot.job_id is not None:
                assert self.jobs.get(slot.job_id) is not None, (slot.index, slot.job_id)
            for task in slot.waiting:
                assert self.ledger.state(task.attempt_id) is AttemptState.WAITING, task.attempt_id

    # --- slots ----------------------------------------------------------------------------------------------

    def _on_leader(self, order: RequestSlot | PreemptSlots) -> list[Effect]:
        return self._on_request_slot(order) if isinstance(order, RequestSlot) else self.withdrawn.preempt(order)

    def _on_request_slot(self, request: RequestSlot) -> list[Effect]:
        refusal = self._slot_refusal(request)
        other_tenant = "" if refusal else self.tenancy.refusal(request.namespace)
        if refusal or other_tenant:
            slot = self.slots.slot(request.slot_index)
            wanted = (slot, *map(self.slots.slot, request.more_slots))
            is_free = not self.withdrawn.drain and not other_tenant and all(one and one.is_open for one in wanted)
            refused = SlotRequestRefused(request.allocation_id, request.slot_index, refusal or other_tenant, is_free)
            return [TellResourceManager(refused), *self.tenancy.orders()]
        location = JobMasterLocation(request.job_master_incarnation, request.job_master_address)
        job = self.jobs.admit(request.job_id, request.epoch, location)
        effects: list[Effect] = []
        slot = self.slots.held(request.job_id, request.allocation_id)
        if slot is None:
            slot = self.slots.slot(request.slot_index)
            assert slot is not None, request.slot_index
            more = [one for one in map(self.slots.slot, request.more_slots) if one is not None]
            self.slots.allocate(slot, request.allocation_id, request.job_id, request.profile, more)
            effects.append(StartSlotTimer(request.allocation_id))
        if not self._owners.is_connected(job):
            effects.append(ConnectJobMaster(job.owner))
        elif slot.state is SlotState.ALLOCATED:
            effects += self._owners.offer(job, [slot])
        return effects

    def _slot_refusal(self, request: RequestSlot) -> str:
        stale = self.jobs.refusal(request.job_id, request.epoch)  # R1, R7
        if stale or self.withdrawn.drain:
            return stale or self.withdrawn.drain
        indexes = dict.fromkeys((request.slot_index, *request.more_slots))
        wanted = [slot for slot in map(self.slots.slot, indexes) if slot is not None]
        if len(wanted) < 1 + len(request.more_slots):
            return f"there is no slot {', '.join(map(str, indexes))} on this TaskManager"
        if self.slots.was_freed(request.allocation_id):
            return f"allocation {request.allocation_id} has ended already"
        held = self.slots.holder(request.allocation_id)
        if held is wanted[0] and held.job_id == request.job_id and list(held.more) == wanted[1:]:
            return ""
        taken = held or next((slot.lent_to or slot for slot in wanted if not slot.is_open), None)
        if taken is None:
            return ""
        return f"slot {taken.index} is held by job {taken.job_id} with allocation {taken.allocation_id}"

    def _on_slot_timed_out(self, allocation_id: AllocationId) -> list[Effect]:
        for slot in self.slots:
            if slot.allocation_id == allocation_id and slot.state is SlotState.ALLOCATED:
                assert slot.job_id is not None, slot.index
                job = self.jobs.get(slot.job_id)
                assert job is not None, slot.job_id
                reason = "the job did not take the slot in time"
                lost = SlotsLost(job.job_id, job.epoch, (allocation_id,), reason)
                effects = self._owners.tell(job, lost)
                if not effects:  # R7
                    refused = SlotRequestRefused(
                        allocation_id, slot.index, reason, is_slot_free=True, is_owner_unreachable=True
                    )
                    effects.append(TellResourceManager(refused))
                effects += self._deployments.free(slot)
                self._leave_if_empty(job)
                return effects
        return []

    def _on_answer(self, job: Job, answer: AnswerSlotOffers) -> list[Effect]:
        effects: list[Effect] = []
        lost: list[AllocationId] = []
        for allocation_id in answer.accepted:
            slot = self.slots.held(job.job_id, allocation_id)
            if slot is None or slot.state is SlotState.RELEASING:
                lost.append(allocation_id)
            elif slot.state is SlotState.ALLOCATED:
                self.slots.activate(slot)
        if lost:
            reason = "the slot was freed before the job took it"
            effects += self._owners.tell(job, SlotsLost(job.job_id, job.epoch, tuple(lost), reason))
        return effects + self._deployments.release_allocations(job, answer.rejected)

    # --- what ends or forbids attempts though their owners do not -------------------------------------------

    def _on_withdrawal(
        self,
        event: FenceRequested | FenceReadable | ContactLost | ContactRegained | OwnersAwaited | DrainChanged | Released,
    ) -> list[Effect]:
        match event:
            case FenceRequested():
                return self.stopping.fence(event)
            case FenceReadable(job_id):
                self.isolation.reopen(job_id)
                return self.moves.reopened(job_id)
            case ContactLost(reason):
                self.isolation.is_isolated = True
                exclusive = [slot for slot in self.slots if slot.runs_exclusive]
                stopped = self.stopping.running(exclusive, StopReason.isolated(reason))
                return stopped + self.moves.contact_lost(reason)
            case ContactRegained():
                self.isolation.is_isolated = False
                return self._deployments.start_waiting() + self.moves.contact_regained()
            case OwnersAwaited(seconds):
                return self._on_owners_awaited(seconds)
            case DrainChanged() | Released():
                return self.withdrawn.drained(event)
            case _:
                assert_never(event)

    def _on_owners_awaited(self, seconds: float) -> list[Effect]:
        """R18: give up the tasks and slots, never the reports, of jobs that have had no owner for too long."""
        absent = [one for one in self.jobs if not one.is_ending and not self._owners.is_connected(one)]
        effects: list[Effect] = []
        for job_id in self._absence.passed(seconds, [job.job_id for job in absent]):
            job, slots = self.jobs.get(job_id), self.slots.of_job(job_id)
            assert job is not None, job_id
            message = f"no owner of the job has been connected for {self._absence.timeout:g} s"
            reason = StopReason.no_owner(f"{message} (taskmanager.jobmaster-timeout)")
            effects += self.stopping.waiting(slots, reason) + self.stopping.running(slots, reason)
            for slot in slots:
                effects += self._deployments.release(slot, reports=True)
            self._leave_if_empty(job)
        return effects

    # --- what owners say ------------------------------------------------------------------------------------

    def _on_owner_message(self, owner: JobMasterLocation, message: OwnerMessage) -> list[Effect]:
        if isinstance(message, RegisterJob):
            job_id, epoch = message.job.job_id, message.job.epoch
        else:
            job_id, epoch = message.job_id, message.epoch
        if isinstance(message, _LETS_GO) and self.jobs.is_over(job_id, epoch):
            return []
        refusal = self.jobs.refusal(job_id, epoch)
        if refusal:  # R1
            return [Refused(f"{type(message).__name__}: {refusal}")]
        job = self.jobs.admit(job_id, epoch, owner)
        effects: list[Effect] = []
        match message:
            case RegisterJob():
                job.information = message.job
            case AnswerSlotOffers():
                effects = self._on_answer(job, message)
            case DeployTasks():
                named = (job_id, epoch, message.fence_revision)
                fenced = self.isolation.refusal(*named) or self.isolation.unread(*named)
                reason = StopReason.isolated(fenced) if fenced else StopReason.drained(self.withdrawn.drain)
                effects = [effect for task in message.tasks for effect in self._deployments.deploy(job, task, reason)]
            case AnswerSplits():
                effects = [
                    GiveSplit(one.attempt_id, one.split) for one in self._split_requests.answered(message.answers)
                ]
            case CancelTasks():
                effects = [
                    effect for attempt_id in message.attempts for effect in self._deployments.cancel(job, attempt_id)
                ]
            case _:
                effects = self._on_release_message(job, message)
        self._leave_if_empty(job)
        return effects

    def _on_release_message(
        self,
        job: Job,
        message: AcknowledgeReports
        | FreeSlots
        | ReleasePartitions
        | CommitOutputs
        | TriggerCheckpoint
        | TriggerSavepoint
        | FinishSavepoint
        | EndSavepoint
        | EndJob,
    ) -> list[Effect]:
        match message:
            case AcknowledgeReports():
                return self._deployments.acknowledge(job, message.attempts)
            case FreeSlots():
                return self._deployments.release_allocations(job, message.allocations)
            case ReleasePartitions():
                return [DeletePartitions(message.partitions)]
            case CommitOutputs():
                fenced = self.isolation.refusal(job.job_id, message.epoch, message.fence_revision)
                return [Refused(f"CommitOutputs: {fenced}")] if fenced else self.moves.order(message)
            case EndJob():
                return self._end_job(job.job_id, is_over=True, keeps_outputs=message.keeps_outputs)
            case _:
                return self._on_stream_message(message)

    def _on_stream_message(
        self, message: TriggerCheckpoint | TriggerSavepoint | FinishSavepoint | EndSavepoint
    ) -> list[Effect]:
        """A hold is known before it takes effect, so that a new owner hears of it (R61)."""
        match message:
            case TriggerCheckpoint():
                return [AskPositions(message)]
            case TriggerSavepoint(holds=True):
                for attempt_id in message.attempts:
                    self.ledger.hold(attempt_id, message.operation)
            case EndSavepoint():
                for attempt_id in message.attempts:
                    self.ledger.hold(attempt_id, "")
            case _:
                pass
        return [DoSavepoint(message)]

    # --- attempts -------------------------------------------------------------------------------------------

    def _on_attempt(self, event: AttemptReported | AttemptProgressed | SplitWanted | AttemptEnded) -> list[Effect]:
        match event:
            case AttemptReported(report):
                return self._on_report(report)
            case AttemptProgressed():
                return self._on_progress(event)
            case AttemptEnded(slot_index, attempt_id):
                return self._on_attempt_ended(slot_index, attempt_id)
            case SplitWanted(attempt_id, sequence):
                return self._on_split_wanted(SplitRequest(attempt_id, sequence))
            case _:
                assert_never(event)

    def _on_query(self, event: PositionsTold | SavepointTold) -> list[Effect]:
        match event:
            case PositionsTold(job_id, checkpoint_id, answers):
                job = self.jobs.get(job_id)
                told = None if job is None else CheckpointAnswered(job_id, job.epoch, checkpoint_id, answers)
                return [] if job is None or told is None else self._owners.tell(job, told)
            case SavepointTold(message):
                job = self.jobs.get(message.job_id)
                # The answer to an owner of before: its operation is over.
                return [] if job is None or job.epoch != message.epoch else self._owners.tell(job, message)
            case _:
                assert_never(event)

    def _on_report(self, report: TaskExecutionReport) -> list[Effect]:
        job = self.jobs.get(report.attempt_id.job_id)
        if job is None or job.is_ending:
            return []
        report = self.isolation.explained(report)
        if not self.ledger.record(report):
            return []
        if report.state.is_terminal:
            self._split_requests.end(report.attempt_id)
        return self._owners.report(job, report)

    def _on_split_wanted(self, request: SplitRequest) -> list[Effect]:
        """Without a stream to the owner the next one begins with it."""
        job = self.jobs.get(request.attempt_id.job_id)
        if job is None or self.ledger.state(request.attempt_id) is not AttemptState.STARTED:
            return []
        self._split_requests.add(request)
        return self._owners.tell(job, SplitsRequested(job.job_id, job.epoch, (request,)))

    def _on_progress(self, event: AttemptProgressed) -> list[Effect]:
        attempt_id = event.progress.attempt_id
        job = self.jobs.get(attempt_id.job_id)
        if job is None or not self.ledger.note_progress(event.progress):
            return []
        return self._owners.progress(job, event.progress)

    def _on_attempt_ended(self, slot_index: int, attempt_id: ExecutionAttemptId) -> list[Effect]:
        slot = self.slots.slot(slot_index)
        assert slot is not None, slot_index
        self.slots.end_running(slot, attempt_id)
        if slot.state is not SlotState.RELEASING:
            return self._deployments.start_next(slot)
        effects = self._deployments.free(slot)
        job = self.jobs.get(attempt_id.job_id)
        return effects + (self._leave_if_over(job) if job is not None else [])

    # --- jobs -----------------------------------------------------------------------------------------------

    def _on_census_requested(self, request: CensusRequested) -> list[Effect]:
        """R6: from now on lower epochs are refused, also if nothing of the job is here."""
        refusal = self.jobs.refusal(request.job_id, request.epoch)
        if refusal:
            return [Refused(f"CensusRequest: {refusal}")]
        job = self.jobs.admit(request.job_id, request.epoch, request.owner)
        job.is_adopted = True
        if self._owners.is_connected(job):
            return self._resume(job)
        return [ConnectJobMaster(job.owner)]

    def _resume(self, job: Job) -> list[Effect]:
        """Tell an owner that is new, or has a new stream, everything that it may not have heard (R6, R10, R11)."""
        allocated = [slot for slot in self.slots.of_job(job.job_id) if slot.state is SlotState.ALLOCATED]
        effects = self._owners.census(job) + self._owners.offer(job, allocated) + self.withdrawn.tell(job)
        effects += self._owners.pending_reports(job) + self._owners.kept_progress(job)
        if requests := self._split_requests.of(job.job_id):
            effects += self._owners.tell(job, SplitsRequested(job.job_id, job.epoch, requests))
        return effects

    def _end_job(self, job_id: JobId, *, is_over: bool, keeps_outputs: bool = False) -> list[Effect]:
        job = self.jobs.get(job_id)
        if job is None:
            return [ForgetJob(job_id, is_over and not keeps_outputs)]
        job.is_over = job.is_over or is_over
        job.keeps_outputs = job.keeps_outputs or keeps_outputs
        if job.is_ending:
            return []
        had_room = self.ledger.has_room
        job.is_ending = True
        effects = self.moves.end_job(job_id)
        for slot in self.slots.of_job(job_id):
            if slot.state is SlotState.RELEASING:
                continue
            effects += self._deployments.release(slot, reports=False)
        self.ledger.end_job(job_id)
        self._split_requests.end_job(job_id)
        self.isolation.end_job(job_id)
        effects += self._leave_if_over(job)
        return effects if had_room else effects + self._deployments.start_waiting()

    def _leave_if_over(self, job: Job) -> list[Effect]:
        if not job.is_ending or self.slots.of_job(job.job_id) or self.moves.is_ordered(job.job_id):
            return []
        self.jobs.forget(job.job_id, has_ended=True)
        return [ForgetJob(job.job_id, job.is_over and not job.keeps_outputs)]

    def _leave_if_empty(self, job: Job) -> None:
        """A job that was only offered slots and never used one leaves without a trace."""
        if job.is_adopted or job.information is not None or self.moves.is_ordered(job.job_id):
            return
        if self.ledger.is_empty(job.job_id) and not self.slots.of_job(job.job_id):
            self.jobs.forget(job.job_id, has_ended=False)
