"""What runs and what waits in the slots of a TaskManager: deployed, started, cancelled, released. Pure.

Invariants: every attempt that an owner sent ends in a terminal report; a slot is freed when nothing of it runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.common.ids import AllocationId, ExecutionAttemptId
from runtime.common.states import ExecutionState
from runtime.gateways.task import TaskDeploymentDescriptor
from runtime.taskexecutor.core.events import CancelAttempt, Effect, FreeSlot, Refused, ReportUnstarted, RunAttempt
from runtime.taskexecutor.core.isolation import Isolation, StopReason
from runtime.taskexecutor.core.jobs import Job, JobTable
from runtime.taskexecutor.core.reports import AttemptLedger, AttemptState
from runtime.taskexecutor.core.slot_table import SlotState, TaskSlot, TaskSlotTable
from runtime.taskexecutor.core.stopping import Stopping
from runtime.taskexecutor.core.tenancy import Tenancy


class Deployments:
    """Decisions about the attempts in one TaskManager's slots."""

    def __init__(
        self,
        slots: TaskSlotTable,
        ledger: AttemptLedger,
        jobs: JobTable,
        isolation: Isolation,
        stopping: Stopping,
        tenancy: Tenancy,
    ) -> None:
        self._slots = slots
        self._ledger = ledger
        self._jobs = jobs
        self._isolation = isolation
        self._stopping = stopping
        self._tenancy = tenancy

    def deploy(self, job: Job, task: TaskDeploymentDescriptor, refusal: StopReason) -> list[Effect]:
        """Run an attempt, or let it wait; report why it cannot be run."""
        if not self._ledger.add(task.attempt_id, task.ordinal, task.deployed_millis):  # R11: a repeated command
            return []
        if refusal.message:  # R14, or a drain that the owner has not heard of
            return [self._stopping.refuse(task.attempt_id, refusal)]
        slot = self._slots.held(job.job_id, task.allocation_id)
        if slot is not None and slot.asked_back:  # the owner has not heard of it
            return [self._stopping.refuse(task.attempt_id, StopReason.preempted(slot.asked_back))]
        failure = ""
        if job.information is None:
            failure = f"job {job.job_id} was not registered on this TaskManager before its first deployment"
        elif slot is None or slot.state is not SlotState.ACTIVE:
            failure = f"the job does not hold allocation {task.allocation_id} on this TaskManager (any more)"
        elif not self._slots.enqueue(slot, task):
            failure = f"slot {slot.index} has as many waiting attempts as it may"
        if failure or slot is None:
            return [ReportUnstarted(task.attempt_id, ExecutionState.FAILED, failure)]
        return self.start_next(slot)

    def start_next(self, slot: TaskSlot) -> list[Effect]:
        """Run the next attempt that waits in a slot, where that may run now."""
        if slot.state is not SlotState.ACTIVE or not self._ledger.has_room:
            return []
        if self._isolation.is_isolated and slot.waiting and slot.waiting[0].task.is_exclusive:  # R14
            return []
        task = self._slots.start_next(slot)
        if task is None:
            return []
        job = self._jobs.get(task.attempt_id.job_id)
        assert job is not None, task.attempt_id
        assert job.information is not None, task.attempt_id
        self._ledger.start(task.attempt_id)
        self._tenancy.is_used = True
        return [RunAttempt(slot.index, job.information, task, slot.shares)]

    def start_waiting(self) -> list[Effect]:
        """Run what waits and may run now, in all slots."""
        return [effect for slot in self._slots for effect in self.start_next(slot)]

    def cancel(self, job: Job, attempt_id: ExecutionAttemptId) -> list[Effect]:
        """Cancel an attempt wherever it is."""
        if attempt_id.job_id != job.job_id:
            return [Refused(f"CancelTasks of job {job.job_id} names attempt {attempt_id}")]
        if self._ledger.add(attempt_id):
            # Never heard of: remembered as canceled, so that a deployment that comes late is not run.
            return [ReportUnstarted(attempt_id, ExecutionState.CANCELED, "it was not deployed")]
        if self._slots.withdraw(attempt_id):
            return [ReportUnstarted(attempt_id, ExecutionState.CANCELED, "it had not started")]
        slot = self._slots.running_in(attempt_id)
        return self._cancel_running(slot) if slot is not None else []

    def acknowledge(self, job: Job, attempts: Sequence[ExecutionAttemptId]) -> list[Effect]:
        """The owner has these reports."""
        had_room = self._ledger.has_room
        for attempt_id in attempts:
            if attempt_id.job_id == job.job_id:
                self._ledger.acknowledge(attempt_id)
        return [] if had_room else self.start_waiting()

    def release_allocations(self, job: Job, allocations: Sequence[AllocationId]) -> list[Effect]:
        """Release those of the job that are held here."""
        effects: list[Effect] = []
        for allocation_id in allocations:
            slot = self._slots.held(job.job_id, allocation_id)
            if slot is not None:
                effects += self.release(slot, reports=not job.is_ending)
        return effects

    def release(self, slot: TaskSlot, *, reports: bool) -> list[Effect]:
        """Free a slot when nothing of it runs any more; what waits in it is reported CANCELED."""
        dropped = self._slots.release(slot)
        effects: list[Effect] = [
            ReportUnstarted(task.attempt_id, ExecutionState.CANCELED, "its slot was freed")
            for task in dropped
            if reports
        ]
        if slot.running is None:
            return effects + self.free(slot)
        return effects + self._cancel_running(slot)

    def _cancel_running(self, slot: TaskSlot) -> list[Effect]:
        attempt_id = slot.running
        if attempt_id is None or self._ledger.state(attempt_id) is not AttemptState.STARTED:
            return []  # it is being cancelled, or it has reported its end: AttemptEnded is on its way
        if self._isolation.is_stopping(attempt_id):
            return []
        self._ledger.cancel(attempt_id)
        return [CancelAttempt(slot.index, attempt_id)]

    def free(self, slot: TaskSlot) -> list[Effect]:
        """The slot is free now."""
        return [FreeSlot(slot.index, self._slots.free(slot))]
