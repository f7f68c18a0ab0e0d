"""The attempt logs of this TaskManager: a directory of its own below the host's, so that it deletes only its own.

`<root>/<TaskManager id>/<attempt id>/`. A TaskManager that comes back under its id finds its logs again. If it does not
come back, the other TaskManagers of its host collect its logs, and count them with their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from runtime.common.deletion import delete_tree
from runtime.common.ids import ExecutionAttemptId
from runtime.system.directory_lock import LOCK, hold, taken_over
from runtime.taskexecutor.attempt_logs.log_retention import LogCollector, LogRetention


class AttemptLogs:
    """Held by a lock from `acquire` to `release`."""

    def __init__(self, root: Path, task_manager_id: str, retention: LogRetention) -> None:
        self._root = root
        self._collector = LogCollector(retention)
        self._lock = -1
        self.directory = root / task_manager_id

    def acquire(self) -> None:
        """Make the directory and keep others from collecting it. Blocking. Raises OSError."""
        self._lock = hold(self.directory, is_shared=True)

    def release(self) -> None:
        """The TaskManager ends. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def collect(self, *, now_seconds: float, keep: Iterable[ExecutionAttemptId]) -> int:
        """Delete logs above the bounds, here and in the directories of dead TaskManagers. Blocking."""
        with ExitStack() as held:
            others = [path for path in sorted(self._root.iterdir()) if path.is_dir() and path != self.directory]
            dead = [path for path in others if held.enter_context(taken_over(path))]
            deleted = self._collector.collect((self.directory, *dead), now_seconds=now_seconds, keep=keep)
            for path in dead:
                if os.listdir(path) == [LOCK]:  # noqa: PTH208 - one name, no object
                    delete_tree(path)
        return len(deleted)
