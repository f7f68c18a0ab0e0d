"""The catalog of a TaskManager's Spark that stays, and that all jobs share (D-046); else each job has its own (D-064).

What stays is Spark's own Hive catalog: tables below a directory, and what is known of them in a Derby database below
`.metastore` there. Derby serves one process, so the Spark host holds a lock on it, which ends with the host.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from runtime.common.clock import Clock, Deadline
from runtime.common.errors import UnavailableError
from runtime.taskexecutor.spark_protocol.catalog import METASTORE_DIRECTORY, METASTORE_SERVICE

_LOCK_TIMEOUT = 10.0
"""A host that was killed is dead at once; one that is told to stop takes some seconds."""
_LOCK_INTERVAL = 0.1


def hold_metastore(
    warehouse: str, spark_conf: Mapping[str, str], clock: Clock, wait: Callable[[float], object]
) -> None:
    """Lock the warehouse's metastore for the life of this process. Raises UnavailableError while another one has it."""
    if not warehouse or METASTORE_SERVICE in spark_conf:
        return
    directory = Path(warehouse) / METASTORE_DIRECTORY
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = Deadline.after(clock, _LOCK_TIMEOUT)
    while not _locked(lock):
        if deadline.has_passed(clock):
            holder = os.read(lock, 200).decode(errors="replace")
            os.close(lock)
            message = (
                f"taskmanager.spark.warehouse: the catalog in {warehouse} is used by {holder or 'another process'}, "
                f"and serves one TaskManager: give this one another directory, or let both use a Hive metastore "
                f"({METASTORE_SERVICE})"
            )
            raise UnavailableError(message)
        wait(_LOCK_INTERVAL)
    os.ftruncate(lock, 0)
    os.write(lock, f"process {os.getpid()} of {socket.gethostname()}".encode())


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
