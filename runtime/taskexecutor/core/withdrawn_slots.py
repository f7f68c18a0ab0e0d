"""Slots that take nothing more, all of them while a TaskManager drains, and those that were asked back (R64). Pure.

Invariant: the owner hears of it on every stream, and frees such a slot when it is idle; what has not begun in it runs
elsewhere. What runs goes on while the TaskManager drains; in a slot that was asked back it ends, unless it is
exclusive.
"""

from __future__ import annotations

from collections.abc import Sequence

from runtime.common.ids import AllocationId
from runtime.gateways.job_master import SlotsDraining
from runtime.gateways.resource_manager import PreemptionRefused, PreemptSlots
from runtime.taskexecutor.core.events import DrainChanged, Effect, Released, TellResourceManager
from runtime.taskexecutor.core.isolation import StopReason
from runtime.taskexecutor.core.jobs import Job, JobTable
from runtime.taskexecutor.core.owner_links import OwnerLinks
from runtime.taskexecutor.core.slot_table import SlotState, TaskSlot, TaskSlotTable
from runtime.taskexecutor.core.stopping import Stopping


class WithdrawnSlots:
    """Those of one TaskManager."""

    def __init__(self, slots: TaskSlotTable, jobs: JobTable, owners: OwnerLinks, stopping: Stopping) -> None:
        self._slots = slots
        self._jobs = jobs
        self._owners = owners
        self._stopping = stopping
        self.drain = ""
        """Why no slot is given away and nothing is begun, "" when all is as usual."""

    def drained(self, event: DrainChanged | Released) -> list[Effect]:
        """The TaskManager drains, or is used again; or what still runs has to end."""
        if isinstance(event, Released):
            return self._stopping.running(self._slots, StopReason.drained(event.reason), event.is_for)
        self.drain = event.reason
        return [effect for job in self._jobs if not job.is_ending for effect in self.tell(job)]

    def tell(self, job: Job) -> list[Effect]:
        """Tell the owner of the job which of its slots take nothing more, and end what must not go on there."""
        slots = [slot for slot in self._slots.of_job(job.job_id) if slot.state is not SlotState.RELEASING]
        if self.drain:
            return self._close(job, slots, StopReason.drained(self.drain))
        return [effect for slot in slots if slot.asked_back for effect in self._empty(job, slot)]

    def preempt(self, order: PreemptSlots) -> list[Effect]:
        """Give slots back. Those that a job has not taken yet, or in which something exclusive runs, it keeps."""
        effects: list[Effect] = []
        kept: list[AllocationId] = []
        for allocation_id in order.allocations:
            slot = self._slots.holder(allocation_id)
            if slot is None or slot.job_id is None or slot.state is SlotState.RELEASING:
                continue
            job = self._jobs.get(slot.job_id)
            assert job is not None, slot.job_id
            if slot.state is SlotState.ACTIVE and not slot.runs_exclusive:
                slot.asked_back = order.reason
                effects += self._empty(job, slot)
            else:
                kept.append(allocation_id)
        return [*effects, TellResourceManager(PreemptionRefused(tuple(kept)))] if kept else effects

    def _empty(self, job: Job, slot: TaskSlot) -> list[Effect]:
        reason = StopReason.preempted(slot.asked_back)
        return self._close(job, [slot], reason) + self._stopping.running([slot], reason)

    def _close(self, job: Job, slots: Sequence[TaskSlot], reason: StopReason) -> list[Effect]:
        allocations = tuple(slot.allocation_id for slot in slots if slot.allocation_id is not None)
        if not allocations:
            return []
        told = self._owners.tell(job, SlotsDraining(job.job_id, job.epoch, allocations, reason.message))
        return told + self._stopping.waiting(slots, reason)
