"""Directories that no path leads to the end of."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEEP = 3000
"""Levels: more than Python calls itself, and longer than a path may be."""


@contextmanager
def deep_directories(root: Path) -> Iterator[Callable[..., None]]:
    """Makes such ones below `root`, none of which is left in the end: pytest could not delete it."""
    try:
        yield _make_deep
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)


def _make_deep(root: Path, levels: int = DEEP) -> None:
    root.mkdir(exist_ok=True)
    current = os.open(root, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=current))
    os.close(current)
