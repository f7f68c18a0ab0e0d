"""One job as the leader knows it: its phase, its owner, and what is shown of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from runtime.common.fsm import StateMachine, TransitionTable
from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import UNKNOWN_NAMESPACE
from runtime.common.states import JobStatus
from runtime.dispatcher.core.events import NO_PROCESS, JobOwner, JobSource, RecoveredJob, StoreEnd, StoreOwner
from runtime.gateways.dispatcher import AssignJob, JobInventoryEntry, JobSummary, TaskCounts
from runtime.gateways.overview import Takeover

OWNER_GONE = "the record of its owner is gone from the store"

TAKEOVERS_MAX = 10
"""So many are kept of a job, the latest ones."""


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


@dataclass(slots=True)
class JobEntry:
    """A job that is not cleaned. `epoch` is 0 while no owner is stored; `owner` "" while there is none to talk to.

    `is_fresh`: no process that was ever named as owner can have started anything (R6): there was none before, each of
    them refused, or was never told. It is never so of a job that is found without an owner: that there was none before
    cannot be told from its record being gone. `gone_epoch`: of an owner whose record is gone. `refusals`: how often in
    turn a process has refused the job, or the store a transaction of it; the next one waits for that (R5).
    `may_have_begun`: the present owner was told, by this leader or an earlier one.
    `was_owned`: the owner was found in the store.
    `former` runs the job until the transaction that names another owner has succeeded. `move_to`: the process that
    somebody wants to run it; `move_requests` wait until that is durable. `cancel_reason`: why the cluster wants it
    cancelled, "" if a person does. `left`: how the job came to need another owner.
    """

    source: JobSource
    summary: JobSummary
    phase: StateMachine[JobPhase]
    owner: Incarnation = NO_PROCESS
    owner_address: str = ""
    epoch: int = 0
    is_fresh: bool = True
    may_have_begun: bool = False
    was_owned: bool = False
    is_reason_ours: bool = False
    wants_cancel: bool = False
    cancel_reason: str = ""
    is_wish_stored: bool = False
    submit_requests: list[int] = field(default_factory=list)
    cancel_requests: list[int] = field(default_factory=list)
    former: JobOwner | None = None
    move_to: Incarnation = NO_PROCESS
    move_requests: list[int] = field(default_factory=list)
    moved_millis: int = 0
    refused_by: dict[Incarnation, bool] = field(default_factory=dict)
    takeovers: tuple[Takeover, ...] = ()
    left: Takeover | None = None
    gone_epoch: int = 0
    refusals: int = 0

    @property
    def job_id(self) -> JobId:
        """The job."""
        return self.source.job_id

    def is_owned_by(self, incarnation: Incarnation, epoch: int) -> bool:
        """True if that process runs the job under that epoch by the leader's own writing."""
        return self.phase.state is JobPhase.ASSIGNED and self.owner == incarnation and self.epoch == epoch

    @property
    def can_have_begun(self) -> bool:
        """True if what runs of it can be known to an owner only, who was not told by this leader for the first time."""
        return self.was_owned or not self.is_fresh

    def remember(self, found: RecoveredJob) -> None:
        """Wishes, and how the job came to its owner, as they are stored."""
        self.is_wish_stored = found.wants_cancel
        self.wants_cancel = self.wants_cancel or found.wants_cancel
        self.cancel_reason = found.cancel_reason if found.wants_cancel else self.cancel_reason
        self.takeovers = found.takeovers if found.owner is not None else self.takeovers

    def take_source(self, found: JobSource) -> None:
        """What is stored of it, unless that cannot be read."""
        if found.digest:
            self.source = found
            self.summary = of_submitter(self.summary, found)

    def leave(self, reason: str) -> None:
        """The job is to get another owner than the present one."""
        self.left = Takeover(0, self.owner, self.owner_address, NO_PROCESS, "", reason)

    def lose_owner(self, reason: str, *, has_begun: bool) -> None:
        """The present owner does not run the job (any more). `has_begun`: it may have started something."""
        self.leave(reason)
        self.owner = NO_PROCESS
        self.is_fresh = self.is_fresh and not has_begun
        self.may_have_begun = False

    def lose_record(self) -> str:
        """No owner is stored. Why, if there was one: what it has started may run, and the next one takes over (R6)."""
        if self.epoch:
            if self.owner and self.phase.state is JobPhase.RELOADING:
                self.leave(OWNER_GONE)
            self.gone_epoch, self.epoch = self.epoch, 0
            self.is_fresh = False
            self.refused_by.clear()  # what it refused was to go on under that epoch
        self.owner = NO_PROCESS
        self.may_have_begun = False
        return OWNER_GONE if self.gone_epoch else ""

    def end_without_owner(self, status: JobStatus, reason: str) -> StoreEnd:
        """The transaction that ends a job which nobody runs."""
        last_epoch = self.epoch or self.gone_epoch
        return StoreEnd(
            self.source, self.summary, status, reason, self.epoch, self.can_have_begun, last_epoch, self.refusals
        )

    def new_owner(self) -> StoreOwner:
        """The transaction that names the owner. It is a takeover where an earlier one can have begun something (R6)."""
        takeovers = self.takeovers
        if self.left is not None and not self.is_fresh:
            this = replace(self.left, owner=self.owner, owner_address=self.owner_address)
            takeovers = (*takeovers, this)[-TAKEOVERS_MAX:]
        return StoreOwner(self.job_id, self.owner, self.owner_address, self.epoch, takeovers, self.refusals)

    def assignment(self) -> AssignJob:
        """The order to run this job."""
        source = self.source
        return AssignJob(
            job_id=source.job_id,
            epoch=self.epoch,
            is_fresh=self.is_fresh,
            graph=source.graph,
            graph_key=source.graph_key,
            digest=source.digest,
            submit_millis=source.submit_millis,
            namespace=source.namespace,
        )

    def taken_over(self) -> JobEntry:
        """The entry after the submit has found the job stored already: what is stored counts, and is read next.

        Whose it is, too: not whoever has guessed its id (R48).
        """
        source = replace(self.source, submitter="", namespace=UNKNOWN_NAMESPACE)
        found = recovered_entry(source, JobPhase.RELOADING)
        found.cancel_requests, found.wants_cancel = self.cancel_requests, self.wants_cancel
        return found

    def inventory_entry(self) -> JobInventoryEntry:
        """This job in the words of an inventory."""
        return JobInventoryEntry(self.job_id, self.epoch, self.summary.status)

    def show_waiting(self, reason: str) -> bool:
        """Show why nothing happens with the job; "" takes back what was shown by us. True if that is news."""
        summary = self.summary
        if summary.pending_reason == reason or not (reason or self.is_reason_ours):
            return False
        self.is_reason_ours = bool(reason)
        self.summary = replace(
            summary,
            pending_reason=reason,
            sequence=summary.sequence + 1,
            last_modification_millis=summary.last_modification_millis + 1,
        )
        return True

    def show_ending(self) -> bool:
        """Nobody runs the job, and what an owner has started is stopped before it ends (R16). True if that is news."""
        status = JobStatus.CANCELLING if self.wants_cancel else JobStatus.FAILING
        if self.summary.status is status:
            return False
        self.summary = replace(
            self.summary,
            status=status,
            sequence=self.summary.sequence + 1,
            last_modification_millis=self.summary.last_modification_millis + 1,
        )
        return True

    def accept(self, pushed: JobSummary) -> bool:
        """Take over an owner's summary if it is newer by (epoch, sequence). True if it was.

        The time of the last modification rises with every change shown, because long polls compare it.
        """
        if (pushed.epoch, pushed.sequence) <= (self.summary.epoch, self.summary.sequence):
            return False
        shown_millis = self.summary.last_modification_millis
        if pushed.last_modification_millis <= shown_millis:
            pushed = replace(pushed, last_modification_millis=shown_millis + 1)
        self.summary = of_submitter(pushed, self.source)
        self.is_reason_ours = False
        return True


