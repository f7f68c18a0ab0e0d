"""Output files of processes: each is moved aside at a start, and cut while the process writes to it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

OLD_MAX = 5
"""Old files that are kept, as `.1` (the youngest) to `.5`."""
SIZE_MAX = 16 * 1024 * 1024


def rotate(path: Path) -> None:
    """Move a file aside that no process writes to any more; an empty one stays. Raises OSError."""
    if path.exists() and path.stat().st_size:
        _make_room(path)
        path.replace(_old(path, 1))


def cut_large(paths: Iterable[Path]) -> None:
    """Empty the files above SIZE_MAX, after a copy of their last SIZE_MAX bytes. Writers must append (O_APPEND).

    Safe when several processes call it: a lock lets one of them cut a file. Raises the OSError of the first file that
    cannot be cut, after the others.
    """
    failure: OSError | None = None
    for path in paths:
        try:
            if path.exists() and path.stat().st_size > SIZE_MAX:
                _cut(path)
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _cut(path: Path) -> None:
    with path.open("r+b") as written:
        try:
            fcntl.flock(written, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        size = os.fstat(written.fileno()).st_size
        if size <= SIZE_MAX:
            return
        draft = path.with_name(f"{path.name}.cut")
        try:
            # A flood may have written far more than is kept. What is written between copy and truncation is lost:
            # programs in other languages cannot be made to reopen their file.
            written.seek(size - SIZE_MAX)
            draft.write_bytes(written.read(SIZE_MAX))
            shutil.copymode(path, draft)
        except OSError:
            draft.unlink(missing_ok=True)  # the disk is full: the old files stay
            raise
        _make_room(path)
        draft.replace(_old(path, 1))
        written.truncate(0)


def _make_room(path: Path) -> None:
    for number in range(OLD_MAX - 1, 0, -1):
        if _old(path, number).exists():
            _old(path, number).replace(_old(path, number + 1))


def _old(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
