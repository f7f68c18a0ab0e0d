"""The mark of a session on each process that the session's Python functions have started (R29).

Python workers belong to the JVM, so neither parent nor group of a process names the session. The mark is a resource
limit that limits nothing, as the TaskManager's own mark is (RLIMIT_LOCKS, which Linux no longer enforces): a worker
takes the mark of its task's session, and its children inherit the mark through every fork and exec, whatever they do to
their environment. A worker that waits for the next task of its session is known by its name, which contains its pid.
Standard library only: workers import this.

A worker has that name from before Spark hears that it can be used again until the next task has marked it. It works for
one session only (`session_worker`), and no task waits for it when nothing of the session is active (R15): then it may
be killed like any process that it has started.

The JVM starts one more kind of program for a session, the scripts of `SELECT TRANSFORM ... USING`: their shell takes
the mark first (`jvm/SlotScripts.java`).
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable

from runtime.system.limit_carriers import limited_to

_LIMIT = 10
_LINE = b"Max file locks"
_LOWEST = 1 << 60
_DIGITS = 15

USED = "python"
"""The file in a session's directory that says that processes carry its mark: a byte for each task of a Python worker,
and for each script."""

_BUSY = "python-worker"
_KILLS_MAX = 100
_PAUSE = 0.02


def _mark_of(session_id: str) -> int:
    return _LOWEST + int(session_id.rpartition("-")[2][:_DIGITS], 16)


class SessionEndedError(Exception):
    """The session of a task has ended before the task began in its worker."""


def rest() -> None:
    """Name this process a worker that runs nothing. A child that it forks inherits the name, and has another pid."""
    _call_this(_name_of(os.getpid()))


def _call_this(name: str) -> None:
    with open("/proc/self/comm", "w") as own:  # noqa: PTH123 - pathlib would be one more import in every daemon
        own.write(name)


def _name_of(pid: int) -> str:
    return f"worker-{pid}"


def work_for(session_id: str, directory: str) -> None:
    """All that this process does and starts from now on is the session's.

    Raises ValueError where limits are lowered, and SessionEndedError.
    """
    hard = resource.getrlimit(_LIMIT)[1]
    resource.setrlimit(_LIMIT, (_mark_of(session_id), hard))
    _call_this(_BUSY)
    try:
        descriptor = os.open(f"{directory}/{USED}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # it is deleted before the look for what the session has left
        raise SessionEndedError(session_id) from None
    try:
        os.write(descriptor, b".")
    finally:
        os.close(descriptor)


def works_for(session_id: str) -> bool:
    """True if `work_for` was called for the session here, or in the process that has started this one."""
    return resource.getrlimit(_LIMIT)[0] == _mark_of(session_id)


def shell_words(session_id: str, directory: str) -> str:
    """The beginning of a shell's script that makes it the session's, or ends it when the session has ended."""
    import shlex  # here, because daemons load this module and do without it

    return f"printf . >>{shlex.quote(f'{directory}/{USED}')} || exit 1; ulimit -S -x {_mark_of(session_id)}; "


def tasks_of(directory: str) -> int:
    """How many tasks of Python workers, and scripts, have begun for the session with this directory."""
    try:
        return os.stat(f"{directory}/{USED}").st_size  # noqa: PTH116 - as above
    except FileNotFoundError:
        return 0


def left_behind(session_id: str) -> dict[int, str]:
    """The living processes that run for the session, names by pid: its busy workers, and processes that these have
    started.
    """
    return {pid: name for pid, name in _carriers(session_id).items() if name != _name_of(pid)}


def end_left_behind(session_id: str, wait: Callable[[float], object]) -> tuple[dict[int, str], dict[int, str]]:
    """Kill all processes of the session, also resting workers and processes that are started meanwhile.

    Returns the ended ones without the resting workers, and those that do not die; names by pid.
    """
    found: dict[int, str] = {}
    for _ in range(_KILLS_MAX):
        alive = _carriers(session_id)
        if not alive:
            return {pid: name for pid, name in found.items() if name != _name_of(pid)}, {}
        found |= alive
        for pid in alive:
            # A program that runs as another user (sudo) may refuse: it is found again then, and told.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        wait(_PAUSE)
    alive = _carriers(session_id)
    return {pid: name for pid, name in found.items() if pid not in alive and name != _name_of(pid)}, alive


def kill_programs(session_id: str) -> None:
    """Kill once all processes of the session but its workers: tasks of an ending session may wait for them."""
    for pid, name in _carriers(session_id).items():
        if name not in {_BUSY, _name_of(pid)}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _carriers(session_id: str) -> dict[int, str]:
    """Processes with the mark, names by pid; also ended ones, which may have started others."""
    return {pid: _read_name(pid) for pid in limited_to(_mark_of(session_id), _LINE)}


def in_words(processes: dict[int, str]) -> str:
    """Names and pids of processes, for messages."""
    return ", ".join(f"{name} ({pid})" for pid, name in sorted(processes.items()))


def _read_name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as name:  # noqa: PTH123 - as above
            return name.read().strip()
    except OSError:
        return "?"
