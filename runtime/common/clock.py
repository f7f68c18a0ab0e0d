"""Time as a parameter. Everything that *reads* time takes a Clock; everything that *waits* uses the loop.

On the simulation's loop both come from virtual time, so the whole control plane can be replayed by seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Clock(Protocol):
    """Reads the two clocks. Implementations: `runtime.aio.clock.LoopClock`, and virtual ones in tests/kit."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""

    def epoch_millis(self) -> int:
        """Milliseconds since 1970, for display and REST only. No decision may rest on it."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on a monotonic clock."""

    at: float

    @classmethod
    def after(cls, clock: Clock, timeout: float) -> Deadline:
        """The moment `timeout` seconds from now."""
        return cls(clock.monotonic() + timeout)

    def remaining(self, clock: Clock) -> float:
        """Seconds left, negative once it has passed."""
        return self.at - clock.monotonic()

    def has_passed(self, clock: Clock) -> bool:
        """True from the deadline on."""
        return self.remaining(clock) <= 0
