"""Retention of attempt logs: bounds of all of them together, kept without reading what cannot have changed.

The logs of an attempt that has ended stay as they are. What a look at all of them costs is a list of names, the
attempts that run, and those that have ended since the look before the last one: what is not told to run may have begun
since.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from runtime.common.deletion import delete_tree
from runtime.common.ids import ExecutionAttemptId
from runtime.system.directory_lock import LOCK


@dataclass(frozen=True, slots=True)
class LogRetention:
    """Bounds of all attempt logs together. The oldest go first."""

    bytes_max: int
    age_max: float
    attempts_max: int = 10_000


@dataclass(frozen=True, slots=True)
class _Kept:
    """One attempt's logs: their last change, and their bytes on disk. `is_final`: it had ended when they were read."""

    changed: float
    size_bytes: int
    is_final: bool


class LogCollector:
    """Keeps the bounds of some directories of attempt logs. Blocking; for one thread at a time."""

    def __init__(self, retention: LogRetention) -> None:
        self._retention = retention
        self._kept: dict[str, _Kept] = {}
        self.reads = 0
        """How many attempts' directories were read so far."""

    def collect(self, roots: Iterable[Path], *, now_seconds: float, keep: Iterable[ExecutionAttemptId]) -> list[Path]:
        """Delete the logs of old attempts; returns the deleted ones. `keep`: attempts that still run."""
        running = {str(attempt_id) for attempt_id in keep}
        known, self._kept = self._kept, {}
        changing: dict[str, _Kept] = {}
        for root in roots:
            for name in _names(root):
                path = f"{root}/{name}"
                is_running, kept = name in running, known.get(path)
                if kept is None or not kept.is_final:
                    kept = self._read(path, is_final=kept is not None and not is_running)
                if kept is not None:
                    (changing if is_running else self._kept)[path] = kept
        deleted = self._excess(changing, now_seconds)
        for path in deleted:
            delete_tree(path)
            del self._kept[path]
        return [Path(path) for path in deleted]

    def _excess(self, changing: dict[str, _Kept], now_seconds: float) -> list[str]:
        """The oldest ended attempts, as many as are above the bounds. Attempts that run count, and stay."""
        retention = self._retention
        count = len(self._kept) + len(changing)
        total = sum(one.size_bytes for kept in (self._kept, changing) for one in kept.values())
        oldest = min((one.changed for one in self._kept.values()), default=now_seconds)
        if (
            count <= retention.attempts_max
            and total <= retention.bytes_max
            and now_seconds - oldest <= retention.age_max
        ):
            return []
        excess: list[str] = []
        for path, kept in sorted(self._kept.items(), key=lambda item: (item[1].changed, item[0])):
            is_old = now_seconds - kept.changed > retention.age_max
            if not is_old and count <= retention.attempts_max and total <= retention.bytes_max:
                break
            excess.append(path)
            count -= 1
            total -= kept.size_bytes
        return excess

    def _read(self, path: str, *, is_final: bool) -> _Kept | None:
        """None: it is being made or removed."""
        self.reads += 1
        try:
            files = [file.stat() for file in os.scandir(path)]
            changed = max([Path(path).stat().st_mtime, *(file.st_mtime for file in files)])
        except OSError:
            return None
        return _Kept(changed, sum(file.st_blocks * 512 for file in files), is_final)


def _names(root: Path) -> list[str]:
    try:
        return [name for name in os.listdir(root) if name != LOCK]  # noqa: PTH208 - names, no objects
    except FileNotFoundError:
        return []
