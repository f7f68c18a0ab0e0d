"""The exchange directory of this TaskManager: deletes result partitions that no consumer needs any more.

Every TaskManager writes below `<exchange.dir>/<its incarnation>/<job id>/<partition id>`, so that one directory can be
shared by all of them and each one deletes its own only. Consumers read by the paths in partition descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence

from runtime.common.errors import FlinklikeError
from runtime.common.ids import Incarnation, JobId, PartitionId, is_hex_id
from runtime.taskexecutor.storage.directory_tree import tree_of

logger = logging.getLogger(__name__)

_NAME_MARK = "-"


class ExchangeDirectory:
    """What this incarnation has written. Deletions happen on threads; failures are logged and left to the collector."""

    def __init__(self, url: str, incarnation: Incarnation, *, has_secret_names: bool = False) -> None:
        self._has_secret_names = has_secret_names
        self._names: dict[JobId, str] = {}
        self._tree, self._base = tree_of(url)
        self._incarnation = incarnation
        self._jobs: set[JobId] = set()

    @property
    def directory(self) -> str:
        """Below which slots of this TaskManager write."""
        return f"{self._base}/{self._incarnation}"

    def directory_of(self, job_id: JobId) -> str:
        """Where a job's partitions are. With secret names only tasks that were told the name read there (R50)."""
        if not self._has_secret_names:
            return f"{self.directory}/{job_id}"
        if job_id not in self._names:
            self._names[job_id] = f"{job_id}{_NAME_MARK}{secrets.token_hex(16)}"
        return f"{self.directory}/{self._names[job_id]}"

    def expect(self, job_id: JobId) -> None:
        """An attempt of this job may write partitions."""
        self._jobs.add(job_id)

    async def release(self, partitions: Sequence[PartitionId]) -> None:
        """Delete the files of partitions. Idempotent."""
        for partition in partitions:
            if self._has_secret_names and partition.producer.job_id not in self._names:
                continue  # the job has ended
            await self._delete(f"{self.directory_of(partition.producer.job_id)}/{partition}")

    async def end_job(self, job_id: JobId) -> bool:
        """Delete everything of a job; True when all is deleted. Idempotent; free for a job that wrote nothing."""
        if job_id not in self._jobs:
            return True
        self._jobs.discard(job_id)
        directory = self.directory_of(job_id)
        self._names.pop(job_id, None)
        return await self._delete(directory)

    async def remove(self) -> bool:
        """The TaskManager ends: delete its directory, unless a job that is not over may still read from it.

        True when it is deleted.
        """
        return not self._jobs and await self._delete(self.directory)

    def jobs_of(self, incarnation: str) -> Sequence[JobId]:
        """The jobs that another incarnation has left files of. Blocking."""
        names = [name.partition(_NAME_MARK)[0] for name in self._tree.names(f"{self._base}/{incarnation}")]
        return [JobId(name) for name in names if is_hex_id(name)]

    async def delete_of(self, incarnation: str, job_id: JobId | None) -> bool:
        """Delete what another, dead incarnation has left of a job, or everything (None). True when all is deleted."""
        directory = f"{self._base}/{incarnation}"
        if job_id is None:
            return await self._delete(directory)
        names = await asyncio.to_thread(self._tree.names, directory)
        of_job = [name for name in names if name.partition(_NAME_MARK)[0] == job_id]
        return all([await self._delete(f"{directory}/{name}") for name in of_job])

    async def _delete(self, path: str) -> bool:
        try:
            await asyncio.to_thread(self._tree.delete, path)
        except (OSError, FlinklikeError) as error:
            logger.warning("exchange files %s cannot be deleted: %s", path, error)
            return False
        return True
