"""Which owners are connected, and what they are told. Pure.

Invariant: nothing is told to an owner without a stream; a new stream begins with a census (R6, R11).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation
from runtime.gateways.job_master import JobCensus, OfferSlots, SlotOffer
from runtime.gateways.task import TaskExecutionReport, TaskProgress
from runtime.taskexecutor.core.events import Effect, OwnerNews, SendProgress, SendReport, TellOwner
from runtime.taskexecutor.core.jobs import Job
from runtime.taskexecutor.core.moves import Moves
from runtime.taskexecutor.core.reports import AttemptLedger
from runtime.taskexecutor.core.slot_table import SlotState, TaskSlot, TaskSlotTable

CENSUS_ATTEMPTS_MAX = 4096
"""How many attempts one part of a census names: half a megabyte."""


class OwnerLinks:
    """Streams of one TaskManager to owners."""

    def __init__(self, task_manager_id: str, slots: TaskSlotTable, ledger: AttemptLedger, moves: Moves) -> None:
        self._task_manager_id = task_manager_id
        self._slots = slots
        self._ledger = ledger
        self._moves = moves
        self._connected: set[Incarnation] = set()

    def connect(self, incarnation: Incarnation) -> None:
        """A stream to this JobMaster process is open."""
        self._connected.add(incarnation)

    def disconnect(self, incarnation: Incarnation) -> None:
        """Its stream has ended."""
        self._connected.discard(incarnation)

    def is_connected(self, job: Job) -> bool:
        """True while a stream to the job's owner is open."""
        return job.owner.incarnation in self._connected

    def report(self, job: Job, report: TaskExecutionReport) -> list[Effect]:
        """Send a report now; without a stream it waits for the next one (R10)."""
        return [SendReport(job.owner.incarnation, job.epoch, report)] if self.is_connected(job) else []

    def progress(self, job: Job, progress: TaskProgress) -> list[Effect]:
        """Send progress now; without a stream the latest waits for the next one."""
        return [SendProgress(job.owner.incarnation, job.epoch, progress)] if self.is_connected(job) else []

    def tell(self, job: Job, message: OwnerNews) -> list[Effect]:
        """Send a message now or never."""
        if not self.is_connected(job):
            return []
        return [TellOwner(job.owner.incarnation, message)]

    def offer(self, job: Job, slots: Sequence[TaskSlot]) -> list[Effect]:
        """Offer slots that the job was promised."""
        offers = tuple(map(_offer_of, slots))
        if not offers:
            return []
        return self.tell(job, OfferSlots(job.job_id, job.epoch, offers, self._task_manager_id))

    def census(self, job: Job) -> list[Effect]:
        """Tell everything that is here of the job."""
        return [effect for part in self._census(job) for effect in self.tell(job, part)]

    def pending_reports(self, job: Job) -> list[Effect]:
        """Send the reports that the owner has not acknowledged."""
        return [effect for report in self._ledger.pending(job.job_id) for effect in self.report(job, report)]

    def kept_progress(self, job: Job) -> list[Effect]:
        """Send the latest progress of every attempt that runs: one that stands still tells no other."""
        return [effect for progress in self._ledger.progress(job.job_id) for effect in self.progress(job, progress)]

    def _census(self, job: Job) -> Iterator[JobCensus]:
        """Everything that is here of the job, in parts; none when nothing is here and no owner has asked."""
        held = self._slots.of_job(job.job_id)
        slots = tuple(_offer_of(slot) for slot in held if slot.state is SlotState.ACTIVE)
        places: dict[ExecutionAttemptId | None, AllocationId | None] = {
            attempt_id: slot.allocation_id
            for slot in held
            for attempt_id in (slot.running, *(task.attempt_id for task in slot.waiting))
        }
        attempts = list(self._ledger.unacknowledged(job.job_id, places))
        is_moving = self._moves.is_ordered(job.job_id)
        if not (job.is_adopted or slots or attempts or is_moving):
            return
        for start in range(0, max(len(attempts), 1), CENSUS_ATTEMPTS_MAX):
            end = start + CENSUS_ATTEMPTS_MAX
            part, is_last = tuple(attempts[start:end]), end >= len(attempts)
            yield JobCensus(job.job_id, job.epoch, slots, part, is_last, self._task_manager_id, is_moving)


def _offer_of(slot: TaskSlot) -> SlotOffer:
    assert slot.allocation_id is not None, slot.index
    return SlotOffer(slot.allocation_id, slot.index, slot.profile)
