"""Which TaskManagers the owner of a job cannot reach, and for how long the job has needed a slot there (R7).

Invariants: a TaskManager is skipped while the owner names it as unreachable, and for a while after the TaskManager has
said that it cannot reach the owner; a round counts when during all of it the job lacked a slot that only skipped
TaskManagers have; the count begins anew with the first look without that need, and with every owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.common.ids import Incarnation

ROUNDS_MAX = 3


@dataclass(slots=True)
class Reach:
    """The reach of one owner of one job. The owner has `named` TaskManagers that it cannot reach; TaskManagers that
    cannot reach it are `deaf`, each until a moment (monotonic seconds).
    """

    named: frozenset[Incarnation] = frozenset()
    deaf: dict[Incarnation, float] = field(default_factory=dict)
    rounds: int = 0
    _round_ends: float | None = None

    def skips(self, incarnation: Incarnation) -> bool:
        """True if slots of this TaskManager are of no use to the job now."""
        return incarnation in self.named or incarnation in self.deaf

    def expire(self, now: float) -> bool:
        """Forget deaf TaskManagers whose time is over. True if there was one."""
        due = [incarnation for incarnation, until in self.deaf.items() if until <= now]
        for incarnation in due:
            del self.deaf[incarnation]
        return bool(due)

    def note_round(self, *, is_needed: bool, now: float, round_seconds: float) -> bool:
        """Note whether the job needs a skipped TaskManager now. True at the end of the last round."""
        if not is_needed:
            self.rounds, self._round_ends = 0, None
        elif self._round_ends is None:
            self._round_ends = now + round_seconds
        elif now >= self._round_ends:
            self.rounds, self._round_ends = self.rounds + 1, now + round_seconds
        if self.rounds < ROUNDS_MAX:
            return False
        self.rounds = 0
        return True
