"""Limits of one principal (R49): requests at once and per second. A refusal says when to come back."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.clock import Clock
from runtime.common.errors import BackpressureError

BURST_SECONDS = 5.0
"""A principal that was silent may ask as much at once as in so many seconds."""
_KNOWN_MAX = 10_000


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """`requests_per_second` in the long run, `running_max` requests at once, long polls among them.

    `places_max`: places for requests of all principals. Each principal has at most half of what the others leave, so
    that a further principal always finds a place.
    """

    requests_per_second: int
    running_max: int
    places_max: int = 1_000_000_000


NO_LIMITS = LimitSettings(1_000_000_000, 1_000_000_000)


@dataclass(slots=True)
class _Budget:
    left: float
    at: float
    running: int = 0


class PrincipalLimits:
    """A token bucket and a count for each principal. Two clock-free additions a request, and no I/O."""

    def __init__(self, settings: LimitSettings, clock: Clock) -> None:
        self._settings = settings
        self._burst = settings.requests_per_second * BURST_SECONDS
        self._clock = clock
        self._budgets: dict[str, _Budget] = {}
        self._running = 0

    def begin(self, principal: str) -> None:
        """Count a request of the principal. `end` must follow, but not after a BackpressureError."""
        settings, now = self._settings, self._clock.monotonic()
        budget = self._budgets.get(principal)
        if budget is None:
            budget = self._budgets[principal] = _Budget(self._burst, now)
            self._forget_some()
        rate = settings.requests_per_second
        budget.left = min(self._burst, budget.left + (now - budget.at) * rate)
        budget.at = now
        if budget.left < 1:
            message = f"{principal} asks more than {rate} times a second: come back later"
            raise BackpressureError(message, retry_after=max(1.0, (1 - budget.left) / rate))
        if budget.running >= settings.running_max:
            message = f"{principal} has {budget.running} requests that are not answered yet: come back later"
            raise BackpressureError(message, retry_after=1.0)
        left = settings.places_max - (self._running - budget.running)
        if 2 * (budget.running + 1) > left:
            message = (
                f"{principal} has {budget.running} requests that are not answered yet, half of what others leave of "
                f"{settings.places_max}: come back later"
            )
            raise BackpressureError(message, retry_after=1.0)
        budget.left -= 1
        budget.running += 1
        self._running += 1

    def end(self, principal: str) -> None:
        """The request was answered, or given up."""
        self._budgets[principal].running -= 1
        self._running -= 1

    def _forget_some(self) -> None:
        """Forget budgets that are full: principals of an identity provider may be many."""
        if len(self._budgets) > _KNOWN_MAX:
            now = self._clock.monotonic()
            full = [name for name, one in self._budgets.items() if not one.running and now - one.at >= BURST_SECONDS]
            for name in full:
                del self._budgets[name]
