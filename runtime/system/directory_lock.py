"""Locks that tell whether the process of a directory still runs: the kernel frees them with it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

LOCK = "lock"


def hold(directory: Path, *, is_shared: bool = False) -> int:
    """Make the directory if need be and lock it, until the descriptor is closed. Blocking while another process takes
    it over.

    Raises OSError.
    """
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / LOCK
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
        if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
            return lock
        os.close(lock)  # the process that took it over has deleted it


@contextmanager
def taken_over(directory: Path) -> Iterator[bool]:
    """Hold the lock of a directory if no other process holds it."""
    try:
        lock = os.open(directory / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield False  # just being made, or just being removed
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(lock)


def delete_left(root: Path) -> Sequence[Path]:
    """Delete the directories below `root` whose processes have ended. Returns those that are gone."""
    gone = []
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        with taken_over(path) as is_ours:
            if is_ours:
                shutil.rmtree(path, ignore_errors=True)
                if not path.exists():
                    gone.append(path)
    return gone
