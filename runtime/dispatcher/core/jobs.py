"""Every job of one leadership term, from submit to clean-up, and which JobMaster process runs it.

Owns the decisions of a Dispatcher; shells run the transactions and carry the messages. Invariants: a submit or
cancel is answered only after its transaction (R3); an assignment is sent only after the owner key names the
process (R5); summaries of one job never go back in (epoch, sequence).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import islice
from typing import assert_never

from runtime.common.errors import NotFoundError, PermanentError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import answers
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.assignments import Assignments, tell_cancel
from runtime.dispatcher.core.cancels import Cancels
from runtime.dispatcher.core.client_promises import GRACE_SECONDS, ClientPromises
from runtime.dispatcher.core.effects import Effects
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase, recovered_entry
from runtime.dispatcher.core.job_table import JobTable
from runtime.dispatcher.core.planned_moves import MoveSettings, PlannedMoves
from runtime.dispatcher.core.processes import JobMasterProcess, ProcessTable
from runtime.dispatcher.core.retention import FinishedJob, Retention
from runtime.dispatcher.core.submits import JobRegistryLimits, Submits
from runtime.gateways.dispatcher import JobInventoryEntry, JobSummary

GRAPH_GONE = "its graph is gone from the store, no wish can be stored for it"
DEFAULT_MOVES = MoveSettings()


class JobRegistry:
    """The jobs of one term. `recover` begins it, `handle` decides on an event.

    Everything else is read only, or is what the parts ask for (`MovableJobs`, `PromisedJobs`).
    """

    def __init__(
        self,
        limits: JobRegistryLimits,
        retention: Retention,
        moves: MoveSettings = DEFAULT_MOVES,
        client_grace: float = GRACE_SECONDS,
    ) -> None:
        self._jobs = JobTable(retention)
        self._drops: dict[Incarnation, list[JobInventoryEntry]] = {}
        self.processes = ProcessTable()
        self.shown = self._jobs.shown
        self.finished = self.shown.finished
        self._moves = PlannedMoves(moves, self, self.processes)
        self._promises = ClientPromises(self, grace=client_grace)
        self._cancels = Cancels(self._jobs)
        self._assignments = Assignments(self._jobs, self.processes, self._cancels, self._moves)
        self._submits = Submits(limits, self._jobs, self._assignments)

    def recover(self, stored: Sequence[ev.RecoveredJob], finished: Sequence[FinishedJob]) -> Effects:
        """Take over what a term finds in the store, before it serves; `finished` oldest first.

        ProcessKnown has entered the registered processes before; an owner that is not among them is lost.
        """
        if stored:
            self._moves.be_quiet()
        for job in finished:
            self.shown.keep(job)
        effects: Effects = []
        for found in stored:
            entry = recovered_entry(found.source)
            self._jobs.enter(entry)
            self.shown.refresh((entry.job_id,))
            effects += self._settle(entry, found)
        return effects + self._assignments.assign_waiting()

    def handle(self, event: ev.DispatcherEvent) -> Effects:
        """Decide on one event."""
        match event:
            case ev.SubmitRequested() | ev.SubmitStored() | ev.SubmitFoundStored() | ev.SubmitFailed():
                effects = self._submits.handle(event)
            case (
                ev.SummariesReceived()
                | ev.InventoryReceived()
                | ev.ProcessKnown()
                | ev.ProcessRegistered()
                | ev.ProcessDisconnected()
                | ev.ProcessLost()
            ):
                effects = self._on_process(event)
            case ev.CancelRequested() | ev.WantedStored() | ev.CancelFailed():
                effects = self._cancels.handle(event)
            case ev.HeartbeatRequested() | ev.PromiseStored() | ev.PromiseFailed():
                effects = self._promises.handle(event)
            case ev.DrainRequested() | ev.MoveRequested() | ev.OwnerCutOff():
                effects = self._moves.handle(event)
            case ev.MoveWishStored() | ev.MoveWishFailed():
                effects = self._on_move_wish_settled(event)
            case ev.OwnerStored() | ev.OwnerNotStored() | ev.AssignmentRefused() | ev.JobReloaded():
                effects = self._on_owner(event)
            case ev.ProcessesAdvised(advice):
                effects = self._assignments.advise(advice)
            case ev.Ticked():
                effects = self._on_ticked(event)
            case _:
                effects = self._on_end(event)
        return effects

    # --- reads --------------------------------------------------------------------------------------------

    def entry(self, job_id: JobId) -> JobEntry | None:
        """A job that is not cleaned."""
        return self._jobs.get(job_id)

    def started_from(self) -> dict[JobId, str]:
        """Jobs that have not ended, with the paths of the savepoints that they were started from."""
        ended = {JobPhase.TERMINAL, JobPhase.DONE}
        return {
            one.job_id: one.source.savepoint
            for one in self._jobs
            if one.source.savepoint and one.phase.state not in ended
        }

    def jobs_of(self, process: JobMasterProcess) -> list[JobEntry]:
        """The jobs that are counted at a process, by id."""
        return [self._jobs[job_id] for job_id in sorted(process.jobs)]

    def summary(self, job_id: JobId) -> JobSummary | None:
        """The shown summary of a job; a submit that is not stored yet is not shown."""
        return self._jobs.summary(job_id)

    def owner(self, job_id: JobId) -> ev.JobOwner | None:
        """The owner that runs the job now; None without one, and after the job has ended."""
        entry = self._jobs.get(job_id)
        return None if entry is None else entry.runner

    @property
    def waiting_count(self) -> int:
        """How many jobs wait for a JobMaster process."""
        return len(self._jobs.waiting)

    def dirty_count(self) -> int:
        """How many jobs have a stored result and are not cleaned."""
        return self._jobs.dirty

    def dirty(self, limit: int, put_off: Container[JobId] = ()) -> list[JobId]:
        """Jobs with a stored result that are not cleaned, at most `limit`, without those in `put_off`."""
        ended = (entry.job_id for entry in self._jobs if entry.phase.state is JobPhase.TERMINAL)
        return list(islice((job_id for job_id in ended if job_id not in put_off), limit))

    # --- what the parts ask for ---------------------------------------------------------------------------

    def begin_move(self, entry: JobEntry, target: JobMasterProcess, reason: str) -> Effects:
        """Assign a job that has an owner to another process."""
        return self._assignments.move(entry, target, reason)

    def want_cancel(self, entry: JobEntry, reason: str) -> Effects:
        """Begin to make durable that the cluster wants the job cancelled."""
        return self._cancels.want(entry, reason)

    def reload(self, entry: JobEntry) -> Effects:
        """Read the stored state of a job again."""
        return self._jobs.reload(entry)

    # --- processes ----------------------------------------------------------------------------------------

    def _on_process(self, event: ev.ProcessEvent) -> Effects:
        match event:
            case ev.SummariesReceived():
                effects = self._on_summaries(event)
            case ev.InventoryReceived():
                effects = self._on_inventory(event)
            case ev.ProcessKnown():
                effects = self._on_process_known(event)
            case ev.ProcessRegistered():
                effects = self._on_process_registered(event)
            case ev.ProcessDisconnected():
                effects = self._on_process_disconnected(event)
            case ev.ProcessLost():
                effects = self._on_process_lost(event)
            case _:
                assert_never(event)
        return effects

    def _on_process_known(self, event: ev.ProcessKnown) -> Effects:
        record = event.record
        process = self.processes.known(record.incarnation, record.address, record.capacity)
        # What a process says itself is newer than what the store says of it.
        told = [] if process.is_connected else self._moves.told(process, is_draining=event.is_draining)
        return told + self._assignments.assign_waiting()

    def _on_process_registered(self, event: ev.ProcessRegistered) -> Effects:
        registration = event.registration
        process = self.processes.known(registration.incarnation, registration.address, registration.capacity)
        process.version = registration.version
        process.metrics_address = registration.metrics_address
        process.worker_id = registration.worker_id
        process.is_connected = True
        process.sent.clear()
        self._drops.pop(registration.incarnation, None)
        effects = self._moves.told(process, is_draining=registration.is_draining)
        return effects + self._assignments.assign_waiting() + self._moves.advance()

    def _on_process_disconnected(self, event: ev.ProcessDisconnected) -> Effects:
        process = self.processes.get(event.incarnation)
        if process is None:
            return []
        process.is_connected = False
        error = UnavailableError(f"the stream to JobMaster process {event.incarnation} ended")
        return self._moves.refuse_drains(process, error)

    def _on_process_lost(self, event: ev.ProcessLost) -> Effects:
        process = self.processes.remove(event.incarnation)
        self._drops.pop(event.incarnation, None)
        if process is None:
            return []
        effects = self._moves.refuse_drains(process, NotFoundError(f"JobMaster process {event.incarnation} is lost"))
        for job_id in sorted(process.jobs):
            entry = self._jobs[job_id]
            if entry.phase.state is JobPhase.ASSIGNED:
                effects += self._assignments.lost(entry)
            effects += [ef.SeekResult(job_id)] if job_id in self._jobs.waiting else []  # R3: it may have ended unheard
        return effects

    def _on_inventory(self, event: ev.InventoryReceived) -> Effects:
        """R5: an owned job that is missing in the inventory is sent again; a job in it that is not owned is dropped."""
        process = self.processes.get(event.incarnation)
        if process is None:
            return []
        heartbeat = event.heartbeat
        process.cpu_fraction = heartbeat.cpu_fraction
        process.memory_bytes = heartbeat.memory_bytes
        process.loop_lag = heartbeat.loop_lag
        effects = self._moves.told(process, is_draining=heartbeat.is_draining)
        present = {(held.job_id, held.epoch) for held in heartbeat.inventory}
        for job_id in sorted(process.jobs):
            entry = self._jobs[job_id]
            if entry.phase.state is not JobPhase.ASSIGNED:
                continue
            if (job_id, entry.epoch) in present:
                effects += self._greet(process, entry)
            elif job_id not in process.sent or entry.epoch <= heartbeat.assignment:
                effects += self._assignments.send(entry)
        dropped = tuple(held for held in heartbeat.inventory if self._is_over(event.incarnation, held))
        if dropped:
            self._drops.pop(event.incarnation, None)
            effects.append(ef.SendDrop(event.incarnation, dropped))
        for held in heartbeat.inventory:
            owned = self._jobs.get(held.job_id)
            if held.status.is_globally_terminal and owned is not None and owned.phase.state is JobPhase.ASSIGNED:
                effects += self.reload(owned)
        return effects + self._moves.advance() if process.is_draining else effects

    def _greet(self, process: JobMasterProcess, entry: JobEntry) -> Effects:
        """The process has the job: tell it again a cancel that may have been lost with an older stream."""
        if entry.job_id in process.sent:
            return []
        process.sent.add(entry.job_id)
        return tell_cancel(entry)

    def _is_over(self, incarnation: Incarnation, held: JobInventoryEntry) -> bool:
        """True if the process is not to run this job any more."""
        entry = self._jobs.get(held.job_id)
        if entry is None or entry.phase.state is JobPhase.TERMINAL:
            return True
        return entry.phase.state is JobPhase.ASSIGNED and not entry.is_owned_by(incarnation, held.epoch)

    def _on_summaries(self, event: ev.SummariesReceived) -> Effects:
        effects: Effects = []
        is_moved = False
        for summary in event.summaries:
            entry = self._jobs.get(summary.job_id)
            if entry is None or entry.phase.state is not JobPhase.ASSIGNED or summary.epoch != entry.epoch:
                continue
            if summary.status is JobStatus.SUSPENDED or not entry.shown.accept(summary, entry.source):
                continue
            entry.refusals = 0
            effects += self._end(entry) if summary.status.is_globally_terminal else self._jobs.publish(entry)
            is_moved = is_moved or entry.job_id in self._moves.under_way
        return effects + self._moves.advance() if is_moved else effects

    # --- owners -------------------------------------------------------------------------------------------

    def _on_owner(self, event: ev.OwnerEvent) -> Effects:
        match event:
            case ev.OwnerStored(job_id, epoch, takeovers):
                entry = self._jobs[job_id]
                entry.takeovers = takeovers
                return self._assignments.stored(entry, epoch)
            case ev.OwnerNotStored(job_id, found):
                entry = self._jobs[job_id]
                entry.refusals += 1
                return self._settle(entry, found) + self._assignments.assign_waiting()
            case ev.AssignmentRefused():
                return self._assignments.refused(event)
            case ev.JobReloaded():
                return self._on_job_reloaded(event)
            case _:
                assert_never(event)

    def _on_move_wish_settled(self, event: ev.MoveWishStored | ev.MoveWishFailed) -> Effects:
        effects, entry = self._moves.handle(event), self._jobs.get(event.job_id)
        return effects if entry is None else effects + self._cancels.pursue(entry)

    def _on_job_reloaded(self, event: ev.JobReloaded) -> Effects:
        entry = self._jobs.get(event.job_id)
        if entry is None or entry.phase.state is not JobPhase.RELOADING:
            return []  # it ended meanwhile
        if event.found is not None:
            entry.take_source(event.found.source)
        return self._settle(entry, event.found) + self._assignments.assign_waiting()

    def _settle(self, entry: JobEntry, found: ev.RecoveredJob | None) -> Effects:
        """Bring an entry in line with the stored state."""
        effects: Effects = []
        if found is None:
            message = f"job {entry.job_id} is not stored any more: another leader has cleaned it"
            effects = [ef.Refuse(request, NotFoundError(message)) for request in entry.cancel_requests]
            effects += self._moves.vanished(entry)
            self._jobs.remove(entry.job_id)
            self._assignments.release(entry)
            return effects + self._jobs.publish(entry)
        entry.remember(found)
        self._promises.recovered(entry.job_id, found.client_expires_millis)
        if found.ended is not None:
            entry.shown.summary = found.ended
            return self._end(entry)
        if not found.graph_revision:
            effects = answers.refuse_cancels(entry, PermanentError(f"job {entry.job_id}: {GRAPH_GONE}"))
        if found.owner is None:
            self._assignments.release(entry)
            return effects + self._assignments.find_owner(entry, entry.find_no_owner())
        effects += self._assignments.found(entry, found.owner, is_first=found.owner.epoch == found.graph_revision)
        self._moves.recovered(entry, found.move_to)
        return effects

    # --- the end ------------------------------------------------------------------------------------------

    def _on_end(self, event: ev.EndEvent) -> Effects:
        match event:
            case ev.EndStored():
                return self._on_end_stored(event)
            case ev.EndFailed():
                return self._on_end_failed(event)
            case ev.JobsCleaned(jobs):
                return self._on_jobs_cleaned(jobs)
            case _:
                assert_never(event)

    def _on_end_stored(self, event: ev.EndStored) -> Effects:
        entry = self._jobs.get(event.job_id)
        if entry is None or entry.phase.state in {JobPhase.ASSIGNING, JobPhase.TERMINAL}:
            return []  # another transaction has found it, or will
        if event.summary is None:
            entry.refusals += 1
            return self.reload(entry)
        entry.shown.summary = event.summary
        return self._end(entry)

    def _on_end_failed(self, event: ev.EndFailed) -> Effects:
        entry = self._jobs.get(event.job_id)
        if entry is None or entry.phase.state is not JobPhase.ABORTING:
            return []
        effects = answers.refuse_cancels(entry, event.error)
        entry.wait("its end could not be stored")
        self._jobs.waiting[entry.job_id] = None
        return effects + self._assignments.assign_waiting()

    def _end(self, entry: JobEntry) -> Effects:
        """The job's result is durable and `entry.summary` tells it."""
        holder = entry.former.incarnation if entry.former is not None else entry.owner
        entry.end()
        self._jobs.waiting.pop(entry.job_id, None)
        self._jobs.dirty += 1
        effects: Effects = [answers.answer_cancel_of_ended(request, entry.summary) for request in entry.cancel_requests]
        entry.cancel_requests.clear()
        effects += [*self._moves.ended(entry), *self._jobs.publish(entry)]
        effects.append(ef.EndJobEverywhere(entry.job_id, entry.summary.keeps_outputs))
        if holder in self.processes:
            # The process only keeps what the job was: not worth a message of its own.
            self._drops.setdefault(holder, []).append(entry.inventory_entry())
        self._assignments.release(entry)
        return effects + self._assignments.assign_waiting()

    def _on_jobs_cleaned(self, jobs: Sequence[JobId]) -> Effects:
        for job_id in jobs:
            entry = self._jobs.remove(job_id)
            entry.clean()
            self._jobs.dirty -= 1
            self.shown.keep(FinishedJob(entry.summary, entry.source.digest))
        return []

    # --- time ---------------------------------------------------------------------------------------------

    def _on_ticked(self, event: ev.Ticked) -> Effects:
        doomed = self._assignments.forget_refusals()
        drops, self._drops = self._drops, {}
        effects: Effects = [ef.SendDrop(incarnation, tuple(entries)) for incarnation, entries in drops.items()]
        for entry in doomed:
            effects += self._cancels.abort(entry)
        effects += self._promises.at(event.now_millis, event.now)
        return effects + self._assignments.assign_waiting() + self._moves.at(event.now_millis)
