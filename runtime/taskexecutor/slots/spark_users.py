"""Slots and the JVMs of Spark: idle processes are attached when the default one is ready; users fail with theirs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from runtime.common.clock import Clock
from runtime.gateways.task import FailureInfo
from runtime.taskexecutor.slot_protocol.wire import TaskOutcome
from runtime.taskexecutor.slots import jvm_changes, seen_failures
from runtime.taskexecutor.slots.running_attempt import RunningAttempt
from runtime.taskexecutor.slots.sessions import SlotSessions
from runtime.taskexecutor.slots.slot import Slot
from runtime.taskexecutor.slots.slot_handle import Attachment, SlotProcess
from runtime.taskexecutor.slots.template_handle import ProcessExit
from runtime.taskexecutor.spark.environment import JvmChange, SparkEnvironment, SparkLoss

logger = logging.getLogger(__name__)

_LOST_SPARK_WAIT = 10.0


class SparkUsers:
    """Users of Spark in one pool. `note_readiness` is called when Spark becomes ready, or no longer is."""

    def __init__(
        self,
        spark: SparkEnvironment,
        slots: Sequence[Slot],
        sessions: SlotSessions,
        clock: Clock,
        note_readiness: Callable[[], None],
        *,
        attach_idle_delay: float,
    ) -> None:
        self._spark = spark
        self._slots = slots
        self._sessions = sessions
        self._clock = clock
        self._note_readiness = note_readiness
        self._attach_idle_delay = attach_idle_delay

    async def watch_losses(self) -> None:
        """Eternal: attach idle processes whenever Spark becomes ready, fail what used it when it is lost."""
        spark = self._spark
        while True:
            while not spark.is_ready:  # noqa: ASYNC110 - the environment has no event for it
                await asyncio.sleep(self._attach_idle_delay)
            self._note_readiness()
            for slot in self._slots:
                if slot.attempt is None and slot.fresh is not None and self._sessions.can_attach_ahead:
                    self._sessions.give(slot.index, slot.fresh)
            loss = await spark.wait_lost()
            self._note_readiness()
            logger.log(logging.INFO if loss.is_planned else logging.ERROR, "Spark is lost: %s", loss)
            self.fail_users(spark, loss)

    async def watch_changes(self) -> None:
        """Eternal: take no tasks while the JVM is changed, and tell those under whom it was put back (R45)."""
        spark = self._spark
        while True:
            await spark.put_back.wait_changed(spark.put_back.generation)
            self._note_readiness()
            self.tell_change(spark.put_back.value)

    def tell_change(self, change: JvmChange | None) -> None:
        """What was put back while others work, to the attempts under whom it was (R45)."""
        for attempt in self._running():
            if change is not None and attempt.attempt_id.job_id in change.jobs:
                jvm_changes.log(attempt.attempt_id.job_id, change)
                jvm_changes.tell(attempt.work, change)

    async def name_loss(self, attempt: RunningAttempt, process: SlotProcess, ending: TaskOutcome | ProcessExit) -> None:
        """An error of the connection to the JVM may be known here before the loss of the JVM: wait for its reason."""
        if not isinstance(ending, TaskOutcome) or not ending.is_spark_lost:
            return
        try:
            async with asyncio.timeout(_LOST_SPARK_WAIT):
                loss = await (process.environment or self._spark).wait_lost()
        except TimeoutError:
            return
        attempt.kill(self._lost_failure(attempt, process, loss))

    def fail_users(self, spark: SparkEnvironment, loss: SparkLoss) -> None:
        """An environment is lost: attempts that have used it fail, and the processes that are attached to it end."""
        for slot in self._slots:
            attempt = slot.attempt
            if attempt is not None and attempt.process is not None and _uses(attempt.process, spark):
                if loss.is_planned and attempt.ending is not None and attempt.ending.done():
                    continue  # what it has done in Spark has ended, and the JVM goes only now (R45)
                attempt.kill(self._lost_failure(attempt, attempt.process, loss))
            for process in slot.processes():
                if process.environment is spark and process.attachment.value is not Attachment.NONE:
                    self._sessions.forget(process)
                    process.kill()
            if attempt is not None and attempt.process is not None and attempt.process.environment is spark:
                self._sessions.forget(attempt.process)

    def _lost_failure(self, attempt: RunningAttempt, process: SlotProcess, loss: SparkLoss) -> FailureInfo:
        """R23: the attempt that ended Spark is told so and not run again; others are not charged."""
        own = process.session is not None and process.session.session_id == loss.session_id
        users = {
            one.attempt_id.job_id
            for one in self._running()
            if one.process is not None and _uses(one.process, process.environment)
        }
        return seen_failures.of_lost_environment(
            loss,
            is_own=own,
            is_alone=bool(attempt.spec.job_id),
            jobs=len(users | {attempt.attempt_id.job_id}),
            timestamp_millis=self._clock.epoch_millis(),
        )

    def _running(self) -> list[RunningAttempt]:
        return [slot.attempt for slot in self._slots if slot.attempt is not None]


def _uses(process: SlotProcess, spark: SparkEnvironment | None) -> bool:
    return process.uses_spark and process.environment is spark
