"""Every job of one leadership term, from submit to clean-up, and which JobMaster process runs it.

Owns the decisions of a Dispatcher; shells run the transactions and carry the messages. Invariants: a submit or
cancel is answered only after its transaction (R3); an assignment is sent only after the owner key names the
process (R5); summaries of one job never go back in (epoch, sequence).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from runtime.common.errors import FlinklikeError, NotFoundError, PermanentError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import answers
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.client_promises import GRACE_SECONDS, ClientPromises
from runtime.dispatcher.core.events import NO_PROCESS
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase, new_entry, recovered_entry
from runtime.dispatcher.core.planned_moves import MoveSettings, PlannedMoves
from runtime.dispatcher.core.processes import JobMasterProcess, ProcessTable
from runtime.dispatcher.core.retention import FinishedJob, Retention
from runtime.dispatcher.core.shown_jobs import ShownJobs
from runtime.dispatcher.core.submits import JobRegistryLimits, Submits
from runtime.gateways.dispatcher import JobInventoryEntry, JobSummary, SubmitOutcome

Effects = list[ev.DispatcherEffect]
PROCESS_LOST = "its JobMaster process was lost"
GRAPH_GONE = "its graph is gone from the store, no wish can be stored for it"
DEFAULT_MOVES = MoveSettings()


class JobRegistry:
    """The machine. Every public method but `handle` only reads."""

    def __init__(
        self,
        limits: JobRegistryLimits,
        retention: Retention,
        moves: MoveSettings = DEFAULT_MOVES,
        client_grace: float = GRACE_SECONDS,
    ) -> None:
        self._jobs: dict[JobId, JobEntry] = {}
        self._waiting: dict[JobId, None] = {}
        self._dirty = 0
        self._drops: dict[Incarnation, list[JobInventoryEntry]] = {}
        self.processes = ProcessTable()
        self.shown = ShownJobs(self._jobs, retention)
        self.finished = self.shown.finished
        self._submits = Submits(limits, self.shown)
        self._moves = PlannedMoves(
            moves, self._jobs, self.processes, shown=self.summary, begin=self._begin_move, reload=self._reload
        )
        self._promises = ClientPromises(
            self._jobs, shown=self.summary, cancel=self._pursue_cancel, reload=self._reload, grace=client_grace
        )
        self._handlers: dict[type[Any], Callable[[Any], Effects]] = {
            ev.SubmitRequested: self._on_submit_requested,
            ev.SubmitStored: self._on_submit_stored,
            ev.SubmitFoundStored: self._on_submit_found_stored,
            ev.SubmitFailed: self._on_submit_failed,
            ev.CancelRequested: self._on_cancel_requested,
            ev.WantedStored: self._on_wanted_stored,
            ev.EndStored: self._on_end_stored,
            ev.CancelFailed: self._on_cancel_failed,
            ev.EndFailed: self._on_end_failed,
            ev.OwnerStored: self._on_owner_stored,
            ev.OwnerNotStored: self._on_owner_not_stored,
            ev.JobReloaded: self._on_job_reloaded,
            ev.ProcessKnown: self._on_process_known,
            ev.ProcessRegistered: self._on_process_registered,
            ev.ProcessDisconnected: self._on_process_disconnected,
            ev.ProcessLost: self._on_process_lost,
            ev.InventoryReceived: self._on_inventory,
            ev.SummariesReceived: self._on_summaries,
            ev.AssignmentRefused: self._on_assignment_refused,
            ev.JobsCleaned: self._on_jobs_cleaned,
            ev.DrainRequested: self._moves.on_drain_requested,
            ev.MoveRequested: self._moves.on_move_requested,
            ev.OwnerCutOff: self._moves.on_owner_cut_off,
            ev.MoveWishStored: self._on_move_wish_settled,
            ev.MoveWishFailed: self._on_move_wish_settled,
            ev.HeartbeatRequested: self._promises.on_heartbeat,
            ev.PromiseStored: self._promises.on_stored,
            ev.PromiseFailed: self._promises.on_failed,
            ev.Ticked: self._on_ticked,
        }

    def recover(self, stored: Sequence[ev.RecoveredJob], finished: Sequence[FinishedJob]) -> Effects:
        """Take over what a term finds, before it serves anybody; `finished` oldest first.

        Processes that live were entered by ProcessKnown before; an owner that is not among them is lost.
        """
        if stored:
            self._moves.be_quiet()
        for job in finished:
            self.shown.keep(job)
        effects: Effects = []
        for found in stored:
            entry = recovered_entry(found.source, JobPhase.RELOADING)
            self._jobs[entry.job_id] = entry
            self.shown.refresh((entry.job_id,))
            effects += self._settle(entry, found)
        return effects + self._assign_waiting()

    def handle(self, event: ev.DispatcherEvent) -> Effects:
        """Decide on one event."""
        return self._handlers[type(event)](event)

    # --- reads --------------------------------------------------------------------------------------------

    def entry(self, job_id: JobId) -> JobEntry | None:
        """One of them."""
        return self._jobs.get(job_id)

    def summary(self, job_id: JobId) -> JobSummary | None:
        """What is shown of a job; a submit that is not stored yet is not shown."""
        return self.shown.summary(job_id)

    def owner(self, job_id: JobId) -> ev.JobOwner | None:
        """Who runs the job now; None while nobody does and after it ended."""
        entry = self._jobs.get(job_id)
        if entry is None or entry.phase.state is not JobPhase.ASSIGNED:
            return None if entry is None else entry.former
        return ev.JobOwner(entry.owner, entry.owner_address, entry.epoch)

    def dirty_count(self) -> int:
        """How many jobs have a stored result and are not cleaned."""
        return self._dirty

    def dirty(self, limit: int, put_off: Container[JobId] = ()) -> list[JobId]:
        """Jobs with a stored result that are not cleaned, at most `limit`, without those that are put off."""
        ended = (job_id for job_id, entry in self._jobs.items() if entry.phase.state is JobPhase.TERMINAL)
        return list(islice((job_id for job_id in ended if job_id not in put_off), limit))

    # --- submit -------------------------------------------------------------------------------------------

    def _on_submit_requested(self, event: ev.SubmitRequested) -> Effects:
        source, request = event.source, event.request
        entry = self._jobs.get(source.job_id)
        finished = self.finished.get(source.job_id)
        if entry is not None:
            return self._submit_again(entry, source, request)
        if finished is not None:
            return [answers.answer_finished(request, source, finished)]
        refusal = self._submits.refusal(request, source, jobs=len(self._jobs), dirty=self._dirty)
        if refusal is not None:
            return [refusal]
        entry = new_entry(source)
        entry.submit_requests.append(request)
        self._jobs[source.job_id] = entry
        self._submits.begin(source)
        process = self.processes.least_loaded(())
        if process is None:
            return [ev.StoreJob(source, NO_PROCESS, "")]
        self._reserve(entry, process)
        return [ev.StoreJob(source, process.incarnation, process.address)]

    def _submit_again(self, entry: JobEntry, source: ev.JobSource, request: int) -> Effects:
        if entry.phase.state is JobPhase.SUBMITTING and entry.source.is_same(source):
            entry.submit_requests.append(request)
            return []
        return [answers.answer_taken(request, source, entry)]

    def _on_submit_stored(self, event: ev.SubmitStored) -> Effects:
        entry = self._jobs[event.job_id]
        self._submits.settled(entry.source)
        if event.graph_key:
            entry.source = replace(entry.source, graph=b"", graph_key=event.graph_key)
        outcome = SubmitOutcome.ACCEPTED
        effects: Effects = []
        for request in entry.submit_requests:
            effects.append(ev.ReplySubmitted(request, outcome, entry.summary.status))
            outcome = SubmitOutcome.ALREADY_SUBMITTED
        entry.submit_requests.clear()
        if event.epoch:
            effects = self._own(entry, event.epoch) + effects
        else:
            entry.phase.to(JobPhase.WAITING)
            effects += self._waiting_now(entry)
        self.shown.refresh((event.job_id,))
        return effects

    def _on_submit_found_stored(self, event: ev.SubmitFoundStored) -> Effects:
        entry = self._forget_submit(event.job_id)
        effects = answers.answer_found(entry, event)
        if not event.is_cleaned:
            self._jobs[event.job_id] = entry.taken_over()
            self.shown.refresh((event.job_id,))
            effects.append(ev.ReloadJob(event.job_id))
        return effects + self._assign_waiting()

    def _on_submit_failed(self, event: ev.SubmitFailed) -> Effects:
        entry = self._forget_submit(event.job_id)
        requests = entry.submit_requests + entry.cancel_requests
        return [ev.Refuse(request, event.error) for request in requests] + self._assign_waiting()

    def _forget_submit(self, job_id: JobId) -> JobEntry:
        entry = self._jobs.pop(job_id)
        assert entry.phase.state is JobPhase.SUBMITTING, entry
        self._submits.settled(entry.source)
        self.processes.release(entry.owner, job_id)
        return entry

    # --- cancel -------------------------------------------------------------------------------------------

    def _on_cancel_requested(self, event: ev.CancelRequested) -> Effects:
        entry = self._jobs.get(event.job_id)
        if entry is None:
            finished = self.finished.get(event.job_id)
            if finished is None:
                error: FlinklikeError = NotFoundError(f"job {event.job_id} is not known")
                return [ev.Refuse(event.request, error)]
            return [answers.answer_cancel_of_ended(event.request, finished.summary)]
        if entry.phase.state is JobPhase.TERMINAL or entry.summary.is_committing:
            return [answers.answer_cancel_of_ended(event.request, entry.summary)]
        if entry.is_wish_stored:
            return [ev.ReplyCancelled(event.request)]
        entry.cancel_requests.append(event.request)
        if entry.wants_cancel:
            return []
        entry.wants_cancel = True
        return self._pursue_cancel(entry)

    def _pursue_cancel(self, entry: JobEntry) -> Effects:
        """Start the transaction that makes the wish durable, where the job's phase has room for one."""
        match entry.phase.state:
            case _ if entry.move_requests:
                return []  # of two writes of one key in flight the first may be the last
            case JobPhase.WAITING if entry.epoch == 0:
                return self._abort(entry)
            case JobPhase.WAITING | JobPhase.ASSIGNING | JobPhase.ASSIGNED:
                return [ev.StoreWanted(entry.job_id, entry.cancel_reason)]
            case _:
                return []

    def _on_wanted_stored(self, event: ev.WantedStored) -> Effects:
        entry = self._jobs.get(event.job_id)
        if entry is None or entry.phase.state is JobPhase.TERMINAL:
            return []
        if not event.is_stored:
            return self._reload(entry)
        entry.is_wish_stored = True
        effects: Effects = [ev.ReplyCancelled(request) for request in entry.cancel_requests]
        entry.cancel_requests.clear()
        if entry.phase.state is JobPhase.ASSIGNED:
            effects.append(ev.SendCancel(entry.owner, entry.job_id, entry.cancel_reason))
        return effects

    def _on_move_wish_settled(self, event: ev.MoveWishStored | ev.MoveWishFailed) -> Effects:
        moves = self._moves
        effects = moves.on_wish_stored(event) if isinstance(event, ev.MoveWishStored) else moves.on_wish_failed(event)
        entry = self._jobs.get(event.job_id)
        if entry is not None and entry.wants_cancel and not entry.is_wish_stored:
            effects += self._pursue_cancel(entry)
        return effects

    def _abort(self, entry: JobEntry) -> Effects:
        """End a job that nobody runs and nobody will: CANCELED if that is wanted, else FAILED for what is shown."""
        self._waiting.pop(entry.job_id, None)
        entry.phase.to(JobPhase.ABORTING)
        status = JobStatus.CANCELED if entry.wants_cancel else JobStatus.FAILED
        reason = entry.cancel_reason if entry.wants_cancel else entry.summary.pending_reason
        told = self.shown.publish(entry.job_id) if entry.can_have_begun and entry.show_ending() else []
        return [*told, entry.end_without_owner(status, reason)]

    def _on_end_stored(self, event: ev.EndStored) -> Effects:
        entry = self._jobs.get(event.job_id)
        if entry is None or entry.phase.state in {JobPhase.ASSIGNING, JobPhase.TERMINAL}:
            return []  # another transaction has found it, or will
        if event.summary is None:
            entry.refusals += 1
            return self._reload(entry)
        entry.summary = event.summary
        return self._end(entry)

    def _on_end_failed(self, event: ev.EndFailed) -> Effects:
        entry = self._jobs.get(event.job_id)
        if entry is None or entry.phase.state is not JobPhase.ABORTING:
            return []
        effects = answers.refuse_cancels(entry, event.error)
        entry.phase.to(JobPhase.WAITING, "its end could not be stored")
        self._waiting[entry.job_id] = None
        return effects + self._assign_waiting()

    def _on_cancel_failed(self, event: ev.CancelFailed) -> Effects:
        entry = self._jobs.get(event.job_id)
        return [] if entry is None else answers.refuse_cancels(entry, event.error)

    # --- assignment ---------------------------------------------------------------------------------------

    def _reserve(self, entry: JobEntry, process: JobMasterProcess) -> None:
        self.processes.release(entry.owner, entry.job_id)
        self.processes.reserve(process, entry.job_id)
        entry.owner = process.incarnation
        entry.owner_address = process.address

    def _assign_waiting(self) -> Effects:
        """Give waiting jobs to processes with room, in the order in which they began to wait."""
        effects: Effects = []
        assigned: list[JobEntry] = []
        for job_id in self._waiting:
            entry = self._jobs[job_id]
            process = self.processes.least_loaded(entry.refused_by)
            if process is None and self.processes.least_loaded(()) is None:
                break
            if process is None:
                continue
            self._reserve(entry, process)
            assigned.append(entry)
        for entry in assigned:
            del self._waiting[entry.job_id]
            entry.phase.to(JobPhase.ASSIGNING, entry.owner)
            effects.append(entry.new_owner())
        return effects

    def _waiting_now(self, entry: JobEntry, refusal: str = "") -> Effects:
        """The job is durable and has no owner: find one, or say why there is none."""
        effects: Effects = []
        if entry.wants_cancel and not entry.is_wish_stored:
            effects += self._pursue_cancel(entry)
            if entry.phase.state is JobPhase.ABORTING:
                return effects
        self._waiting[entry.job_id] = None
        effects += self._assign_waiting()
        is_waiting = entry.job_id in self._waiting
        reason = refusal or (self.processes.shortage() if is_waiting else "")
        is_news = bool(reason) and entry.show_waiting(reason)
        is_doomed = is_waiting and self.processes.have_all_refused(entry.refused_by)
        ending = self._abort(entry) if is_doomed else []
        if is_news and ev.PublishSummary(entry.job_id) not in ending:
            effects += self.shown.publish(entry.job_id)
        return effects + ending

    def _on_owner_stored(self, event: ev.OwnerStored) -> Effects:
        entry = self._jobs[event.job_id]
        entry.takeovers = event.takeovers
        return self._own(entry, event.epoch)

    def _own(self, entry: JobEntry, epoch: int) -> Effects:
        """The owner key names the process under a new epoch: give the order, unless the process went meanwhile."""
        entry.epoch = epoch
        entry.move_to = NO_PROCESS
        entry.phase.to(JobPhase.ASSIGNED, f"epoch {epoch}")
        effects = self._dismiss_former(entry)
        process = self.processes.get(entry.owner)
        if process is None:
            return effects + self._take_back(entry, PROCESS_LOST, has_begun=entry.may_have_begun)
        process.jobs.add(entry.job_id)  # it may have been lost, and have come back, during the transaction (R5)
        if process.is_draining and (passed_on := self._moves.pass_on(entry)):
            return effects + passed_on
        if entry.show_waiting(""):
            effects += self.shown.publish(entry.job_id)
        effects += self._send_assignment(entry)
        if entry.wants_cancel and not entry.is_wish_stored:
            effects += self._pursue_cancel(entry)
        return effects

    def _send_assignment(self, entry: JobEntry) -> Effects:
        process = self.processes.get(entry.owner)
        if process is None or not process.is_connected:
            return []
        process.sent.add(entry.job_id)
        entry.may_have_begun = True
        effects: Effects = [ev.SendAssign(entry.owner, entry.assignment())]
        if entry.is_wish_stored:
            effects.append(ev.SendCancel(entry.owner, entry.job_id, entry.cancel_reason))
        return effects

    def _begin_move(self, entry: JobEntry, target: JobMasterProcess) -> Effects:
        """Name another owner. The present one decides until that is durable, and nothing afterwards (R1)."""
        entry.former = ev.JobOwner(entry.owner, entry.owner_address, entry.epoch)
        entry.is_fresh = entry.is_fresh and not entry.may_have_begun
        entry.may_have_begun = False
        self._reserve(entry, target)
        entry.phase.to(JobPhase.ASSIGNING, f"moved to {target.incarnation}")
        return [entry.new_owner()]

    def _dismiss_former(self, entry: JobEntry) -> Effects:
        former, entry.former = entry.former, None
        if former is None or former.epoch == entry.epoch or former.incarnation not in self.processes:
            return []
        held = JobInventoryEntry(entry.job_id, former.epoch, entry.summary.status)
        return [ev.SendDrop(former.incarnation, (held,))]

    def _on_owner_not_stored(self, event: ev.OwnerNotStored) -> Effects:
        entry = self._jobs[event.job_id]
        entry.refusals += 1
        return self._settle(entry, event.found) + self._assign_waiting()

    def _on_assignment_refused(self, event: ev.AssignmentRefused) -> Effects:
        refusal = event.refusal
        entry = self._jobs.get(refusal.job_id)
        if entry is None or not entry.is_owned_by(event.incarnation, refusal.epoch):
            return []
        entry.refused_by[event.incarnation] = refusal.is_permanent
        entry.refusals += 1
        reason = f"JobMaster process {entry.owner_address} refused: {refusal.reason}"
        # One that broke has begun the job; one that has no room has not.
        return self._take_back(entry, reason, has_begun=refusal.is_permanent)

    def _take_back(self, entry: JobEntry, reason: str, *, has_begun: bool) -> Effects:
        """The owner does not run the job (any more): the job waits for another one."""
        self.processes.release(entry.owner, entry.job_id)
        entry.lose_owner(reason, has_begun=has_begun)
        entry.phase.to(JobPhase.WAITING, reason)
        return self._waiting_now(entry, reason)

    # --- processes ----------------------------------------------------------------------------------------

    def _on_process_known(self, event: ev.ProcessKnown) -> Effects:
        record = event.record
        process = self.processes.known(record.incarnation, record.address, record.capacity)
        # What a process says itself is newer than what the store says of it.
        told = [] if process.is_connected else self._moves.told(process, is_draining=event.is_draining)
        return told + self._assign_waiting()

    def _on_process_registered(self, event: ev.ProcessRegistered) -> Effects:
        registration = event.registration
        process = self.processes.known(registration.incarnation, registration.address, registration.capacity)
        process.version = registration.version
        process.is_connected = True
        process.sent.clear()
        self._drops.pop(registration.incarnation, None)
        effects = self._moves.told(process, is_draining=registration.is_draining)
        return effects + self._assign_waiting() + self._moves.advance()

    def _on_process_disconnected(self, event: ev.ProcessDisconnected) -> Effects:
        process = self.processes.get(event.incarnation)
        if process is None:
            return []
        process.is_connected = False
        return self._moves.gone(process, UnavailableError(f"the stream to JobMaster process {event.incarnation} ended"))

    def _on_process_lost(self, event: ev.ProcessLost) -> Effects:
        process = self.processes.remove(event.incarnation)
        self._drops.pop(event.incarnation, None)
        if process is None:
            return []
        effects = self._moves.gone(process, NotFoundError(f"JobMaster process {event.incarnation} is gone"))
        for job_id in sorted(process.jobs):
            entry = self._jobs[job_id]
            if entry.phase.state is JobPhase.ASSIGNED:
                effects += self._take_back(entry, PROCESS_LOST, has_begun=entry.may_have_begun)
            effects += [ev.SeekResult(job_id)] if job_id in self._waiting else []  # R3: it may have ended unheard
        return effects

    def _on_inventory(self, event: ev.InventoryReceived) -> Effects:
        """R5: what is owned and missing is sent again, what is there and not owned is dropped."""
        process = self.processes.get(event.incarnation)
        if process is None:
            return []
        heartbeat = event.heartbeat
        process.cpu_fraction = heartbeat.cpu_fraction
        process.memory_bytes = heartbeat.memory_bytes
        effects = self._moves.told(process, is_draining=heartbeat.is_draining)
        present = {(held.job_id, held.epoch) for held in heartbeat.inventory}
        for job_id in sorted(process.jobs):
            entry = self._jobs[job_id]
            if entry.phase.state is not JobPhase.ASSIGNED:
                continue
            if (job_id, entry.epoch) in present:
                effects += self._greet(process, entry)
            elif job_id not in process.sent or entry.epoch <= heartbeat.assignment:
                effects += self._send_assignment(entry)
        dropped = tuple(held for held in heartbeat.inventory if self._is_over(event.incarnation, held))
        if dropped:
            self._drops.pop(event.incarnation, None)
            effects.append(ev.SendDrop(event.incarnation, dropped))
        for held in heartbeat.inventory:
            owned = self._jobs.get(held.job_id)
            if held.status.is_globally_terminal and owned is not None and owned.phase.state is JobPhase.ASSIGNED:
                effects += self._reload(owned)
        return effects + self._moves.advance() if process.is_draining else effects

    def _greet(self, process: JobMasterProcess, entry: JobEntry) -> Effects:
        """The process has the job; a wish that an older stream may have lost is told again."""
        if entry.job_id in process.sent:
            return []
        process.sent.add(entry.job_id)
        return [ev.SendCancel(entry.owner, entry.job_id, entry.cancel_reason)] if entry.is_wish_stored else []

    def _is_over(self, incarnation: Incarnation, held: JobInventoryEntry) -> bool:
        """True if the process has no business with this job (any more)."""
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
            if summary.status is JobStatus.SUSPENDED or not entry.accept(summary):
                continue
            entry.refusals = 0
            effects += self._end(entry) if summary.status.is_globally_terminal else self.shown.publish(entry.job_id)
            is_moved = is_moved or entry.job_id in self._moves.under_way
        return effects + self._moves.advance() if is_moved else effects

    # --- the end ------------------------------------------------------------------------------------------

    def _end(self, entry: JobEntry) -> Effects:
        """The job's result is durable and `entry.summary` tells it."""
        entry.phase.to(JobPhase.TERMINAL, entry.summary.status.name)
        self._waiting.pop(entry.job_id, None)
        self._dirty += 1
        effects: Effects = [answers.answer_cancel_of_ended(request, entry.summary) for request in entry.cancel_requests]
        entry.cancel_requests.clear()
        effects += [*self._moves.ended(entry), *self.shown.publish(entry.job_id)]
        effects.append(ev.EndJobEverywhere(entry.job_id, entry.summary.keeps_outputs))
        holder, entry.former = (entry.former.incarnation if entry.former else entry.owner), None
        if holder in self.processes:
            # The process only keeps what the job was: not worth a message of its own.
            self._drops.setdefault(holder, []).append(entry.inventory_entry())
        self.processes.release(entry.owner, entry.job_id)
        entry.source = replace(entry.source, graph=b"")
        return effects + self._assign_waiting()

    def _on_jobs_cleaned(self, event: ev.JobsCleaned) -> Effects:
        for job_id in event.jobs:
            entry = self._jobs.pop(job_id)
            entry.phase.to(JobPhase.DONE)
            self._dirty -= 1
            self.shown.keep(FinishedJob(entry.summary, entry.source.digest))
        return []

    def _reload(self, entry: JobEntry) -> Effects:
        if entry.phase.state is not JobPhase.RELOADING and entry.phase.can(JobPhase.RELOADING):
            entry.phase.to(JobPhase.RELOADING)
            self._waiting.pop(entry.job_id, None)
            return [ev.ReloadJob(entry.job_id)]
        return []

    def _on_job_reloaded(self, event: ev.JobReloaded) -> Effects:
        entry = self._jobs.get(event.job_id)
        if entry is None or entry.phase.state is not JobPhase.RELOADING:
            return []  # it ended meanwhile
        if event.found is not None:
            entry.take_source(event.found.source)
        return self._settle(entry, event.found) + self._assign_waiting()

    def _settle(self, entry: JobEntry, found: ev.RecoveredJob | None) -> Effects:
        """Bring an entry in line with what is stored."""
        effects: Effects = []
        if found is None:
            message = f"job {entry.job_id} is not stored any more: another leader has cleaned it"
            effects = [ev.Refuse(request, NotFoundError(message)) for request in entry.cancel_requests]
            effects += self._moves.vanished(entry)
            del self._jobs[entry.job_id]
            self.processes.release(entry.owner, entry.job_id)
            return effects + self.shown.publish(entry.job_id)
        entry.remember(found)
        self._promises.recovered(entry.job_id, found.client_expires_millis)
        if found.ended is not None:
            entry.summary = found.ended
            return self._end(entry)
        if not found.graph_revision:
            effects = answers.refuse_cancels(entry, PermanentError(f"job {entry.job_id}: {GRAPH_GONE}"))
        if found.owner is None:
            self.processes.release(entry.owner, entry.job_id)
            reason = entry.lose_record()
            entry.phase.to(JobPhase.WAITING, "no owner is stored")
            return effects + self._waiting_now(entry, reason)
        effects += self._settle_owned(entry, found.owner, is_fresh=found.owner.epoch == found.graph_revision)
        self._moves.recovered(entry, found.move_to)
        return effects

    def _settle_owned(self, entry: JobEntry, owner: ev.JobOwner, *, is_fresh: bool) -> Effects:
        self.processes.release(entry.owner, entry.job_id)
        entry.owner, entry.owner_address = owner.incarnation, owner.address
        entry.is_fresh = is_fresh
        entry.may_have_begun = entry.was_owned = True
        process = self.processes.get(owner.incarnation)
        if process is not None:
            process.jobs.add(entry.job_id)
        return self._own(entry, owner.epoch)

    def _on_ticked(self, event: ev.Ticked) -> Effects:
        waiting = [self._jobs[job_id] for job_id in self._waiting]
        for entry in waiting:
            entry.refused_by = {peer: True for peer, is_permanent in entry.refused_by.items() if is_permanent}
        doomed = [entry for entry in waiting if self.processes.have_all_refused(entry.refused_by)]
        drops, self._drops = self._drops, {}
        effects: Effects = [ev.SendDrop(incarnation, tuple(entries)) for incarnation, entries in drops.items()]
        for entry in doomed:
            effects += self._abort(entry)
        effects += self._promises.at(event.now_millis, event.now)
        return effects + self._assign_waiting() + self._moves.at(event.now_millis)
