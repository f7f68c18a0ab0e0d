"""Spark comes back whenever it is lost; only a first start that fails ends the TaskManager."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Sequence
from functools import partial

import pytest

from runtime.aio.entropy import SeededEntropy
from runtime.aio.retry import RetryPolicy
from runtime.aio.watch import Watch
from runtime.common.errors import PermanentError, UnavailableError
from runtime.taskexecutor.spark.environment import SparkLoss, SparkLostError
from runtime.taskexecutor.spark.host_process import SparkKilledError
from runtime.taskexecutor.spark.supervision import supervise_spark

pytestmark = pytest.mark.asyncio

POLICY = RetryPolicy(delay_initial=0.001, delay_max=0.001)


class FakeSpark:
    """Is lost when told so; each start takes the next of `outcomes`, then succeeds."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self._outcomes: Sequence[Exception | None] = outcomes
        self.starts: Watch[int] = Watch(0)
        self.lost = asyncio.Event()

    async def start(self) -> None:
        number = self.starts.value
        outcome = self._outcomes[number] if number < len(self._outcomes) else None
        if outcome is None:
            self.lost.clear()
        self.starts.set(number + 1)
        if outcome is not None:
            raise outcome

    async def restart(self) -> None:
        await self.start()

    async def wait_lost(self) -> SparkLoss:
        await self.lost.wait()
        return SparkLoss("the JVM ended with code 3")


async def test_it_is_restarted_after_each_loss() -> None:
    spark = FakeSpark()
    async with asyncio.TaskGroup() as tasks:
        supervision = tasks.create_task(supervise_spark(spark, POLICY, SeededEntropy(1)))
        for starts in range(1, 4):
            await spark.starts.wait_until(partial(operator.eq, starts))
            spark.lost.set()
        await spark.starts.wait_until(lambda count: count == 4)
        supervision.cancel()


async def test_a_restart_that_fails_is_tried_again_without_limit() -> None:
    spark = FakeSpark(None, UnavailableError("no memory"), SparkLostError("again"), PermanentError("no java"))
    async with asyncio.TaskGroup() as tasks:
        supervision = tasks.create_task(supervise_spark(spark, POLICY, SeededEntropy(1)))
        await spark.starts.wait_until(lambda count: count == 1)
        spark.lost.set()
        await spark.starts.wait_until(lambda count: count == 5)
        assert not supervision.done()
        supervision.cancel()


async def test_a_first_start_that_fails_is_the_end() -> None:
    with pytest.raises(PermanentError, match="no java"):
        await supervise_spark(FakeSpark(PermanentError("no java")), POLICY, SeededEntropy(1))


async def test_a_first_start_that_somebody_has_ended_is_tried_once_more() -> None:
    spark = FakeSpark(SparkKilledError("code -9"))
    async with asyncio.TaskGroup() as tasks:
        supervision = tasks.create_task(supervise_spark(spark, POLICY, SeededEntropy(1)))
        await spark.starts.wait_until(lambda count: count == 2)
        spark.lost.set()
        await spark.starts.wait_until(lambda count: count == 3)
        supervision.cancel()
    twice = FakeSpark(SparkKilledError("code -9"), SparkKilledError("again"))
    with pytest.raises(SparkKilledError, match="again"):
        await supervise_spark(twice, POLICY, SeededEntropy(1))
