"""The wishes of clients, or of the cluster, about a job: to cancel it, or to have another process run it.

A wish counts, and is answered, when it is durable (R3).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from runtime.common.fsm import TransitionTable
from runtime.common.ids import Incarnation
from runtime.dispatcher.core.events import NO_PROCESS


class CancelState(Enum):
    """Whether a job is wanted cancelled."""

    NOT_WANTED = "NOT_WANTED"
    WANTED = "WANTED"
    STORED = "STORED"


_C = CancelState
CANCEL_STATES = TransitionTable(
    {
        _C.NOT_WANTED: frozenset({_C.WANTED, _C.STORED}),
        _C.WANTED: frozenset({_C.NOT_WANTED, _C.STORED}),
        _C.STORED: frozenset({_C.WANTED, _C.STORED}),
    }
)


@dataclass(frozen=True, slots=True)
class NotWanted:
    """The job is to run."""

    state: ClassVar[CancelState] = CancelState.NOT_WANTED
    reason: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class CancelWanted:
    """The job is to be cancelled, which is not durable: no owner is told (R3).

    `reason`: why the cluster wants it, "" if a client does.
    """

    state: ClassVar[CancelState] = CancelState.WANTED

    reason: str


@dataclass(frozen=True, slots=True)
class CancelStored:
    """The wish to cancel is durable: every owner is told (R5), and a job without an owner ends as CANCELED."""

    state: ClassVar[CancelState] = CancelState.STORED

    reason: str


CancelWish = NotWanted | CancelWanted | CancelStored


@dataclass(frozen=True, slots=True)
class MoveWish:
    """That the process `target` runs the job instead of its owner. Of the cluster's own moves nothing is stored.

    `requests` wait for the transaction that makes the wish durable; without any, none is under way. A job that gets
    another owner meanwhile keeps them, and no target: the wish was for the job under its owner of then.
    """

    target: Incarnation = NO_PROCESS
    requests: tuple[int, ...] = ()

    @property
    def is_being_stored(self) -> bool:
        """True while the transaction is under way: no other one may write the same key."""
        return bool(self.requests)

    def overtaken(self) -> MoveWish:
        """The job has got another owner."""
        return MoveWish(NO_PROCESS, self.requests)


NO_MOVE = MoveWish()
