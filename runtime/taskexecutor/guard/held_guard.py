"""The watcher's look at the guard: does it still hold the isolation deadline (R14)? Standard library only.

What freezes the main process may freeze the guard too, and then neither acts at the deadline. So the watcher asks
when the deadline that it knows has passed, and the guard answers with the one that stands: one question in an isolation
timeout. A guard that lets PATIENCE pass without a word is frozen: the watcher kills it, and ends everything in its
place.
"""

from __future__ import annotations

from collections.abc import Callable

PATIENCE = 2.0
"""Seconds. Well below what owners wait for beyond the deadline (5 s + 1 %)."""
_AGAIN = 1.0


class HeldGuard:
    """The guard's deadline as far as the watcher knows it, on the clock of `boottime`."""

    def __init__(self, boottime: Callable[[], float]) -> None:
        self._boottime = boottime
        self._ask_at: float | None = None
        self._asked_at: float | None = None

    def note_deadline(self, deadline: float) -> None:
        """The guard lives, and acts then unless it is given a later one."""
        self._asked_at = None
        self._ask_at = max(deadline, self._boottime() + _AGAIN)

    @property
    def due(self) -> float | None:
        """When there is something to do; None before the first deadline: until then nothing exclusive runs."""
        return self._ask_at if self._asked_at is None else self._asked_at + PATIENCE

    def begin_to_ask(self) -> bool:
        """True when the deadline has passed: ask it now. It has PATIENCE then, and is not asked again meanwhile."""
        if self._asked_at is not None or self._ask_at is None or self._boottime() < self._ask_at:
            return False
        self._asked_at = self._boottime()
        return True

    def take_for_frozen(self) -> bool:
        """True when it was asked, and has not answered in time.

        A watcher that looks late gives the guard its time again (R4).
        """
        late = -1.0 if self._asked_at is None else self._boottime() - self._asked_at - PATIENCE
        if late > _AGAIN:
            self._asked_at = self._boottime()
        return 0 <= late <= _AGAIN
