"""Finds processes by the value of one of their limits, which the kernel hands down through every fork and exec.

Standard library only: the guard and Spark's Python workers load this module.
"""

from __future__ import annotations

import os

_LISTS_MAX = 100
_THREADS_FIELD = 17


def limited_to(value: int, line: bytes) -> list[int]:
    """All living processes but this one with this value of a limit, whose line in `/proc/<pid>/limits` begins so.

    A process that ends before its limits are read may have forked another one. So new processes are read as well, until
    none of them has ended (R29). Where that never comes, the ended ones are returned too: they may have had the value.
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
    """True if the process has the limit; None if it has ended, and may have had it."""
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
        return False  # the kernel refuses the look
    return is_alive or None


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)
