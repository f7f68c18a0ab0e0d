"""The TaskManager's own directory on its host, and what earlier TaskManagers have left beside it.

`<work>/tm-<incarnation>/` holds `lock`, `jobs/`, the blob cache and scratch of Spark. This process holds the lock, so a
directory whose lock is free belongs to a TaskManager that has ended, and whose slots end with it (R13).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from runtime.common.deletion import delete_tree
from runtime.common.ids import Incarnation, JobId
from runtime.system.directory_lock import LOCK, hold, taken_over
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory

logger = logging.getLogger(__name__)

_PREFIX = "tm-"

IsJobOver = Callable[[JobId], Awaitable[bool]]
"""True when the job's graph is absent or its result is stored (R16): its files mean nothing any more."""


class WorkingDirectory:
    """Made at start, held by a lock, removed at a clean stop."""

    def __init__(self, work: Path, incarnation: Incarnation) -> None:
        self._work = work
        self.path = work / f"{_PREFIX}{incarnation}"
        self._lock = -1

    @property
    def jobs(self) -> Path:
        """Where job directories are."""
        return self.path / "jobs"

    @property
    def jars(self) -> Path:
        """Jars of jobs, for their Spark environments."""
        return self.path / "jars"

    @property
    def spark(self) -> Path:
        """Scratch of Spark."""
        return self.path / "spark"

    @property
    def blobs(self) -> Path:
        """Cache of blobs."""
        return self.path / "blobs"

    @property
    def credentials(self) -> Path:
        """Where tasks find delegation tokens (R51)."""
        return self.path / "credentials"

    def acquire(self) -> None:
        """Make the directory and hold its lock. Raises OSError."""
        self.jobs.mkdir(parents=True)
        self.credentials.mkdir(mode=0o700)
        self._lock = hold(self.path)

    def remove(self) -> None:
        """Delete the directory at a clean stop. Idempotent, blocking."""
        delete_tree(self.path)
        self._release()

    def leave(self) -> None:
        """A clean stop, but jobs that are not over still read partitions: leave the trace by which a collector finds
        them. Idempotent, blocking.
        """
        for entry in self.path.iterdir():
            if entry.name != LOCK:
                delete_tree(entry)
        self._release()

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def leftovers(self) -> Iterator[Path]:
        """Directories of TaskManagers that run no more."""
        for path in sorted(self._work.glob(f"{_PREFIX}*")):
            if path != self.path and path.is_dir():
                with taken_over(path) as is_ours:
                    if is_ours:
                        yield path


class LeftoverCollector:
    """Reconciler: deletes what dead TaskManagers of this host have left, as far as no job can need it any more."""

    def __init__(self, directory: WorkingDirectory, exchange: ExchangeDirectory, is_job_over: IsJobOver) -> None:
        self._directory = directory
        self._exchange = exchange
        self._is_job_over = is_job_over

    async def activate(self) -> int:
        """How many dead TaskManagers still have files here: of jobs that are not over, or that cannot be deleted."""
        kept = 0
        for path in self._directory.leftovers():
            try:
                await self._delete(path)
            except Exception as error:  # noqa: BLE001 - R29: what one has left keeps this one from nothing
                logger.warning("what a dead TaskManager left in %s cannot be deleted: %r", path, error)
            if path.exists():
                kept += 1
            else:
                logger.info("deleted what a dead TaskManager had left in %s", path)
        return kept

    async def _delete(self, path: Path) -> None:
        incarnation = path.name.removeprefix(_PREFIX)
        failures = await asyncio.to_thread(self._delete_local, path)
        if await self._delete_partitions(incarnation) and await self._exchange.delete_of(incarnation, None):
            # The lock goes with the last of it: without one no collector would look here again.
            for failure in failures or await asyncio.to_thread(delete_tree, path):
                raise failure

    @staticmethod
    def _delete_local(path: Path) -> Sequence[OSError]:
        directories = [entry for entry in path.iterdir() if entry.is_dir() and not entry.is_symlink()]
        return [failure for directory in directories for failure in delete_tree(directory)]

    async def _delete_partitions(self, incarnation: str) -> bool:
        is_empty = True
        for job_id in await asyncio.to_thread(self._exchange.jobs_of, incarnation):
            is_deleted = await self._is_job_over(job_id) and await self._exchange.delete_of(incarnation, job_id)
            is_empty = is_empty and is_deleted
        return is_empty
