"""Flink's restart strategies: after a failure, whether the job goes on, and after what pause.

Invariants: a failure is noted before it is asked about; what a strategy has noted can be noted again from durable
events, with the pause that was drawn then, and leads to the same answers (R10). Time is monotonic seconds, jitter a
number that the caller draws.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol, assert_never

from runtime.jobgraph.restart_strategy import (
    ExponentialDelayRestartStrategy,
    FailureRateRestartStrategy,
    FixedDelayRestartStrategy,
    NoRestartStrategy,
    RestartStrategy,
)

_GROWTH_MAX = 50.0
"""Logarithm of a growth that reaches any largest pause; beyond it numbers overflow."""


@dataclass(frozen=True, slots=True)
class CountedFailure:
    """A failure that a strategy counts: when it was, and the pause that follows it."""

    at: float
    delay: float


class RestartBackoffTimeStrategy(Protocol):
    """Decides by the failures it has noted."""

    def failure(self, now: float, draw: float) -> CountedFailure | None:
        """What a failure now would count as; None if it falls into the pause before a restart (it counts once).

        `draw` is a number in [-1, 1): the jitter. Changes nothing.
        """

    def note(self, failure: CountedFailure) -> None:
        """A failure has happened."""

    def can_restart(self, now: float) -> bool:
        """True unless the failures noted so far are too many."""

    def delay(self, now: float) -> float:
        """How long to wait from now before the restart that the last noted failure asks for."""


class NoRestart:
    """The strategy of jobs that never restart. Implements `RestartBackoffTimeStrategy`."""

    def failure(self, now: float, draw: float) -> CountedFailure:
        """Every failure is one."""
        del draw
        return CountedFailure(now, 0.0)

    def note(self, failure: CountedFailure) -> None:
        """Nothing depends on it."""

    def can_restart(self, now: float) -> bool:
        """Never."""
        del now
        return False

    def delay(self, now: float) -> float:
        """There is no restart."""
        del now
        return 0.0


class FixedDelay:
    """A number of restarts, each after the same pause. Implements `RestartBackoffTimeStrategy`."""

    __slots__ = ("_failures", "_settings")

    def __init__(self, settings: FixedDelayRestartStrategy) -> None:
        self._settings = settings
        self._failures = 0

    def failure(self, now: float, draw: float) -> CountedFailure:
        """Every failure is one."""
        del draw
        return CountedFailure(now, self._settings.delay_seconds)

    def note(self, failure: CountedFailure) -> None:
        """One more."""
        del failure
        self._failures += 1

    def can_restart(self, now: float) -> bool:
        """While there are attempts left."""
        del now
        return self._failures <= self._settings.attempts

    def delay(self, now: float) -> float:
        """Always the same."""
        del now
        return self._settings.delay_seconds


class FailureRate:
    """Implements `RestartBackoffTimeStrategy`. Keeps as many moments as it needs to tell the rate."""

    __slots__ = ("_moments", "_settings")

    def __init__(self, settings: FailureRateRestartStrategy) -> None:
        self._settings = settings
        self._moments: deque[float] = deque(maxlen=settings.max_failures_per_interval + 1)

    def failure(self, now: float, draw: float) -> CountedFailure:
        """Every failure is one."""
        del draw
        return CountedFailure(now, self._settings.delay_seconds)

    def note(self, failure: CountedFailure) -> None:
        """The oldest moment makes room."""
        self._moments.append(failure.at)

    def can_restart(self, now: float) -> bool:
        """Unless more failures than allowed lie within one interval."""
        if len(self._moments) <= self._settings.max_failures_per_interval:
            return True
        return now - self._moments[0] > self._settings.failure_rate_interval_seconds

    def delay(self, now: float) -> float:
        """Always the same."""
        del now
        return self._settings.delay_seconds


class ExponentialDelay:
    """Implements `RestartBackoffTimeStrategy`. Failures within one pause count once."""

    __slots__ = ("_failures", "_next_restart", "_settings")

    def __init__(self, settings: ExponentialDelayRestartStrategy) -> None:
        self._settings = settings
        self._failures = 0
        self._next_restart: float | None = None

    def failure(self, now: float, draw: float) -> CountedFailure | None:
        """None within the pause that is running."""
        if self._next_restart is not None and now <= self._next_restart:
            return None
        return CountedFailure(now, self._backoff(0 if self._is_well(now) else self._failures, draw))

    def note(self, failure: CountedFailure) -> None:
        """The count starts anew when the job was well for long enough."""
        self._failures = 1 if self._is_well(failure.at) else self._failures + 1
        self._next_restart = failure.at + failure.delay

    def can_restart(self, now: float) -> bool:
        """While there are attempts left."""
        del now
        return self._failures <= self._settings.attempts_before_reset_backoff

    def delay(self, now: float) -> float:
        """What is left of the pause."""
        assert self._next_restart is not None, "no failure was noted"
        return max(0.0, self._next_restart - now)

    def _is_well(self, now: float) -> bool:
        if self._next_restart is None:
            return False
        return now - self._next_restart >= self._settings.reset_backoff_threshold_seconds

    def _backoff(self, failures: int, draw: float) -> float:
        settings = self._settings
        growth = min(failures * math.log(settings.backoff_multiplier), _GROWTH_MAX)
        pause = min(settings.initial_backoff_seconds * math.exp(growth), settings.max_backoff_seconds)
        jittered = pause * (1 + settings.jitter_factor * draw)
        return max(settings.initial_backoff_seconds, min(jittered, settings.max_backoff_seconds))


def create_strategy(settings: RestartStrategy) -> RestartBackoffTimeStrategy:
    """The strategy with these settings, with nothing noted."""
    match settings:
        case NoRestartStrategy():
            return NoRestart()
        case FixedDelayRestartStrategy():
            return FixedDelay(settings)
        case FailureRateRestartStrategy():
            return FailureRate(settings)
        case ExponentialDelayRestartStrategy():
            return ExponentialDelay(settings)
        case _:
            assert_never(settings)
