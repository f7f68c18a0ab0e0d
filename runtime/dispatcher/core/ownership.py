"""Who runs a job by the leader's own writing, and what may have begun of it.

The owner of a job is one state object, which says everything that the leader decides by. Which state may follow which
one is in OWNER_STATES. What can run is never judged too low: a job of which something may run is taken over, never
begun anew (R6), and stopped before it ends without an owner (R16).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar

from runtime.common.fsm import TransitionTable
from runtime.common.ids import Incarnation
from runtime.dispatcher.core.events import NO_PROCESS, JobOwner
from runtime.gateways.overview import Takeover

RECORD_GONE = "the record of its owner is gone from the store"


class Begun(Enum):
    """The work of a job that owners before the present one may have started."""

    NOTHING = "NOTHING"
    """Nothing: each of them refused the job, or was never told to run it. The next owner is a first one (R6)."""

    UNKNOWN = "UNKNOWN"
    """The first owner was found in the store: an earlier leader may have told it. It is a first one still (R6), but
    this leader does not know what it has started (R16)."""

    TASKS = "TASKS"
    """Tasks, which may run on. The next owner takes the job over (R6)."""


class OwnerState(Enum):
    """The kinds of states that the owner of a job can be in."""

    NEVER_OWNED = "NEVER_OWNED"
    RESERVED = "RESERVED"
    NAMED = "NAMED"
    TOLD = "TOLD"
    VACATED = "VACATED"
    RECORD_LOST = "RECORD_LOST"


_S = OwnerState
OWNER_STATES = TransitionTable(
    {
        _S.NEVER_OWNED: frozenset({_S.RESERVED, _S.TOLD}),
        _S.RESERVED: frozenset({_S.NAMED, _S.TOLD, _S.NEVER_OWNED, _S.RECORD_LOST}),
        _S.NAMED: frozenset({_S.TOLD, _S.VACATED, _S.RESERVED, _S.RECORD_LOST}),
        _S.TOLD: frozenset({_S.TOLD, _S.VACATED, _S.RESERVED, _S.RECORD_LOST}),
        _S.VACATED: frozenset({_S.RESERVED, _S.TOLD, _S.RECORD_LOST}),
        _S.RECORD_LOST: frozenset({_S.RESERVED, _S.TOLD}),
    }
)


@dataclass(frozen=True, slots=True)
class Departure:
    """The last owner, and why the job needs another one. `is_running`: it runs the job until that one is stored."""

    owner: JobOwner
    reason: str
    is_running: bool = False


@dataclass(frozen=True, slots=True)
class NeverOwned:
    """No owner was ever stored: this leader has accepted the job itself, and no task of it can run (R6)."""

    state: ClassVar[OwnerState] = OwnerState.NEVER_OWNED
    departure: ClassVar[None] = None
    process: ClassVar[Incarnation] = NO_PROCESS
    epoch: ClassVar[int] = 0
    last_epoch: ClassVar[int] = 0
    begun: ClassVar[Begun] = Begun.NOTHING


@dataclass(frozen=True, slots=True)
class Vacated:
    """The last owner is stored and does not run the job any more: its process is lost, or has refused the job (R5)."""

    state: ClassVar[OwnerState] = OwnerState.VACATED
    process: ClassVar[Incarnation] = NO_PROCESS

    departure: Departure
    begun: Begun

    @property
    def epoch(self) -> int:
        """The epoch of the stored owner: the next owner replaces that one only (R5)."""
        return self.departure.owner.epoch

    @property
    def last_epoch(self) -> int:
        """The highest epoch that this leader knows."""
        return self.departure.owner.epoch


@dataclass(frozen=True, slots=True)
class RecordLost:
    """No owner is stored, and there may have been one: its tasks may run, and the next owner takes the job over (R6).

    `departure`: of the last owner; None if this leader has never known one.
    """

    state: ClassVar[OwnerState] = OwnerState.RECORD_LOST
    process: ClassVar[Incarnation] = NO_PROCESS
    epoch: ClassVar[int] = 0
    begun: ClassVar[Begun] = Begun.TASKS

    departure: Departure | None = None

    @property
    def last_epoch(self) -> int:
        """The highest epoch that this leader knows, 0 if it knows none."""
        return self.departure.owner.epoch if self.departure is not None else 0


Unowned = NeverOwned | Vacated | RecordLost


@dataclass(frozen=True, slots=True)
class Reserved:
    """A transaction that names `process` as owner is under way: until it succeeds, everything is as `before` (R1)."""

    state: ClassVar[OwnerState] = OwnerState.RESERVED

    process: Incarnation
    address: str
    before: Unowned

    @property
    def departure(self) -> Departure | None:
        """The departure of the owner before this one; None without one."""
        return self.before.departure

    @property
    def epoch(self) -> int:
        """The epoch of the owner that the transaction replaces, 0 if it expects none."""
        return self.before.epoch

    @property
    def last_epoch(self) -> int:
        """The highest epoch that this leader knows, 0 if it knows none."""
        return self.before.last_epoch

    @property
    def begun(self) -> Begun:
        """By owners before this one, which is not told before it is stored (R5)."""
        return self.before.begun

    @property
    def takeover(self) -> Takeover | None:
        """How the job comes to this owner, if it takes over what an earlier one may have started (R6)."""
        departure = self.departure
        if departure is None or self.begun is not Begun.TASKS:
            return None
        former = departure.owner
        return Takeover(0, former.incarnation, former.address, self.process, self.address, departure.reason)

    def stored(self, epoch: int) -> Named:
        """The transaction has succeeded."""
        return Named(JobOwner(self.process, self.address, epoch), self.begun)


@dataclass(frozen=True, slots=True)
class _Owned:
    """`begun`: by owners before this one, and by this one for an earlier leader."""

    owner: JobOwner
    begun: Begun

    @property
    def process(self) -> Incarnation:
        """The process at which the job is counted."""
        return self.owner.incarnation

    @property
    def epoch(self) -> int:
        """Under which the owner is stored."""
        return self.owner.epoch

    @property
    def last_epoch(self) -> int:
        """The highest epoch that this leader knows."""
        return self.owner.epoch


@dataclass(frozen=True, slots=True)
class Named(_Owned):
    """The owner is stored and was not told to run the job: it can have started nothing (R6)."""

    state: ClassVar[OwnerState] = OwnerState.NAMED
    departure: ClassVar[None] = None

    def told(self) -> Told:
        """The order to run the job is sent (R5)."""
        return Told(self.owner, self.begun)


@dataclass(frozen=True, slots=True)
class Told(_Owned):
    """The owner is stored and was told to run the job, by this leader or an earlier one: it may have begun (R6)."""

    state: ClassVar[OwnerState] = OwnerState.TOLD
    departure: ClassVar[None] = None

    def told(self) -> Told:
        """The order is repeated (R5)."""
        return self


Owned = Named | Told
Ownership = NeverOwned | Reserved | Named | Told | Vacated | RecordLost


def found(owner: JobOwner, *, is_first: bool) -> Told:
    """The owner as the store has it. `is_first`: it was written with the graph."""
    return Told(owner, Begun.UNKNOWN if is_first else Begun.TASKS)


def refused(ownership: Owned, reason: str, *, has_begun: bool) -> Vacated:
    """The owner says that it does not run the job. `has_begun`: it may have started something."""
    return Vacated(Departure(ownership.owner, reason), Begun.TASKS if has_begun else ownership.begun)


def lost(ownership: Owned, reason: str) -> Vacated:
    """The process of the owner is lost."""
    return refused(ownership, reason, has_begun=isinstance(ownership, Told))


def leaving(ownership: Owned, reason: str) -> Vacated:
    """The owner goes on until another one, which is planned, is stored. It decides until then, and not after (R1)."""
    vacated = lost(ownership, reason)
    return replace(vacated, departure=replace(vacated.departure, is_running=True))


def without_record(ownership: Ownership) -> NeverOwned | RecordLost:
    """No owner is stored, also if this leader has written one. Tasks of an owner that was stored may run (R6)."""
    match ownership:
        case NeverOwned() | Reserved(before=NeverOwned()):
            return NeverOwned()
        case Named(owner) | Told(owner):
            return RecordLost(Departure(owner, RECORD_GONE))
        case Reserved() | Vacated() | RecordLost():
            return RecordLost(ownership.departure)
