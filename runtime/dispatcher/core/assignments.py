"""Which JobMaster process runs which job: jobs that wait for an owner get one, and owners are told their jobs.

Invariants: an owner is told to run a job only after its key names that process (R5); an owner that may have begun the
job is followed by one that takes it over (R6); the former owner is dismissed when another one is stored (R1).
"""

from __future__ import annotations

from runtime.common.waiting import NOT_WAITING, Waiting, WaitingKind
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.cancels import Cancels
from runtime.dispatcher.core.effects import Effects
from runtime.dispatcher.core.events import NO_PROCESS
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase
from runtime.dispatcher.core.job_table import JobTable
from runtime.dispatcher.core.planned_moves import PlannedMoves
from runtime.dispatcher.core.processes import JobMasterProcess, ProcessTable
from runtime.dispatcher.core.wishes import CancelStored
from runtime.gateways.dispatcher import JobInventoryEntry

PROCESS_LOST = "its JobMaster process was lost"


class Assignments:
    """The assignments of one term."""

    def __init__(self, jobs: JobTable, processes: ProcessTable, cancels: Cancels, moves: PlannedMoves) -> None:
        self._jobs = jobs
        self._processes = processes
        self._cancels = cancels
        self._moves = moves

    # --- jobs without owner -------------------------------------------------------------------------------

    def submit(self, entry: JobEntry) -> ef.StoreJob:
        """The transaction of a submit names an owner, if there is a process with room."""
        process = self._processes.least_loaded(())
        if process is None:
            return ef.StoreJob(entry.source, NO_PROCESS, "")
        self._processes.reserve(process, entry.job_id)
        entry.submit_to(process.incarnation, process.address)
        return ef.StoreJob(entry.source, process.incarnation, process.address)

    def assign_waiting(self) -> Effects:
        """Give waiting jobs to processes with room, in the order in which they began to wait."""
        assigned: list[tuple[JobEntry, JobMasterProcess]] = []
        for job_id in self._jobs.waiting:
            entry = self._jobs[job_id]
            process = self._processes.least_loaded(entry.refused_by)
            if process is None and self._processes.least_loaded(()) is None:
                break
            if process is None:
                continue
            self._processes.reserve(process, job_id)
            assigned.append((entry, process))
        effects: Effects = []
        for entry, process in assigned:
            del self._jobs.waiting[entry.job_id]
            effects.append(entry.assign_to(process.incarnation, process.address))
        return effects

    def find_owner(self, entry: JobEntry, refusal: str = "") -> Effects:
        """The job is durable and has no owner: find one, or say why there is none."""
        effects = self._cancels.pursue(entry)
        if entry.phase.state is JobPhase.ABORTING:
            return effects
        self._jobs.waiting[entry.job_id] = None
        effects += self.assign_waiting()
        is_waiting = entry.job_id in self._jobs.waiting
        reason = refusal or (self._processes.shortage() if is_waiting else "")
        is_news = bool(reason) and entry.shown.wait(Waiting(WaitingKind.JOB_MASTERS, reason))
        is_doomed = is_waiting and self._processes.have_all_refused(entry.refused_by)
        ending = self._cancels.abort(entry) if is_doomed else []
        if is_news and ef.PublishSummary(entry.job_id) not in ending:
            effects += self._jobs.publish(entry)
        return effects + ending

    def advise(self, advice: str) -> Effects:
        """Have the jobs that wait say who starts a process, or why none starts."""
        self._processes.advice = advice
        effects: Effects = []
        for entry in [self._jobs[job_id] for job_id in self._jobs.waiting]:
            waiting = Waiting(WaitingKind.JOB_MASTERS, self._processes.shortage())
            if not entry.refused_by and entry.shown.wait(waiting):
                effects += self._jobs.publish(entry)
        return effects

    def forget_refusals(self) -> list[JobEntry]:
        """Forget refusals that were not for good. Returns the waiting jobs that no process will ever run."""
        waiting = [self._jobs[job_id] for job_id in self._jobs.waiting]
        for entry in waiting:
            entry.refused_by = {peer: True for peer, is_permanent in entry.refused_by.items() if is_permanent}
        return [entry for entry in waiting if self._processes.have_all_refused(entry.refused_by)]

    # --- owners -------------------------------------------------------------------------------------------

    def stored(self, entry: JobEntry, epoch: int) -> Effects:
        """The transaction that names the owner has succeeded: tell the owner."""
        former = entry.former
        entry.own(epoch)
        return self._begin(entry, former)

    def found(self, entry: JobEntry, owner: ev.JobOwner, *, is_first: bool) -> Effects:
        """Take the owner that the store has, also when this leader expected another one, and tell it to run the job."""
        former = entry.former
        self._processes.release(entry.owner, entry.job_id)
        entry.find_owner(owner, is_first=is_first)
        return self._begin(entry, former)

    def _begin(self, entry: JobEntry, former: ev.JobOwner | None) -> Effects:
        """The owner key names the process under a new epoch: give the order, unless the process was lost meanwhile."""
        entry.move = entry.move.overtaken()
        effects = self._dismiss(entry, former)
        process = self._processes.get(entry.owner)
        if process is None:
            return effects + self.lost(entry)
        process.jobs.add(entry.job_id)  # it may have been lost, and have come back, during the transaction (R5)
        if process.is_draining and (passed_on := self._moves.pass_on(entry)):
            return effects + passed_on
        if entry.shown.wait(NOT_WAITING):
            effects += self._jobs.publish(entry)
        return [*effects, *self.send(entry), *self._cancels.pursue(entry)]

    def _dismiss(self, entry: JobEntry, former: ev.JobOwner | None) -> Effects:
        if former is None or former.epoch == entry.epoch or former.incarnation not in self._processes:
            return []
        held = JobInventoryEntry(entry.job_id, former.epoch, entry.summary.status)
        return [ef.SendDrop(former.incarnation, (held,))]

    def send(self, entry: JobEntry) -> Effects:
        """Tell the owner to run the job, if its stream is there; its next inventory repeats that (R5)."""
        process = self._processes.get(entry.owner)
        if process is None or not process.is_connected:
            return []
        process.sent.add(entry.job_id)
        return [ef.SendAssign(entry.owner, entry.tell()), *tell_cancel(entry)]

    def move(self, entry: JobEntry, target: JobMasterProcess, reason: str) -> Effects:
        """Name another owner. The present one decides until that is durable, and nothing afterwards (R1)."""
        self._processes.release(entry.owner, entry.job_id)
        self._processes.reserve(target, entry.job_id)
        return [entry.move_to(target.incarnation, target.address, reason)]

    def release(self, entry: JobEntry) -> None:
        """The job is counted at no process any more."""
        self._processes.release(entry.owner, entry.job_id)

    def lost(self, entry: JobEntry) -> Effects:
        """The process of the owner is lost: the job waits for another one."""
        self._processes.release(entry.owner, entry.job_id)
        entry.lose_owner(PROCESS_LOST)
        return self.find_owner(entry, PROCESS_LOST)

    def refused(self, event: ev.AssignmentRefused) -> Effects:
        """The owner refuses the job, which waits for another one. An owner of another epoch is not asked."""
        refusal = event.refusal
        entry = self._jobs.get(refusal.job_id)
        owner = entry.runner if entry is not None and entry.is_owned_by(event.incarnation, refusal.epoch) else None
        if entry is None or owner is None:
            return []
        reason = f"JobMaster process {owner.address} refused: {refusal.reason}"
        self._processes.release(entry.owner, entry.job_id)
        # A JobMaster that broke has begun the job; a process that has no room has not.
        entry.refuse(reason, is_permanent=refusal.is_permanent)
        return self.find_owner(entry, reason)


def tell_cancel(entry: JobEntry) -> Effects:
    """The durable wish to cancel, as its owner is told it."""
    if not isinstance(entry.cancel, CancelStored):
        return []
    return [ef.SendCancel(entry.owner, entry.job_id, entry.cancel.reason)]
