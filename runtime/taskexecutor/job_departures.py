"""Removes all that a job has left on this TaskManager: processes, its part of Spark, files, partitions, outputs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from runtime.common.errors import FlinklikeError
from runtime.common.ids import JobId
from runtime.taskexecutor.attempts import Attempts
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.directories.job_directory import JobDirectories
from runtime.taskexecutor.outputs.committer import OutputCommitter
from runtime.taskexecutor.slot_pool import SlotPool, SparkState

logger = logging.getLogger(__name__)


class JobDepartures:
    """Removals of one TaskManager."""

    def __init__(
        self,
        pool: SlotPool,
        spark: SparkState | None,
        directories: JobDirectories,
        exchange: ExchangeDirectory,
        attempts: Attempts,
        outputs: OutputCommitter,
    ) -> None:
        self._pool = pool
        self._spark = spark
        self._directories = directories
        self._exchange = exchange
        self._attempts = attempts
        self._outputs = outputs

    async def remove(self, job_id: JobId, *, deletes_finished: bool) -> None:
        """Remove everything of a job of which nothing runs here; log what cannot be removed."""
        is_removed = await remove_part(f"processes of job {job_id}", self._pool.end_job(job_id))
        # Its tables and what its own workers write lie in its directory.
        if self._spark is not None:
            await remove_part(f"what Spark has of job {job_id}", self._spark.end_job(job_id))
        is_removed &= await remove_part(f"files of job {job_id}", self._directories.delete(job_id))
        in_use = () if self._spark is None else self._spark.jars_in_use()
        await remove_part(f"jars of job {job_id}", self._directories.delete_jars(job_id, in_use))
        is_removed &= await remove_part(f"partitions of job {job_id}", self._exchange.end_job(job_id))
        self._attempts.forget(job_id, is_removed=is_removed)
        await remove_part(f"outputs of job {job_id}", self._outputs.end_job(job_id, deletes_finished=deletes_finished))


async def remove_part(what: str, work: Awaitable[bool | None]) -> bool:
    """False if something stays behind, which is logged as `what`."""
    try:
        return await work is not False
    except (FlinklikeError, OSError) as error:
        logger.warning("%s stays behind: %s", what, error)
    except Exception:
        # The boundary of a removal: what one job leaves behind must not end what runs for the others.
        logger.exception("%s stays behind by a bug", what)
    return False
