"""Processes of one user of this host, and their end: for users that serve one purpose only (R42, R50)."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

_KILLS_MAX = 100
_PAUSE = 0.02


def has_process(uid: int, pid: int) -> bool:
    """True if that process lives and has this user. A zombie runs nothing, unless only its first thread has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    is_alive = fields.get("State", "").split()[:1] != ["Z"] or int(fields.get("Threads", "1")) > 1
    return str(uid) in fields.get("Uid", "").split() and is_alive


def processes_of(uid: int) -> list[int]:
    """The living processes of a user."""
    return [pid for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))) if has_process(uid, pid)]  # noqa: PTH208 - one of many reads


def end_processes_of(uid: int, wait: Callable[[float], object]) -> list[int]:
    """Kill all processes of a user, and those that they start meanwhile. Returns the processes that do not die.

    Blocking.
    """
    for _ in range(_KILLS_MAX):
        alive = processes_of(uid)
        if not alive:
            return []
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait(_PAUSE)
    return processes_of(uid)
