"""Whose Python functions have started a process: a mark that it carries, whatever it does to its environment (R29).

Python workers belong to the JVM, and serve one job after the other, so neither parent nor group says for whom they have
started something. The mark is a limit that limits nothing, as the TaskManager's own is (RLIMIT_LOCKS, at which Linux
does not look any more): a worker takes that of its task's session, and what it starts inherits it through every fork
and exec. A worker itself is told by its name, which has its pid in it. Standard library only: workers import this.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable

from runtime.taskexecutor.guard.mark import limited_to

_LIMIT = 10
_LINE = b"Max file locks"
_LOWEST = 1 << 60
_DIGITS = 15

USED = "python"
"""The file in a session's directory that says: a Python worker has worked for it."""

_KILLS_MAX = 100
_PAUSE = 0.02


def _mark_of(session_id: str) -> int:
    return _LOWEST + int(session_id.rpartition("-")[2][:_DIGITS], 16)


def name_worker() -> None:
    """This process is a worker. What it forks inherits the name, and has another pid."""
    with open("/proc/self/comm", "w") as name:  # noqa: PTH123 - pathlib would be one more import in every daemon
        name.write(_name_of(os.getpid()))


def _name_of(pid: int) -> str:
    return f"worker-{pid}"


def work_for(session_id: str, directory: str) -> None:
    """All that this process starts from now on is the session's. Raises ValueError where limits are lowered."""
    hard = resource.getrlimit(_LIMIT)[1]
    resource.setrlimit(_LIMIT, (_mark_of(session_id), hard))
    with contextlib.suppress(FileNotFoundError):  # the session has ended meanwhile
        os.close(os.open(f"{directory}/{USED}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def left_behind(session_id: str) -> dict[int, str]:
    """Names by pid of the living processes that Python functions of the session have started."""
    found = {pid: _read_name(pid) for pid in limited_to(_mark_of(session_id), _LINE)}
    return {pid: name for pid, name in found.items() if name not in {"", _name_of(pid)}}


def end_left_behind(session_id: str, wait: Callable[[float], object]) -> tuple[dict[int, str], dict[int, str]]:
    """Kill them, and what they start meanwhile: what has ended, and what does not die."""
    found: dict[int, str] = {}
    for _ in range(_KILLS_MAX):
        alive = left_behind(session_id)
        if not alive:
            return found, {}
        found |= alive
        for pid in alive:
            # A program that runs as another user (sudo) may refuse: it is found again then, and told.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        wait(_PAUSE)
    alive = left_behind(session_id)
    return {pid: name for pid, name in found.items() if pid not in alive}, alive


def in_words(processes: dict[int, str]) -> str:
    """For messages."""
    return ", ".join(f"{name} ({pid})" for pid, name in sorted(processes.items()))


def _read_name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as name:  # noqa: PTH123 - as above
            return name.read().strip()
    except OSError:
        return ""
