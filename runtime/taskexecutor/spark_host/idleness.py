"""When a JVM has been idle long enough for its heap to shrink: once for each time that it was used."""

from __future__ import annotations

PATIENCE = 20.0
"""Seconds without a session: jobs that follow each other find the heap as they left it."""


class Idleness:
    """Looked at in turns, with the time (seconds, monotonic) and whether a session is open."""

    def __init__(self, now: float) -> None:
        self._since: float | None = now

    def is_due(self, now: float, *, is_used: bool) -> bool:
        """True once, when nobody has used it for PATIENCE since somebody did, or since it began."""
        if is_used:
            self._since = now
        if self._since is None or now - self._since < PATIENCE:
            return False
        self._since = None
        return True
