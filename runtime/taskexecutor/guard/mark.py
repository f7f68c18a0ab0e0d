"""A mark that every descendant of a TaskManager's main process carries, whatever it does to its environment (R30).

It is a limit that limits nothing (RLIMIT_RTTIME, of real-time processes, at centuries): the kernel hands it down
through every fork and exec, also to another user's processes, and shows it to everybody. Standard library only.
"""

from __future__ import annotations

import os
import resource
import secrets

_LOWEST = 1 << 61
_BITS = 60
_LINE = b"Max realtime timeout"
NO_MARK = 0
"""Where another limit is set already: then nobody can be told by it."""
_LISTS_MAX = 100
_THREADS_FIELD = 17


def new_mark() -> int:
    """One that nobody else has; NO_MARK where it could not be set."""
    if resource.getrlimit(resource.RLIMIT_RTTIME)[1] != resource.RLIM_INFINITY:
        return NO_MARK
    return _LOWEST + secrets.randbits(_BITS)


def carry(mark: int) -> None:
    """This process, and all that it starts from now on."""
    if mark != NO_MARK:
        resource.setrlimit(resource.RLIMIT_RTTIME, (mark, mark))


def carriers(mark: int) -> list[int]:
    """All processes that carry it now, zombies left out: those run nothing any more. Not this one."""
    return [] if mark == NO_MARK else limited_to(mark, _LINE)


def limited_to(value: int, line: bytes) -> list[int]:
    """All living processes but this one with this value of a limit, whose line in `/proc/<pid>/limits` begins so.

    One that has ended before it was looked at may have forked another one. So who is new is looked at as well, until
    none of them has ended (R29). Where that never comes, those that have ended are told: nobody knows whose they were.
    """
    seen = {os.getpid()}
    found: list[int] = []
    ended: list[int] = []
    for _ in range(_LISTS_MAX):
        names = os.listdir("/proc")  # noqa: PTH208 - one of many reads
        ended = []
        for pid in sorted({int(name) for name in names if name.isdecimal()} - seen):
            is_limited = _look(pid, value, line)
            if is_limited is None:
                ended.append(pid)
            elif is_limited:
                found.append(pid)
        if not ended:
            break
        seen.update(map(int, filter(str.isdecimal, names)))
    return found + ended


def _look(pid: int, value: int, line: bytes) -> bool | None:
    """None if it has ended, and may have had it."""
    try:
        limits = _read(f"/proc/{pid}/limits")
        if not limits:
            return None
        found = next((one for one in limits.splitlines() if one.startswith(line)), b"")
        # The soft limit and the hard one: a process may lower its soft one.
        if str(value).encode() not in found.split()[3:5]:
            return False
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        # Where its first thread has ended others may run, and it looks like a zombie.
        is_alive = fields[0] not in {b"Z", b"X"} or int(fields[_THREADS_FIELD]) > 1
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return False  # nobody may look
    return is_alive or None


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
