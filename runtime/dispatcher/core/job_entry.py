"""One job as the leader knows it: its phase, its owner, its wishes, and its shown summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum

from runtime.common.fsm import IllegalTransitionError, StateMachine, TransitionTable
from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import UNKNOWN_NAMESPACE
from runtime.common.states import JobStatus
from runtime.dispatcher.core import wishes
from runtime.dispatcher.core.effects import StoreEnd, StoreOwner
from runtime.dispatcher.core.events import JobOwner, JobSource, RecoveredJob, SubmitFoundStored
from runtime.dispatcher.core.ownership import (
    OWNER_STATES,
    RECORD_GONE,
    Begun,
    Named,
    NeverOwned,
    Owned,
    Ownership,
    OwnerState,
    RecordLost,
    Reserved,
    Told,
    Unowned,
    Vacated,
    found,
    leaving,
    lost,
    refused,
    without_record,
)
from runtime.dispatcher.core.shown_summary import ShownSummary, of_submitter
from runtime.gateways.dispatcher import AssignJob, JobInventoryEntry, JobSummary
from runtime.gateways.overview import Takeover

TAKEOVERS_MAX = 10
"""How many takeovers of a job are kept: the latest ones."""


class JobPhase(Enum):
    """Where a job stands between its submit and its clean-up. Phases in -ING have a transaction in flight."""

    SUBMITTING = "SUBMITTING"
    WAITING = "WAITING"
    ASSIGNING = "ASSIGNING"
    ASSIGNED = "ASSIGNED"
    ABORTING = "ABORTING"
    RELOADING = "RELOADING"
    TERMINAL = "TERMINAL"
    DONE = "DONE"


_P = JobPhase
JOB_PHASES = TransitionTable(
    {
        _P.SUBMITTING: frozenset({_P.WAITING, _P.ASSIGNED}),
        _P.WAITING: frozenset({_P.ASSIGNING, _P.ABORTING, _P.RELOADING, _P.TERMINAL}),
        _P.ASSIGNING: frozenset({_P.ASSIGNED, _P.WAITING, _P.TERMINAL}),
        _P.ASSIGNED: frozenset({_P.ASSIGNING, _P.WAITING, _P.RELOADING, _P.TERMINAL}),
        _P.ABORTING: frozenset({_P.RELOADING, _P.TERMINAL, _P.WAITING}),
        _P.RELOADING: frozenset({_P.WAITING, _P.ASSIGNED, _P.TERMINAL}),
        _P.TERMINAL: frozenset({_P.DONE}),
        _P.DONE: frozenset(),
    }
)

_O = OwnerState
_UNOWNED = (_O.NEVER_OWNED, _O.VACATED, _O.RECORD_LOST)
_OWNED = (_O.NAMED, _O.TOLD)
OWNERS_IN: Mapping[JobPhase, tuple[OwnerState, ...]] = {
    _P.SUBMITTING: (_O.NEVER_OWNED, _O.RESERVED),
    _P.WAITING: _UNOWNED,
    _P.ASSIGNING: (_O.RESERVED,),
    _P.ASSIGNED: _OWNED,
    _P.ABORTING: _UNOWNED,
    _P.RELOADING: (*_UNOWNED, *_OWNED),
    _P.TERMINAL: tuple(OwnerState),
    _P.DONE: tuple(OwnerState),
}
"""The states of the owner that each phase has."""


class JobEntry:
    """A job that is not cleaned. Its phase, owner and wish to cancel change by methods, which refuse what is illegal.

    `refused_by`: the processes that have refused the job, and whether for good. `refusals`: how often in turn a process
    has refused the job, or the store a transaction of it; the next transaction waits for that (R5). `moved_millis`:
    when the leader has moved the job, 0 if it has not.
    """

    __slots__ = (
        "_cancel",
        "_ownership",
        "cancel_requests",
        "move",
        "moved_millis",
        "phase",
        "refusals",
        "refused_by",
        "shown",
        "source",
        "submit_requests",
        "takeovers",
    )

    def __init__(self, source: JobSource, phase: JobPhase, ownership: NeverOwned | RecordLost) -> None:
        assert ownership.state in OWNERS_IN[phase], (phase, ownership)
        self.source = source
        self.shown = ShownSummary(source)
        self.phase = StateMachine(f"job {source.job_id}", JOB_PHASES, phase)
        self._ownership: Ownership = ownership
        self._cancel: wishes.CancelWish = wishes.NotWanted()
        self.move = wishes.NO_MOVE
        self.submit_requests: list[int] = []
        self.cancel_requests: list[int] = []
        self.moved_millis = 0
        self.refused_by: dict[Incarnation, bool] = {}
        self.takeovers: tuple[Takeover, ...] = ()
        self.refusals = 0

    @property
    def job_id(self) -> JobId:
        """The job."""
        return self.source.job_id

    @property
    def summary(self) -> JobSummary:
        """The shown summary of the job."""
        return self.shown.summary

    # --- the owner ----------------------------------------------------------------------------------------

    @property
    def ownership(self) -> Ownership:
        """The state of the owner."""
        return self._ownership

    @property
    def owner(self) -> Incarnation:
        """The process at which the job is counted: its stored or reserved owner; "" without one."""
        return self._ownership.process

    @property
    def epoch(self) -> int:
        """The epoch of the stored owner, as far as this leader knows; 0 without one."""
        return self._ownership.epoch

    @property
    def former(self) -> JobOwner | None:
        """The owner that runs the job until another one is stored."""
        departure = self._ownership.departure
        return departure.owner if departure is not None and departure.is_running else None

    @property
    def runner(self) -> JobOwner | None:
        """The owner that runs the job now; None without one, and after the job has ended."""
        match self._ownership:
            case Named(owner) | Told(owner):
                return owner if self.phase.state is JobPhase.ASSIGNED else None
            case _:
                return None if self.phase.state in {JobPhase.TERMINAL, JobPhase.DONE} else self.former

    @property
    def can_have_begun(self) -> bool:
        """True if owners before the present one, or for an earlier leader, may have started tasks (R16)."""
        return self._ownership.begun is not Begun.NOTHING

    def is_owned_by(self, incarnation: Incarnation, epoch: int) -> bool:
        """True if that process runs the job under that epoch by the leader's own writing."""
        return self.phase.state is JobPhase.ASSIGNED and self.owner == incarnation and self.epoch == epoch

    def submit_to(self, incarnation: Incarnation, address: str) -> None:
        """The submit itself names the owner."""
        self._become(Reserved(incarnation, address, self._unowned()))

    def assign_to(self, incarnation: Incarnation, address: str) -> StoreOwner:
        """A transaction is to name the owner of a job that has none."""
        return self._reserve(Reserved(incarnation, address, self._unowned()), incarnation)

    def move_to(self, incarnation: Incarnation, address: str, reason: str) -> StoreOwner:
        """A transaction is to name another owner. The present one runs the job until it has succeeded (R1)."""
        before = leaving(self._owned(), reason)
        return self._reserve(Reserved(incarnation, address, before), f"moved to {incarnation}")

    def _reserve(self, reserved: Reserved, reason: str) -> StoreOwner:
        self._enter(JobPhase.ASSIGNING, reserved, reason)
        takeovers = self.takeovers
        if (takeover := reserved.takeover) is not None:
            takeovers = (*takeovers, takeover)[-TAKEOVERS_MAX:]
        return StoreOwner(self.job_id, reserved.process, reserved.address, reserved.epoch, takeovers, self.refusals)

    def own(self, epoch: int) -> None:
        """The transaction that names the owner has succeeded under `epoch`."""
        if not isinstance(self._ownership, Reserved):
            raise self._illegal(OwnerState.NAMED)
        self._enter(JobPhase.ASSIGNED, self._ownership.stored(epoch), f"epoch {epoch}")

    def find_owner(self, owner: JobOwner, *, is_first: bool) -> None:
        """The owner as it was read. `is_first`: it was written with the graph."""
        self._enter(JobPhase.ASSIGNED, found(owner, is_first=is_first), f"epoch {owner.epoch}")

    def tell(self) -> AssignJob:
        """The order to run this job. From now on its owner may have begun (R6)."""
        ownership = self._owned().told()
        self._become(ownership)
        source = self.source
        return AssignJob(
            job_id=source.job_id,
            epoch=ownership.epoch,
            is_fresh=ownership.begun is not Begun.TASKS,
            graph=source.graph,
            graph_key=source.graph_key,
            digest=source.digest,
            submit_millis=source.submit_millis,
            namespace=source.namespace,
            trace=source.trace,
        )

    def lose_owner(self, reason: str) -> None:
        """The process of the owner is lost."""
        self._enter(JobPhase.WAITING, lost(self._owned(), reason), reason)

    def refuse(self, reason: str, *, is_permanent: bool) -> None:
        """The owner refuses the job: for now before it has begun anything, or for good, when it may have."""
        owned = self._owned()
        self._enter(JobPhase.WAITING, refused(owned, reason, has_begun=is_permanent), reason)
        self.refused_by[owned.process] = is_permanent
        self.refusals += 1

    def find_no_owner(self) -> str:
        """No owner is stored. Returns why the job needs one, "" if no owner is known."""
        if self.epoch:
            self.refused_by.clear()  # what the processes have refused was to go on under that epoch
        self._enter(JobPhase.WAITING, without_record(self._ownership), "no owner is stored")
        return RECORD_GONE if self._ownership.last_epoch else ""

    def end_without_owner(self) -> StoreEnd:
        """The transaction that ends the job: CANCELED if a cancel is wanted, else FAILED with the shown failure."""
        self._enter(JobPhase.ABORTING, self._ownership)
        is_wanted = self.wants_cancel
        return StoreEnd(
            self.source,
            self.summary,
            JobStatus.CANCELED if is_wanted else JobStatus.FAILED,
            self._cancel.reason if is_wanted else self.summary.pending_reason,
            self.epoch,
            self.can_have_begun,
            self._ownership.last_epoch,
            self.refusals,
        )

    def wait(self, reason: str = "") -> None:
        """The job has no owner and needs one."""
        self._enter(JobPhase.WAITING, self._ownership, reason)

    def reload(self) -> None:
        """Note that the stored state of the job is being read."""
        self._enter(JobPhase.RELOADING, self._ownership)

    def end(self) -> None:
        """The job has a result, and its summary tells it."""
        self._enter(JobPhase.TERMINAL, self._ownership, self.summary.status.name)
        self.source = replace(self.source, graph=b"")

    def clean(self) -> None:
        """The job is cleaned: the store has no more than that it is done."""
        self._enter(JobPhase.DONE, self._ownership)

    def _unowned(self) -> Unowned:
        if not isinstance(self._ownership, NeverOwned | Vacated | RecordLost):
            raise self._illegal(OwnerState.RESERVED)
        return self._ownership

    def _owned(self) -> Owned:
        if not isinstance(self._ownership, Named | Told):
            raise self._illegal(OwnerState.TOLD)
        return self._ownership

    def _enter(self, phase: JobPhase, ownership: Ownership, reason: str = "") -> None:
        """Change phase and owner together, by the arcs of both and only to what belongs together."""
        self._check(ownership, phase)
        self.phase.to(phase, reason)
        self._ownership = ownership

    def _become(self, ownership: Ownership) -> None:
        """Change the owner within the phase."""
        self._check(ownership, self.phase.state)
        self._ownership = ownership

    def _check(self, ownership: Ownership, phase: JobPhase) -> None:
        before = self._ownership
        is_same = ownership is before or ownership == before
        if not is_same and not OWNER_STATES.allows(before.state, ownership.state):
            raise self._illegal(ownership.state)
        if ownership.state not in OWNERS_IN[phase]:
            message = f"job {self.job_id} cannot be {phase.name} while its owner is {ownership.state.name}"
            raise IllegalTransitionError(message)

    def _illegal(self, target: OwnerState) -> IllegalTransitionError:
        message = f"job {self.job_id}: illegal transition of its owner {self._ownership.state.name} -> {target.name}"
        return IllegalTransitionError(message)

    # --- wishes -------------------------------------------------------------------------------------------

    @property
    def cancel(self) -> wishes.CancelWish:
        """Whether the job is wanted cancelled."""
        return self._cancel

    @property
    def wants_cancel(self) -> bool:
        """True if the job is wanted cancelled, be that durable or not."""
        return self._cancel.state is not wishes.CancelState.NOT_WANTED

    def wish(self, cancel: wishes.CancelWish) -> None:
        """Change the wish to cancel, along its table."""
        if not wishes.CANCEL_STATES.allows(self._cancel.state, cancel.state):
            arc = f"{self._cancel.state.name} -> {cancel.state.name}"
            message = f"job {self.job_id}: illegal transition of the wish to cancel it {arc}"
            raise IllegalTransitionError(message)
        self._cancel = cancel

    def forget_wish(self) -> None:
        """The cancel was refused. A wish that is durable stays."""
        if isinstance(self._cancel, wishes.CancelWanted):
            self.wish(wishes.NotWanted())

    # --- what is stored -----------------------------------------------------------------------------------

    def remember(self, stored: RecoveredJob) -> None:
        """Wishes, and how the job came to its owner, as they are stored."""
        if stored.wants_cancel:
            self.wish(wishes.CancelStored(stored.cancel_reason))
        elif isinstance(self._cancel, wishes.CancelStored):
            self.wish(wishes.CancelWanted(self._cancel.reason))
        self.takeovers = stored.takeovers if stored.owner is not None else self.takeovers

    def take_source(self, stored: JobSource) -> None:
        """Take over the graph's record. One that cannot be read replaces nothing that is known."""
        if stored.digest or not (self.source.graph or self.source.graph_key):
            self.source = stored
            self.shown.summary = of_submitter(self.summary, stored)

    def found_stored(self, found: SubmitFoundStored) -> JobEntry:
        """The entry after the submit has found the job stored already: the stored state counts, and is read next.

        Nothing of the submit does: a client that has guessed the id names neither submitter nor graph (R48).
        """
        stored = JobSource(
            job_id=self.job_id,
            digest=found.digest,
            name="",
            graph=b"",
            graph_key="",
            submit_millis=self.source.submit_millis,
            client="",
            submitter=found.submitter,
            namespace=UNKNOWN_NAMESPACE,
            program_run=found.program_run,
        )
        entry = recovered_entry(stored)
        entry.cancel_requests = self.cancel_requests
        if self.wants_cancel:
            entry.wish(wishes.CancelWanted(self._cancel.reason))
        return entry

    def inventory_entry(self) -> JobInventoryEntry:
        """This job as an inventory lists it."""
        return JobInventoryEntry(self.job_id, self.epoch, self.summary.status)


def new_entry(source: JobSource) -> JobEntry:
    """An entry for a job whose submit is about to be stored."""
    return JobEntry(source, JobPhase.SUBMITTING, NeverOwned())


def recovered_entry(source: JobSource) -> JobEntry:
    """An entry for a job that was found in the store, until its stored state is taken over."""
    return JobEntry(source, JobPhase.RELOADING, RecordLost())
