"""The fences that a job has put on TaskManagers, and what each of them allows (R14).

Invariants: an exclusive attempt on a lost TaskManager counts as stopped only when the fence on that TaskManager is
confirmed, or waited out: acknowledged by the store for longer than a TaskManager without contact needs to stop by
itself. No attempt is deployed on a TaskManager whose fence is not confirmed; a later deployment names the fence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.common.fsm import StateMachine, TransitionTable
from runtime.common.ids import Incarnation


class FenceState(Enum):
    """ASKED for, WRITTEN and acknowledged, WAITED_OUT without a confirmation, CONFIRMED."""

    ASKED = "ASKED"
    WRITTEN = "WRITTEN"
    WAITED_OUT = "WAITED_OUT"
    CONFIRMED = "CONFIRMED"


FENCE_TRANSITIONS = TransitionTable(
    {
        FenceState.ASKED: frozenset({FenceState.WRITTEN, FenceState.CONFIRMED}),
        FenceState.WRITTEN: frozenset({FenceState.WAITED_OUT, FenceState.CONFIRMED}),
        FenceState.WAITED_OUT: frozenset({FenceState.CONFIRMED}),
        FenceState.CONFIRMED: frozenset({FenceState.ASKED}),
    }
)

_STOPPED = frozenset({FenceState.WAITED_OUT, FenceState.CONFIRMED})


@dataclass(slots=True)
class _Fence:
    machine: StateMachine[FenceState]
    revision: int = 0
    due: float = 0.0


class Fences:
    """The fences of one job. `unconfirmed_wait`: seconds until a fence is waited out; None: fences cannot be used."""

    __slots__ = ("_fences", "_to_write", "_unconfirmed_wait")

    def __init__(self, unconfirmed_wait: float | None) -> None:
        self._unconfirmed_wait = unconfirmed_wait
        self._fences: dict[Incarnation, _Fence] = {}
        self._to_write: list[Incarnation] = []

    @property
    def are_available(self) -> bool:
        """False where TaskManagers cannot read fences: then only a proof of death says that an attempt has stopped."""
        return self._unconfirmed_wait is not None

    def ask(self, incarnation: Incarnation) -> None:
        """Have the TaskManager stop everything of this job. Nothing new while a fence on it is on its way."""
        assert self.are_available, incarnation
        known = self._fences.get(incarnation)
        if known is None:
            machine = StateMachine(f"fence on {incarnation}", FENCE_TRANSITIONS, FenceState.ASKED)
            self._fences[incarnation] = _Fence(machine)
        elif known.machine.state is FenceState.CONFIRMED:
            known.machine.to(FenceState.ASKED)
        else:
            return
        self._to_write.append(incarnation)

    def take_to_write(self) -> list[Incarnation]:
        """Fences that are to be written now, once."""
        taken, self._to_write = self._to_write, []
        return taken

    def written(self, incarnation: Incarnation, revision: int, now: float) -> float:
        """The store has acknowledged the fence. Returns the monotonic time at which the fence is waited out."""
        assert self._unconfirmed_wait is not None, incarnation
        fence = self._fences[incarnation]
        is_newer, fence.revision = revision > fence.revision, revision
        if fence.machine.state is FenceState.ASKED:
            fence.machine.to(FenceState.WRITTEN)
        elif fence.machine.state is not FenceState.WRITTEN or not is_newer:
            return fence.due
        fence.due = now + self._unconfirmed_wait  # R14: contact before that did not show this one
        return fence.due

    def confirmed(self, incarnation: Incarnation) -> None:
        """The TaskManager has obeyed, or is dead: no attempt that the fence was for runs there."""
        fence = self._fences[incarnation]
        if fence.machine.state is not FenceState.CONFIRMED:
            fence.machine.to(FenceState.CONFIRMED)

    def waited_out(self, now: float) -> list[Incarnation]:
        """The TaskManagers that must have stopped by themselves by now, once each."""
        due = [
            incarnation
            for incarnation, fence in self._fences.items()
            if fence.machine.state is FenceState.WRITTEN and fence.due <= now
        ]
        for incarnation in due:
            self._fences[incarnation].machine.to(FenceState.WAITED_OUT)
        return due

    def has_stopped(self, incarnation: Incarnation) -> bool:
        """True when every attempt that ran there when the fence was asked for has stopped."""
        fence = self._fences.get(incarnation)
        return fence is not None and fence.machine.state in _STOPPED

    def is_waited_out(self, incarnation: Incarnation) -> bool:
        """True when the TaskManager must have stopped by itself, and has not confirmed it."""
        fence = self._fences.get(incarnation)
        return fence is not None and fence.machine.state is FenceState.WAITED_OUT

    def is_closed(self, incarnation: Incarnation) -> bool:
        """True while no attempt may be deployed there: the fence would stop or refuse it."""
        fence = self._fences.get(incarnation)
        return fence is not None and fence.machine.state is not FenceState.CONFIRMED

    def closed(self) -> tuple[Incarnation, ...]:
        """All TaskManagers on which no attempt may be deployed because of a fence."""
        return tuple(incarnation for incarnation in self._fences if self.is_closed(incarnation))

    def revision(self, incarnation: Incarnation) -> int:
        """The revision of the fence that a deployment has to name, 0 for none."""
        fence = self._fences.get(incarnation)
        return fence.revision if fence is not None else 0
