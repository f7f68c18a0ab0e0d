"""Jobs that get another owner although theirs lives: it drains, is cut off or has too much load, or a client wants it.

Decides only which job goes to which process, and when; `Assignments` does the rest. Invariants: a job is moved again
only when its new owner has taken it over, or when that has failed; at most `drained_max` moves are under way, and for
load alone at most `rebalanced_max`. A move for load leaves the receiver with no larger share than the giver, so that no
sequence of such moves comes back to where it began; they end when no such move is left, until another process comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from runtime.common.errors import ConflictError, FlinklikeError, NotFoundError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.effects import Effects
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase
from runtime.dispatcher.core.processes import JobMasterProcess, ProcessTable
from runtime.dispatcher.core.wishes import NO_MOVE, MoveWish
from runtime.gateways.dispatcher import JobSummary

CUT_OFF = "its JobMaster process does not reach the TaskManagers that it needs"
DRAINS = "its JobMaster process drains"
ASKED_FOR = "somebody moved it"
REBALANCED = "a new JobMaster process got its share"
"""Why a job gets another owner although it has one."""

_GOING_ON = frozenset({JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RESTARTING})


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """`rebalanced_max` 0: no job is moved for load alone.

    A move for load pays only for a job that runs on for long: a job younger than `young_millis` is likely to end soon,
    and a job that was moved less than `settled_millis` ago has paused already.
    """

    drained_max: int = 20
    rebalanced_max: int = 5
    young_millis: int = 5_000
    settled_millis: int = 60_000


class MovableJobs(Protocol):
    """The jobs of the term, as far as planned moves need them."""

    def entry(self, job_id: JobId) -> JobEntry | None:
        """A job that is not cleaned."""

    def jobs_of(self, process: JobMasterProcess) -> list[JobEntry]:
        """The jobs that are counted at a process, by id."""

    def summary(self, job_id: JobId) -> JobSummary | None:
        """The shown summary of a job, also of a cleaned one."""

    def begin_move(self, entry: JobEntry, target: JobMasterProcess, reason: str) -> Effects:
        """Assign a job that has an owner to another process."""

    def reload(self, entry: JobEntry) -> Effects:
        """Read the stored state of a job again."""


class PlannedMoves:
    """The planned moves of one term."""

    def __init__(self, settings: MoveSettings, jobs: MovableJobs, processes: ProcessTable) -> None:
        self._settings = settings
        self._jobs = jobs
        self._processes = processes
        self._wanted: dict[JobId, None] = {}
        self._now_millis = 0
        self._quiet_until = 0
        self.under_way: dict[JobId, None] = {}

    def handle(self, event: ev.MoveEvent) -> Effects:
        """Decide on one event."""
        match event:
            case ev.DrainRequested():
                return self._on_drain_requested(event)
            case ev.MoveRequested():
                return self._on_move_requested(event)
            case ev.OwnerCutOff():
                return self._on_owner_cut_off(event)
            case ev.MoveWishStored():
                return self._on_wish_stored(event)
            case ev.MoveWishFailed():
                entry = self._jobs.entry(event.job_id)
                return [] if entry is None else self._refuse(entry, event.error)
            case _:
                assert_never(event)

    # --- draining -----------------------------------------------------------------------------------------

    def _on_drain_requested(self, event: ev.DrainRequested) -> Effects:
        """Ask the process itself. Its answer counts, because the process tells the next leader too."""
        process = self._processes.get(event.incarnation)
        if process is None:
            return [ef.Refuse(event.request, _unknown(event.incarnation))]
        if not process.is_connected:
            error = UnavailableError(f"JobMaster process {event.incarnation} is not connected")
            return [ef.Refuse(event.request, error)]
        if process.is_draining is event.is_draining and not process.drain_requests:
            return [ef.ReplyDone(event.request)]
        process.drain_requests[event.request] = event.is_draining
        return [ef.SendDrain(event.incarnation, event.is_draining)]

    def told(self, process: JobMasterProcess, *, is_draining: bool) -> Effects:
        """The process says whether it is draining."""
        if process.is_draining and not is_draining:
            process.is_new = True
        process.is_draining = is_draining
        done = [request for request, wanted in process.drain_requests.items() if wanted is is_draining]
        for request in done:
            del process.drain_requests[request]
        return [ef.ReplyDone(request) for request in done]

    def refuse_drains(self, process: JobMasterProcess, error: FlinklikeError) -> Effects:
        """Refuse what the process was asked: whether it has heard the question is not known."""
        requests = list(process.drain_requests)
        process.drain_requests.clear()
        return [ef.Refuse(request, error) for request in requests]

    # --- wishes -------------------------------------------------------------------------------------------

    def _on_move_requested(self, event: ev.MoveRequested) -> Effects:
        """Make the wish durable. It is for the job under its present owner only."""
        entry = self._jobs.entry(event.job_id)
        target = self._processes.get(event.target)
        error = self._refusal(event, entry, target)
        if error is not None:
            return [ef.Refuse(event.request, error)]
        assert entry is not None, event
        if entry.owner == event.target:
            return [ef.ReplyDone(event.request)]
        is_under_way = entry.move.is_being_stored
        entry.move = MoveWish(event.target, (*entry.move.requests, event.request))
        if is_under_way:
            return []
        return [ef.StoreMoveWish(entry.job_id, event.target, entry.epoch)]

    def _refusal(
        self, event: ev.MoveRequested, entry: JobEntry | None, target: JobMasterProcess | None
    ) -> FlinklikeError | None:
        shown = self._jobs.summary(event.job_id)
        if shown is None:
            return NotFoundError(f"job {event.job_id} is not known")
        if entry is None or entry.phase.state is JobPhase.TERMINAL:
            return ConflictError(f"job {event.job_id} cannot be moved: it is {shown.status.name}")
        if target is None:
            return _unknown(event.target)
        if entry.owner != event.target and not target.has_room:
            return ConflictError(f"JobMaster process {event.target} takes no job: it is {_occupied(target)}")
        return _unfit(entry, event.target)

    def _on_wish_stored(self, event: ev.MoveWishStored) -> Effects:
        """Answer the requests, and move the job."""
        entry = self._jobs.entry(event.job_id)
        if entry is None or entry.phase.state is JobPhase.TERMINAL:
            return []
        if not event.is_stored:
            return self._jobs.reload(entry)
        requests, entry.move = entry.move.requests, MoveWish(entry.move.target)
        if entry.move.target:
            self._wanted[entry.job_id] = None
        return [*(ef.ReplyDone(request) for request in requests), *self.advance()]

    def ended(self, entry: JobEntry) -> Effects:
        """The job has a result: refuse the requests that wait."""
        message = f"job {entry.job_id} cannot be moved: it is {entry.summary.status.name}"
        return self._refuse(entry, ConflictError(message))

    def vanished(self, entry: JobEntry) -> Effects:
        """The job is not stored any more: refuse the requests that wait."""
        return self._refuse(entry, NotFoundError(f"job {entry.job_id} is not known"))

    def _refuse(self, entry: JobEntry, error: FlinklikeError) -> Effects:
        requests, entry.move = entry.move.requests, NO_MOVE
        return [ef.Refuse(request, error) for request in requests]

    def recovered(self, entry: JobEntry, move_to: Incarnation) -> None:
        """Take over a wish that an earlier leader has stored and not fulfilled."""
        if move_to and entry.phase.state is JobPhase.ASSIGNED:
            entry.move = replace(entry.move, target=move_to)
            self._wanted[entry.job_id] = None

    # --- owners that are cut off (R7) ---------------------------------------------------------------------

    def _on_owner_cut_off(self, event: ev.OwnerCutOff) -> Effects:
        """Try another owner, once in `settled_millis`: where several are cut off, each move costs a pause."""
        entry = self._jobs.entry(event.job_id)
        if entry is None or entry.phase.state is not JobPhase.ASSIGNED or entry.epoch != event.epoch:
            return []
        target = self._processes.least_loaded({entry.owner, *entry.refused_by}) if self._is_settled(entry) else None
        return [] if target is None else self._begin(entry, target, CUT_OFF)

    # --- what is due --------------------------------------------------------------------------------------

    def be_quiet(self) -> None:
        """Move no job for load for `settled_millis`: a new leader does not know which jobs were moved before."""
        self._quiet_until = -1

    def at(self, now_millis: int) -> Effects:
        """Begin the moves that are due at that time."""
        self._now_millis = now_millis
        if self._quiet_until < 0:
            self._quiet_until = now_millis + self._settings.settled_millis
        return self.advance()

    def advance(self) -> Effects:
        """Begin the moves that are due now."""
        self.under_way = {job_id: None for job_id in self.under_way if self._is_under_way(self._jobs.entry(job_id))}
        return [*self._fulfil(), *self._empty(), *self._not_taken(), *self._rebalance()]

    def pass_on(self, entry: JobEntry) -> Effects:
        """The owner of the job drains: move the job to another process, if there is one with room."""
        target = self._processes.least_loaded(entry.refused_by)
        return [] if target is None else self._begin(entry, target, DRAINS)

    def _is_under_way(self, entry: JobEntry | None) -> bool:
        if entry is None:
            return False
        if entry.phase.state is JobPhase.ASSIGNED:
            return entry.summary.epoch < entry.epoch or entry.summary.status is JobStatus.INITIALIZING
        return entry.phase.state is JobPhase.ASSIGNING

    def _begin(self, entry: JobEntry, target: JobMasterProcess, reason: str) -> Effects:
        self.under_way[entry.job_id] = None
        entry.moved_millis = self._now_millis
        return self._jobs.begin_move(entry, target, reason)

    def _fulfil(self) -> Iterator[ef.DispatcherEffect]:
        for job_id in list(self._wanted):
            entry = self._jobs.entry(job_id)
            target = None if entry is None else self._processes.get(entry.move.target)
            if entry is None or target is None or target.is_draining or entry.owner == entry.move.target:
                del self._wanted[job_id]
            elif entry.phase.state is JobPhase.ASSIGNED and target.has_room:
                del self._wanted[job_id]
                yield from self._begin(entry, target, ASKED_FOR)

    def _empty(self) -> Iterator[ef.DispatcherEffect]:
        """Move the jobs of draining processes."""
        for process in [one for one in self._processes if one.is_draining]:
            for entry in self._jobs.jobs_of(process):
                if len(self.under_way) >= self._settings.drained_max:
                    return
                if entry.phase.state is JobPhase.ASSIGNED:
                    yield from self.pass_on(entry)

    def _not_taken(self) -> Iterator[ef.DispatcherEffect]:
        if any(process.may_get_room for process in self._processes):
            return
        for process in self._processes:
            if process.is_draining and process.jobs:
                yield ef.SendNotTaken(process.incarnation, "no other JobMaster process has room")

    def _rebalance(self) -> Iterator[ef.DispatcherEffect]:
        """Move to new processes their share of the jobs that others run."""
        if not self._settings.rebalanced_max or self._now_millis < self._quiet_until or self._quiet_until < 0:
            return
        for target in [one for one in self._processes if one.is_new and one.has_room]:
            while len(self.under_way) < self._settings.rebalanced_max:
                givers = self._givers(target)
                entry = next((one for giver in givers if (one := self._to_spare(giver, target))), None)
                target.is_new = bool(givers)
                if entry is None:
                    break
                yield from self._begin(entry, target, REBALANCED)

    def _givers(self, target: JobMasterProcess) -> list[JobMasterProcess]:
        """The processes that have as large a share as the target after one more move too, fullest first."""
        if not target.capacity:
            return []
        share = (len(target.jobs) + 1) / target.capacity
        givers = [
            one
            for one in self._processes
            # A process whose record cannot be read has no capacity, and keeps its jobs (R31).
            if one is not target
            and not one.is_draining
            and one.capacity
            and (len(one.jobs) - 1) / one.capacity >= share
        ]
        return sorted(givers, key=lambda one: -len(one.jobs) / one.capacity)

    def _to_spare(self, giver: JobMasterProcess, target: JobMasterProcess) -> JobEntry | None:
        entries = self._jobs.jobs_of(giver)
        return next((one for one in entries if self._stays(one) and target.incarnation not in one.refused_by), None)

    def _stays(self, entry: JobEntry) -> bool:
        """True for a job that will probably need an owner for a while."""
        settings, summary, tasks = self._settings, entry.summary, entry.summary.tasks
        left = tasks.created + tasks.scheduled + tasks.deploying + tasks.initializing + tasks.running
        return (
            entry.phase.state is JobPhase.ASSIGNED
            and summary.epoch == entry.epoch
            and summary.status in _GOING_ON
            and left > 0
            and not entry.wants_cancel
            and not entry.move.target
            and self._now_millis - summary.start_millis >= settings.young_millis
            and self._is_settled(entry)
        )

    def _is_settled(self, entry: JobEntry) -> bool:
        """True for a job that was not moved lately."""
        return not entry.moved_millis or self._now_millis - entry.moved_millis >= self._settings.settled_millis


def _unknown(incarnation: Incarnation) -> NotFoundError:
    return NotFoundError(f"JobMaster process {incarnation} is not known")


def _unfit(entry: JobEntry, target: Incarnation) -> FlinklikeError | None:
    """Why the job cannot be moved now."""
    if entry.phase.state is JobPhase.WAITING:
        return ConflictError(f"job {entry.job_id} has no owner that it could leave: {entry.summary.pending_reason}")
    if entry.phase.state is not JobPhase.ASSIGNED:
        return UnavailableError(f"the owner of job {entry.job_id} is being changed")
    if entry.wants_cancel:
        return ConflictError(f"job {entry.job_id} is being cancelled")
    if entry.move.is_being_stored and entry.move.target != target:
        return UnavailableError(f"job {entry.job_id} is being moved to JobMaster process {entry.move.target}")
    return None


def _occupied(process: JobMasterProcess) -> str:
    return "full" if process.state == "ready" else process.state
