"""Sweeping: what a dead process of the TaskManager has left behind ends before that process's end is told (R29).

Its orphans are children of the guard, because no living process between them is a subreaper: of all children of the
guard only the main process is meant to live. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runtime.taskexecutor.guard.reaping import kill_orphans

PATIENCE = 5.0
"""Seconds until what does not die (it waits for a disk, say) is named instead."""
_NAMED_MAX = 20


class Sweep:
    """The sweeps that were asked for and are not answered yet."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._asked: dict[int, float] = {}

    @property
    def is_wanted(self) -> bool:
        """True while the main process waits for an answer."""
        return bool(self._asked)

    def ask(self, number: int) -> None:
        """The main process asks to be told when nothing of the dead is left."""
        self._asked[number] = self._monotonic() + PATIENCE

    def kill_round(self, main: int) -> dict[int, str]:
        """Kill all orphans. The answers that can be given now: "" when none is left, else the processes that are."""
        if not self._asked:
            return {}
        orphans = kill_orphans(main)
        now = self._monotonic()
        answered = [number for number, until in self._asked.items() if not orphans or until <= now]
        left = ", ".join(f"{_name(pid)} ({pid})" for pid in orphans[:_NAMED_MAX])
        return {number: left for number in answered if self._asked.pop(number)}


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"
