"""Why a job waits, for an attached run without a terminal: nobody sees there what a live table would show."""

from __future__ import annotations

from collections.abc import Callable

FIRST_SECONDS = 3.0
"""A job that has had what it needs until then has not waited, for people."""
INTERVAL_SECONDS = 10.0
"""The least time between two lines: the place in a queue changes as often as tasks end."""


class WaitingLines:
    """The lines of one job. `reason` asks the cluster why it waits now; "" where it does not."""

    def __init__(self, reason: Callable[[], str], now: float) -> None:
        self._reason = reason
        self._look_at = now + FIRST_SECONDS
        self._said = ""

    def take(self, now: float) -> str:
        """The reason to tell now, or "": none, or the one that was told last."""
        if now < self._look_at:
            return ""
        self._look_at = now + INTERVAL_SECONDS
        reason = self._reason()
        if reason == self._said:
            return ""
        self._said = reason
        return reason
