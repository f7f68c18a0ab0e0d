"""Pauses before restarts that no restart strategy counts, because no one is at fault: none at first, then longer ones.

Nothing limits the number of such restarts, so pauses keep them from coming as fast as they can.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.common.ids import ExecutionAttemptId
from runtime.scheduler.core.takeover.job_recovery import Subtask

PAUSE_FIRST = 0.1
PAUSE_MAX = 10.0
QUIET = 60.0
"""Seconds after the end of its last pause, from which on a subtask begins again without a pause."""


class UncountedPauses:
    """The pauses of one job under one owner."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[Subtask, tuple[float, float]] = {}
        """Of each subtask the last pause and its end."""

    def pause(self, attempts: Iterable[ExecutionAttemptId], now: float) -> float:
        """Seconds until these attempts may begin again, together."""
        subtasks = [(attempt_id.vertex_id, attempt_id.subtask_index) for attempt_id in attempts]
        pause = max((self._next(subtask, now) for subtask in subtasks), default=0.0)
        for subtask in subtasks:
            self._last[subtask] = (pause, now + pause)
        return pause

    def _next(self, subtask: Subtask, now: float) -> float:
        if subtask not in self._last:
            return 0.0
        last, ended = self._last[subtask]
        return 0.0 if now > ended + QUIET else min(PAUSE_MAX, 2 * last or PAUSE_FIRST)
