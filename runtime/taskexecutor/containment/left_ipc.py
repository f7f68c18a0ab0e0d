"""What System V keeps when processes have ended: shared memory, semaphores, message queues (R43, R50).

Slots, or Spark, give the number of their user to the next job, which must find nothing of the job before.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

SHARED_MEMORY, SEMAPHORES, MESSAGES = "shm", "sem", "msg"
IDS: Mapping[str, str] = {SHARED_MEMORY: "shmid", SEMAPHORES: "semid", MESSAGES: "msqid"}
"""By kind the column that names one."""
_LISTS = Path("/proc/sysvipc")
_IPC_RMID = 0
_GONE = frozenset({errno.EINVAL, errno.EIDRM})
_libc = ctypes.CDLL(None, use_errno=True)


def listed(kind: str, most: int | None = None) -> Iterator[Mapping[str, str]]:
    """All of a kind that this process may see, by the kernel's columns; none where the kernel has none."""
    try:
        head, *lines = (_LISTS / kind).read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return
    columns = head.split()
    for line in islice(lines, most):
        yield dict(zip(columns, line.split(), strict=False))


def remove(kind: str, id_: int) -> None:
    """Raises OSError, also when there is none any more."""
    answer = {
        SHARED_MEMORY: lambda: _libc.shmctl(id_, _IPC_RMID, None),
        SEMAPHORES: lambda: _libc.semctl(id_, 0, _IPC_RMID),
        MESSAGES: lambda: _libc.msgctl(id_, _IPC_RMID, None),
    }[kind]()
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def remove_ipc_of(uid: int) -> None:
    """Remove all of that user, which has no process.

    Raises OSError when something stays, not for what others have removed.
    """
    for kind, column in IDS.items():
        for row in listed(kind):
            if str(uid) not in {row["uid"], row["cuid"]}:
                continue
            try:
                remove(kind, int(row[column]))
            except OSError as error:
                if error.errno not in _GONE:
                    raise
