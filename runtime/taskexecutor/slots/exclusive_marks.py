"""Which slot processes run exclusive tasks, as the guard knows them (R14)."""

from __future__ import annotations

import logging

from runtime.common.errors import UnavailableError
from runtime.taskexecutor.slots.work import ProcessGuard

logger = logging.getLogger(__name__)


class ExclusiveMarks:
    """Marks of one pool's processes. Without a guard nothing is marked."""

    def __init__(self, guard: ProcessGuard | None) -> None:
        self._guard = guard
        self._marked: set[int] = set()

    def note_start(self, pid: int, *, is_exclusive: bool) -> None:
        """From here on the guard ends an exclusive task's process should this one freeze. Raises UnavailableError."""
        if self._guard is not None and is_exclusive:
            self._guard.mark_exclusive(pid)
            self._marked.add(pid)

    def remove(self, pid: int) -> None:
        """The process runs nothing exclusive any more. Idempotent."""
        if self._guard is None or pid not in self._marked:
            return
        self._marked.discard(pid)
        try:
            self._guard.unmark(pid)
        except UnavailableError as error:
            logger.warning("slot process %s stays marked as exclusive: %s", pid, error)
