"""Jobs that change their owner although it lives: it drains, is cut off, or has too much to do, or somebody wants it.

Only decides which job goes where and when; the registry makes it an assignment like any other. Invariants: a job is
moved again only when its new owner has taken it over, or when that failed; at most `drained_max` moves are under way,
and for load alone at most `rebalanced_max`. Each move for load leaves the receiver with no larger share than the giver,
so that no sequence of them comes back to where it began; they end when no move does, until another process comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from runtime.common.errors import ConflictError, FlinklikeError, NotFoundError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.events import NO_PROCESS
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase
from runtime.dispatcher.core.processes import JobMasterProcess, ProcessTable
from runtime.gateways.dispatcher import JobSummary

Effects = list[ev.DispatcherEffect]

CUT_OFF = "its JobMaster process does not reach the TaskManagers that it needs"
DRAINS = "its JobMaster process drains"
ASKED_FOR = "somebody moved it"
REBALANCED = "a new JobMaster process got its share"
"""Why a job gets another owner although it has one."""

_GOING_ON = frozenset({JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RESTARTING})


@dataclass(frozen=True, slots=True)
class MoveSettings:
    """`rebalanced_max` 0: no job is moved for load alone.

    Such a move pays only for a job that stays: one younger than `young_millis` is likely to end soon, and one that was
    moved less than `settled_millis` ago has had its pause.
    """

    drained_max: int = 20
    rebalanced_max: int = 5
    young_millis: int = 5_000
    settled_millis: int = 60_000


class PlannedMoves:
    """Of one term. `begin` starts the assignment of a job to another process, `reload` reads a job again."""

    def __init__(
        self,
        settings: MoveSettings,
        jobs: Mapping[JobId, JobEntry],
        processes: ProcessTable,
        *,
        shown: Callable[[JobId], JobSummary | None],
        begin: Callable[[JobEntry, JobMasterProcess], Effects],
        reload: Callable[[JobEntry], Effects],
    ) -> None:
        self._settings = settings
        self._jobs = jobs
        self._processes = processes
        self._shown = shown
        self._begin_assignment = begin
        self._reload = reload
        self._wanted: dict[JobId, None] = {}
        self._now_millis = 0
        self._quiet_until = 0
        self.under_way: dict[JobId, None] = {}

    # --- draining -----------------------------------------------------------------------------------------

    def on_drain_requested(self, event: ev.DrainRequested) -> Effects:
        """The process itself is asked, and answers: it tells the next leader too."""
        process = self._processes.get(event.incarnation)
        if process is None:
            return [ev.Refuse(event.request, _unknown(event.incarnation))]
        if not process.is_connected:
            error = UnavailableError(f"JobMaster process {event.incarnation} is not connected")
            return [ev.Refuse(event.request, error)]
        if process.is_draining is event.is_draining and not process.drain_requests:
            return [ev.ReplyDone(event.request)]
        process.drain_requests[event.request] = event.is_draining
        return [ev.SendDrain(event.incarnation, event.is_draining)]

    def told(self, process: JobMasterProcess, *, is_draining: bool) -> Effects:
        """The process says whether it is draining."""
        if process.is_draining and not is_draining:
            process.is_new = True
        process.is_draining = is_draining
        done = [request for request, wanted in process.drain_requests.items() if wanted is is_draining]
        for request in done:
            del process.drain_requests[request]
        return [ev.ReplyDone(request) for request in done]

    def gone(self, process: JobMasterProcess, error: FlinklikeError) -> Effects:
        """Nobody knows whether the process has heard what it was asked."""
        requests = list(process.drain_requests)
        process.drain_requests.clear()
        return [ev.Refuse(request, error) for request in requests]

    # --- wishes -------------------------------------------------------------------------------------------

    def on_move_requested(self, event: ev.MoveRequested) -> Effects:
        """Make the wish durable; it is for the job under its present owner only."""
        entry = self._jobs.get(event.job_id)
        target = self._processes.get(event.target)
        error = self._refusal(event, entry, target)
        if error is not None:
            return [ev.Refuse(event.request, error)]
        assert entry is not None, event
        if entry.owner == event.target:
            return [ev.ReplyDone(event.request)]
        entry.move_requests.append(event.request)
        if len(entry.move_requests) > 1:
            return []
        entry.move_to = event.target
        return [ev.StoreMoveWish(entry.job_id, event.target, entry.epoch)]

    def _refusal(
        self, event: ev.MoveRequested, entry: JobEntry | None, target: JobMasterProcess | None
    ) -> FlinklikeError | None:
        shown = self._shown(event.job_id)
        if shown is None:
            return NotFoundError(f"job {event.job_id} is not known")
        if entry is None or entry.phase.state is JobPhase.TERMINAL:
            return ConflictError(f"job {event.job_id} cannot be moved: it is {shown.status.name}")
        if target is None:
            return _unknown(event.target)
        if entry.owner != event.target and not target.has_room:
            return ConflictError(f"JobMaster process {event.target} takes no job: it is {_occupied(target)}")
        return _unfit(entry, event.target)

    def on_wish_stored(self, event: ev.MoveWishStored) -> Effects:
        """Answer, and move."""
        entry = self._jobs.get(event.job_id)
        if entry is None or entry.phase.state is JobPhase.TERMINAL:
            return []
        if not event.is_stored:
            return self._reload(entry)
        requests = list(entry.move_requests)
        entry.move_requests.clear()
        if entry.move_to:
            self._wanted[entry.job_id] = None
        return [*(ev.ReplyDone(request) for request in requests), *self.advance()]

    def on_wish_failed(self, event: ev.MoveWishFailed) -> Effects:
        """Nothing was wished for."""
        entry = self._jobs.get(event.job_id)
        return [] if entry is None else self._refuse(entry, event.error)

    def ended(self, entry: JobEntry) -> Effects:
        """The job has a result."""
        message = f"job {entry.job_id} cannot be moved: it is {entry.summary.status.name}"
        return self._refuse(entry, ConflictError(message))

    def vanished(self, entry: JobEntry) -> Effects:
        """The job is not stored any more."""
        return self._refuse(entry, NotFoundError(f"job {entry.job_id} is not known"))

    def _refuse(self, entry: JobEntry, error: FlinklikeError) -> Effects:
        requests = list(entry.move_requests)
        entry.move_requests.clear()
        entry.move_to = NO_PROCESS
        return [ev.Refuse(request, error) for request in requests]

    def recovered(self, entry: JobEntry, move_to: Incarnation) -> None:
        """A wish that an earlier leader has stored and not fulfilled."""
        if move_to and entry.phase.state is JobPhase.ASSIGNED:
            entry.move_to = move_to
            self._wanted[entry.job_id] = None

    # --- owners that are cut off (R7) ---------------------------------------------------------------------

    def on_owner_cut_off(self, event: ev.OwnerCutOff) -> Effects:
        """Try another owner, not again and again: where several are cut off, each move costs a pause."""
        entry = self._jobs.get(event.job_id)
        if entry is None or entry.phase.state is not JobPhase.ASSIGNED or entry.epoch != event.epoch:
            return []
        target = self._processes.least_loaded({entry.owner, *entry.refused_by}) if self._is_settled(entry) else None
        return [] if target is None else self._begin(entry, target, CUT_OFF)

    # --- what is due --------------------------------------------------------------------------------------

    def be_quiet(self) -> None:
        """A new leader does not know what was moved before: no job is moved for load until that does not matter."""
        self._quiet_until = -1

    def at(self, now_millis: int) -> Effects:
        """Time passed."""
        self._now_millis = now_millis
        if self._quiet_until < 0:
            self._quiet_until = now_millis + self._settings.settled_millis
        return self.advance()

    def advance(self) -> Effects:
        """Begin the moves that are due now."""
        self.under_way = {job_id: None for job_id in self.under_way if self._is_under_way(self._jobs.get(job_id))}
        return [*self._fulfil(), *self._empty(), *self._not_taken(), *self._rebalance()]

    def pass_on(self, entry: JobEntry) -> Effects:
        """The job was just assigned to a process that is draining: give it to another one, if there is one."""
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
        entry.leave(reason)
        entry.moved_millis = self._now_millis
        return self._begin_assignment(entry, target)

    def _fulfil(self) -> Iterator[ev.DispatcherEffect]:
        for job_id in list(self._wanted):
            entry = self._jobs.get(job_id)
            target = None if entry is None else self._processes.get(entry.move_to)
            if entry is None or target is None or target.is_draining or entry.owner == entry.move_to:
                del self._wanted[job_id]
            elif entry.phase.state is JobPhase.ASSIGNED and target.has_room:
                del self._wanted[job_id]
                yield from self._begin(entry, target, ASKED_FOR)

    def _empty(self) -> Iterator[ev.DispatcherEffect]:
        """The jobs of draining processes."""
        for process in [one for one in self._processes if one.is_draining]:
            for job_id in sorted(process.jobs):
                entry = self._jobs[job_id]
                if len(self.under_way) >= self._settings.drained_max:
                    return
                if entry.phase.state is JobPhase.ASSIGNED:
                    yield from self.pass_on(entry)

    def _not_taken(self) -> Iterator[ev.DispatcherEffect]:
        if any(process.may_get_room for process in self._processes):
            return
        for process in self._processes:
            if process.is_draining and process.jobs:
                yield ev.SendNotTaken(process.incarnation, "no other JobMaster process has room")

    def _rebalance(self) -> Iterator[ev.DispatcherEffect]:
        """Give processes that are new their share of the jobs that others run."""
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
        """Who would still have as large a share as the target after one more move, fullest first."""
        if not target.capacity:
            return []
        share = (len(target.jobs) + 1) / target.capacity
        givers = [
            one
            for one in self._processes
            # One whose record cannot be read has no capacity, and keeps its jobs (R31).
            if one is not target
            and not one.is_draining
            and one.capacity
            and (len(one.jobs) - 1) / one.capacity >= share
        ]
        return sorted(givers, key=lambda one: -len(one.jobs) / one.capacity)

    def _to_spare(self, giver: JobMasterProcess, target: JobMasterProcess) -> JobEntry | None:
        entries = (self._jobs[job_id] for job_id in sorted(giver.jobs))
        return next((one for one in entries if self._stays(one) and target.incarnation not in one.refused_by), None)

    def _stays(self, entry: JobEntry) -> bool:
        """True for a job that will need its owner for a while, by all that is known."""
        settings, summary, tasks = self._settings, entry.summary, entry.summary.tasks
        left = tasks.created + tasks.scheduled + tasks.deploying + tasks.initializing + tasks.running
        return (
            entry.phase.state is JobPhase.ASSIGNED
            and summary.epoch == entry.epoch
            and summary.status in _GOING_ON
            and left > 0
            and not entry.wants_cancel
            and not entry.move_to
            and self._now_millis - summary.start_millis >= settings.young_millis
            and self._is_settled(entry)
        )

    def _is_settled(self, entry: JobEntry) -> bool:
        """True for a job that was not moved lately."""
        return not entry.moved_millis or self._now_millis - entry.moved_millis >= self._settings.settled_millis


def _unknown(incarnation: Incarnation) -> NotFoundError:
    return NotFoundError(f"JobMaster process {incarnation} is not known")


def _unfit(entry: JobEntry, target: Incarnation) -> FlinklikeError | None:
    """Why the job cannot go anywhere now."""
    if entry.phase.state is JobPhase.WAITING:
        return ConflictError(f"job {entry.job_id} has no owner that it could leave: {entry.summary.pending_reason}")
    if entry.phase.state is not JobPhase.ASSIGNED:
        return UnavailableError(f"the owner of job {entry.job_id} is being changed")
    if entry.wants_cancel:
        return ConflictError(f"job {entry.job_id} is being cancelled")
    if entry.move_requests and entry.move_to != target:
        return UnavailableError(f"job {entry.job_id} is being moved to JobMaster process {entry.move_to}")
    return None


def _occupied(process: JobMasterProcess) -> str:
    return "full" if process.state == "ready" else process.state
