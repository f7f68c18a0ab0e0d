"""What System V keeps for a user when its processes have ended: shared memory, semaphores, message queues (R50).

A number that slots, or Spark, have as their user is somebody else's with the next job: who comes finds nothing of who
was there.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

_LISTS = Path("/proc/sysvipc")
_IPC_RMID = 0
_libc = ctypes.CDLL(None, use_errno=True)


def remove_ipc_of(uid: int) -> None:
    """Remove all of that user, which has no process. Raises OSError when something stays, none for what is gone."""
    for id_ in _ids_of(uid, "shm", "shmid"):
        _checked(_libc.shmctl(id_, _IPC_RMID, None))
    for id_ in _ids_of(uid, "sem", "semid"):
        _checked(_libc.semctl(id_, 0, _IPC_RMID))
    for id_ in _ids_of(uid, "msg", "msqid"):
        _checked(_libc.msgctl(id_, _IPC_RMID, None))


def _ids_of(uid: int, kind: str, column: str) -> Iterator[int]:
    try:
        head, *lines = (_LISTS / kind).read_text(encoding="ascii").splitlines()
    except (FileNotFoundError, ValueError):  # a kernel without it
        return
    columns = head.split()
    places = [columns.index(name) for name in ("uid", "cuid")]
    for row in map(str.split, lines):
        if str(uid) in {row[place] for place in places}:
            yield int(row[columns.index(column)])


def _checked(answer: int) -> None:
    number = ctypes.get_errno()
    if answer != 0 and number not in {errno.EINVAL, errno.EIDRM}:
        raise OSError(number, os.strerror(number))
