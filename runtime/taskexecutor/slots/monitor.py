"""Looks at running attempts from outside: memory, log sizes, Spark progress. Sleeps while nothing runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError
from runtime.taskexecutor.slots import failures
from runtime.taskexecutor.slots.logs import attempt_directory, bound_logs
from runtime.taskexecutor.slots.memory import MemorySample, sample_tree
from runtime.taskexecutor.slots.running_attempt import RunningAttempt
from runtime.taskexecutor.slots.work import SlotSettings
from runtime.taskexecutor.spark.environment import SparkEnvironment, SparkProgress

logger = logging.getLogger(__name__)

_NO_PROGRESS = SparkProgress()
_ATTEMPTS_PER_TURN = 16


class AttemptMonitor:
    """One sampling pass every `sample_interval` over what runs then."""

    def __init__(
        self,
        settings: SlotSettings,
        spark: SparkEnvironment | None,
        clock: Clock,
        running: Callable[[], Sequence[RunningAttempt]],
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._clock = clock
        self._running = running
        self._has_work = asyncio.Event()

    def wake(self) -> None:
        """An attempt has begun."""
        self._has_work.set()

    async def watch_resources(self) -> None:
        """Eternal: memory limits and log bounds."""
        while True:
            await self._has_work.wait()
            await asyncio.sleep(self._settings.sample_interval)
            attempts = self._running()
            if not attempts:
                self._has_work.clear()
            for number, attempt in enumerate(attempts, start=1):
                self._look_at(attempt)
                if number % _ATTEMPTS_PER_TURN == 0:
                    await asyncio.sleep(0)

    async def watch_spark(self) -> None:
        """Eternal: Spark's progress, with one call for all slots."""
        assert self._spark is not None
        while True:
            await self._has_work.wait()
            await asyncio.sleep(self._settings.progress_interval)
            attempts = [a for a in self._running() if a.process is not None and a.process.uses_spark]
            if not attempts or not self._spark.is_ready:
                continue
            try:
                by_session = await self._spark.progress()
            except FlinklikeError as error:
                logger.debug("no Spark progress this time: %s", error)
                continue
            for attempt in attempts:
                session = attempt.process.session if attempt.process is not None else None
                if session is not None:
                    attempt.tell_spark_progress(by_session.get(session.session_id, _NO_PROGRESS))

    def _look_at(self, attempt: RunningAttempt) -> None:
        process = attempt.process
        if process is None or process.exit.value is not None:
            return
        limit = self._settings.memory_bytes_max
        sample = sample_tree(process.pid, limit=limit)
        attempt.memory_bytes_peak = max(attempt.memory_bytes_peak, sample.bytes_used)
        if sample.is_exact and sample.bytes_used > limit:
            self._kill_for_memory(attempt, sample)
        directory = attempt_directory(attempt.work.log_directory, attempt.attempt_id)
        try:
            bound_logs(directory, bytes_max=self._settings.log_bytes_max)
        except OSError as error:
            # Five times a second: the disk's trouble shows elsewhere, and the other attempts are looked at.
            logger.debug("logs of attempt %s cannot be bounded: %s", attempt.attempt_id, error)

    def _kill_for_memory(self, attempt: RunningAttempt, sample: MemorySample) -> None:
        failure = failures.of_memory_limit(
            sample.bytes_used,
            self._settings.memory_bytes_max,
            sample.processes,
            timestamp_millis=self._clock.epoch_millis(),
        )
        logger.warning("attempt %s: %s", attempt.attempt_id, failure.message)
        attempt.kill(failure)
