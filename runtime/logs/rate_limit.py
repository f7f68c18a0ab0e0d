"""Lines that any stranger can cause: one of each kind in a period, so that a flood does not fill the log."""

from __future__ import annotations

import logging
from collections.abc import Hashable

from runtime.common.clock import Clock

PERIOD_SECONDS = 60.0


class LogRateLimit:
    """Says when the next line of a kind is due, and how many occasions it stands for. The first one is due at once."""

    def __init__(self, period: float = PERIOD_SECONDS) -> None:
        self._period = period
        self._logged_at: dict[Hashable, float] = {}
        self._waiting: dict[Hashable, int] = {}

    def take(self, now: float, kind: Hashable = "", *, occasions: int = 1) -> int:
        """How many occasions since the last line to log now, further ones included; 0: log nothing yet.

        `now` is a monotonic clock's, in seconds.
        """
        waiting = self._waiting.get(kind, 0) + occasions
        if now - self._logged_at.get(kind, float("-inf")) < self._period:
            self._waiting[kind] = waiting
            return 0
        if waiting:
            self._logged_at[kind] = now
            self._waiting[kind] = 0
        return waiting


class RateLimitFilter(logging.Filter):
    """Lets one warning of each text pass in a period: for a library that logs fixed texts."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._limit = LogRateLimit()

    def filter(self, record: logging.LogRecord) -> bool:
        """True for a record that is to be logged."""
        return record.levelno != logging.WARNING or self._limit.take(self._clock.monotonic(), record.msg) > 0
