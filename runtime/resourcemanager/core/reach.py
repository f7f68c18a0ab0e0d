"""Which TaskManagers the owner of a job cannot reach, and for how long the job has needed one of them (R7).

Invariants: a TaskManager is skipped while the owner names it, and for a while after it has given up to offer a slot to
an owner that it cannot reach itself; a round counts when the job lacked a slot all through it that only skipped
TaskManagers have; the count begins anew with the first moment without that need, and with every owner.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime.common.ids import Incarnation

ROUNDS_MAX = 3


@dataclass(slots=True)
class Reach:
    """Of one job under one owner. `named` by the owner; `deaf` to it by their own word, each until a moment."""

    named: frozenset[Incarnation] = frozenset()
    deaf: dict[Incarnation, float] = field(default_factory=dict)
    rounds: int = 0
    _round_ends: float | None = None

    def skips(self, incarnation: Incarnation) -> bool:
        """True for one whose slots are of no use to the job now."""
        return incarnation in self.named or incarnation in self.deaf

    def expire(self, now: float) -> bool:
        """Try again what was long enough ago. True if there is any."""
        due = [incarnation for incarnation, until in self.deaf.items() if until <= now]
        for incarnation in due:
            del self.deaf[incarnation]
        return bool(due)

    def is_hopeless(self, *, is_needed: bool, now: float, round_seconds: float) -> bool:
        """Look once more whether the job needs a skipped one. True at the end of the last round."""
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
