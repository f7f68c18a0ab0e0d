"""Spark of a TaskManager over its whole life: started, replaced when it is lost, told when a job leaves.

The slots see the loss by themselves and fail the tasks that used it; here the JVM comes back, and with it the slots.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Protocol

from runtime.aio.retry import RetryPolicy
from runtime.common.entropy import Entropy
from runtime.common.errors import FlinklikeError
from runtime.taskexecutor.spark.environment import SlotSession
from runtime.taskexecutor.spark.environment_process import ProcessSparkEnvironment
from runtime.taskexecutor.spark.settings import SparkSettings

logger = logging.getLogger(__name__)

JOBS_REMEMBERED_MAX = 10_000


class TaskManagerSpark(ProcessSparkEnvironment):
    """Knows which jobs have used it, so that the end of any other job costs no call."""

    def __init__(self, settings: SparkSettings) -> None:
        super().__init__(settings)
        self._used_by: OrderedDict[str, None] = OrderedDict()

    async def describe_job(self, session: SlotSession, job_id: str, description: str) -> None:
        """Remember the job, then tell Spark."""
        self._used_by[job_id] = None
        if len(self._used_by) > JOBS_REMEMBERED_MAX:
            self._used_by.popitem(last=False)
        await super().describe_job(session, job_id, description)

    async def end_job(self, job_id: str) -> None:
        """Drop what a job has in Spark, if it has used it at all."""
        if job_id in self._used_by:
            del self._used_by[job_id]
            await super().end_job(job_id)


class RestartableSpark(Protocol):
    """The part of SparkEnvironment that the supervisor drives."""

    async def start(self) -> None:
        """Launch it; returns when it is ready."""

    async def wait_lost(self) -> str:
        """The reason, once it is lost."""

    async def restart(self) -> None:
        """Replace it; returns when the new one is ready."""


async def supervise_spark(spark: RestartableSpark, policy: RetryPolicy, entropy: Entropy) -> None:
    """Start Spark and bring it back whenever it is lost, until cancelled. Raises what the first start failed with.

    A later start that fails is tried again without limit: the slots stay away meanwhile, and that can be seen.
    """
    await spark.start()
    while True:
        reason = await spark.wait_lost()
        logger.error("Spark is lost, its slots are away until it is back: %s", reason)
        failures = 0
        while True:
            try:
                await spark.restart()
            except FlinklikeError as error:
                delay = policy.delay(failures, entropy)
                logger.error("Spark cannot be restarted, next try in %.1f s: %s", delay, error)  # noqa: TRY400 - one line says it
                await asyncio.sleep(delay)
                failures += 1
            else:
                break
        logger.info("Spark is back")
