"""Deletes what savepoints that have failed have left: `.savepoint-....part` of a TaskManager that was lost (R60, R61).

Each TaskManager removes what it has copied itself, at the word of the job's owner. One that is lost does not, so each
looks for what is left: the record of an operation, which is durable, says that nobody will complete it. Names that no
record tells of stay: they may be another cluster's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from runtime.checkpoint.savepoint.savepoint_files import PREFIX, part_path
from runtime.common.deletion import delete_tree

logger = logging.getLogger(__name__)

_GONE = ".gone"
FailedSavepoints = Callable[[], Awaitable[Sequence[str]]]
"""The directories of savepoints that have failed for good, as the job store has them."""


class LeftSavepoints:
    """Reconciler over the directories in which savepoints were made."""

    def __init__(self, failed: FailedSavepoints) -> None:
        self._failed = failed

    async def activate(self) -> int:
        """Delete what is left of all. How many were deleted. Raises what the job store raises."""
        return await asyncio.to_thread(_delete_left, await self._failed())


def _delete_left(directories: Sequence[str]) -> int:
    return sum(_has_deleted(Path(one)) for one in directories)


def _has_deleted(path: Path) -> bool:
    if not path.is_absolute() or not path.name.startswith(PREFIX):
        return False
    part = part_path(path.parent, path.name)
    gone = part.with_name(f"{part.name}{_GONE}")
    try:
        if part.is_dir() and not gone.exists():
            part.rename(gone)  # who still verifies it finds nothing to make visible
        if not gone.is_dir():
            return False
        failures = delete_tree(gone)
    except OSError as error:
        failures = [error]
    if failures:
        logger.warning("%s of a failed savepoint cannot be deleted, it is tried again: %s", gone, failures[0])
        return False
    logger.info("deleted %s, which a savepoint that has failed has left", part)
    return True
