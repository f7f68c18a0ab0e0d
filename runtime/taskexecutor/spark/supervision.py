"""Spark of a TaskManager over its whole life: started, and replaced when it is lost.

The slots notice the loss by themselves, and fail the tasks that used Spark. The supervisor starts the JVM again, and
then the slots are offered again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from runtime.aio.retry import RetryPolicy
from runtime.common.entropy import Entropy
from runtime.common.errors import FlinklikeError
from runtime.taskexecutor.spark.environment import SparkLoss
from runtime.taskexecutor.spark.host_process import SparkKilledError

logger = logging.getLogger(__name__)


class RestartableSpark(Protocol):
    """The part of SparkEnvironment that the supervisor drives."""

    async def start(self) -> None:
        """Launch it; returns when it is ready."""

    async def wait_lost(self) -> SparkLoss:
        """The loss, once it is lost."""

    async def restart(self) -> None:
        """Replace it; returns when the new one is ready."""


async def supervise_spark(spark: RestartableSpark, policy: RetryPolicy, entropy: Entropy) -> None:
    """Start Spark and bring it back whenever it is lost, until cancelled. Raises what the first start failed with.

    A first start that somebody has ended is tried once more, as who kills a process may not mean the TaskManager. A
    later start that fails is tried again without limit: the slots stay away meanwhile, and that can be seen.
    """
    try:
        await spark.start()
    except SparkKilledError as error:
        delay = policy.delay(0, entropy)
        logger.warning("Spark was ended while it started, one more try in %.1f s: %s", delay, error)
        await asyncio.sleep(delay)
        await spark.restart()
    while True:
        loss = await spark.wait_lost()
        level = logging.INFO if loss.is_planned else logging.ERROR
        logger.log(level, "Spark is lost, its slots are away until it is back: %s", loss)
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