def new_entry(source: JobSource) -> JobEntry:
    """An entry for a job whose submit is about to be stored."""
    return JobEntry(source, initial_summary(source), StateMachine(f"job {source.job_id}", JOB_PHASES, _P.SUBMITTING))


def recovered_entry(source: JobSource, phase: JobPhase) -> JobEntry:
    """An entry for a job that was found in the store."""
    machine = StateMachine(f"job {source.job_id}", JOB_PHASES, phase)
    return JobEntry(source, initial_summary(source), machine, is_fresh=False)


def initial_summary(source: JobSource) -> JobSummary:
    """What is shown before any owner has spoken (semantics.md: no owner yet = INITIALIZING)."""
    return JobSummary(
        job_id=source.job_id,
        name=source.name,
        status=JobStatus.INITIALIZING,
        epoch=0,
        sequence=0,
        start_millis=source.submit_millis,
        end_millis=-1,
        last_modification_millis=source.submit_millis,
        tasks=TaskCounts(),
        pending_reason="",
        submitter=source.submitter,
        namespace=source.namespace,
    )


def of_submitter(summary: JobSummary, source: JobSource) -> JobSummary:
    """The same with whose job it is, by what is stored with its graph (R48)."""
    if (summary.submitter, summary.namespace) == (source.submitter, source.namespace):
        return summary
    return replace(summary, submitter=source.submitter, namespace=source.namespace)
