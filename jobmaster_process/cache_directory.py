"""The blob cache of this process, and the caches that dead JobMaster processes of this host have left beside it.

Each process holds the lock in its directory while it lives: a free lock means that the process is dead. Blocking.
"""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from runtime.common.ids import Incarnation
from runtime.system.directory_lock import delete_left, hold

logger = logging.getLogger(__name__)


class CacheDirectory:
    """`<root>/<incarnation>`: made and held by `acquire`, deleted by `remove`."""

    def __init__(self, root: Path, incarnation: Incarnation) -> None:
        self._root = root
        self.path = root / incarnation
        self._lock = -1

    def acquire(self) -> None:
        """Make the directory, and delete those of dead processes. Raises OSError."""
        self._lock = hold(self.path)
        for other in delete_left(self._root):
            logger.info("deleted the blob cache that a dead JobMaster process had left in %s", other)

    def remove(self) -> None:
        """Delete the directory and let go of it. Idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
