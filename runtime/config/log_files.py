"""Files that processes print into: they are moved aside at a start, and cut while they are written to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

OLD_MAX = 5
"""So many old ones are kept, as `.1` (the youngest) to `.5`."""
SIZE_MAX = 16 * 1024 * 1024


def rotate(path: Path) -> None:
    """Move a file aside that nobody writes to any more; an empty one stays. Raises OSError."""
    if path.exists() and path.stat().st_size:
        _make_room(path)
        path.replace(_old(path, 1))


def cut_large(paths: Iterable[Path]) -> None:
    """Empty those above SIZE_MAX, after a copy of their ends. Whoever writes must append (O_APPEND). Raises OSError."""
    for path in paths:
        if path.exists() and path.stat().st_size > SIZE_MAX:
            _make_room(path)
            # What is written between the two is lost: nobody can make writers that are no Python reopen their file.
            _copy_end(path, _old(path, 1))
            os.truncate(path, 0)


def _copy_end(path: Path, copy: Path) -> None:
    """A flood may have written far more than is kept."""
    with path.open("rb") as written, copy.open("wb") as kept:
        written.seek(max(0, path.stat().st_size - SIZE_MAX))
        kept.write(written.read(SIZE_MAX))
    shutil.copymode(path, copy)


def _make_room(path: Path) -> None:
    for number in range(OLD_MAX - 1, 0, -1):
        if _old(path, number).exists():
            _old(path, number).replace(_old(path, number + 1))


def _old(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
