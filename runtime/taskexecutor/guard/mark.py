"""A mark that every descendant of a TaskManager's main process carries, even with a cleared environment (R30).

The mark is a resource limit that limits nothing (RLIMIT_RTTIME, of real-time processes, at centuries): the kernel hands
it down through every fork and exec, also to another user's processes, and shows it to all users. Standard library only.
"""

from __future__ import annotations

import resource
import secrets

from runtime.system.limit_carriers import limited_to

_LOWEST = 1 << 61
_BITS = 60
_LINE = b"Max realtime timeout"
NO_MARK = 0
"""Where another limit is set already: then no process can be recognized by it."""


def new_mark() -> int:
    """A mark that no other life has; NO_MARK where it could not be set."""
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
