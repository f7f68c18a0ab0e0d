"""Spark sessions of slot processes: opened ahead or on demand, ended with their process.

Without Spark everything here is a no-op. Every session that was opened is closed exactly once, unless its JVM is lost:
then it is closed already.
"""

from __future__ import annotations

import asyncio
import logging

from runtime.aio.scope import ServiceScope
from runtime.common.errors import FlinklikeError, UnavailableError
from runtime.taskexecutor.slots import jvm_changes
from runtime.taskexecutor.slots.slot_handle import Attachment, SlotProcess
from runtime.taskexecutor.slots.work import SlotSettings
from runtime.taskexecutor.spark.environment import ClosedSession, SparkEnvironment
from runtime.taskexecutor.spark_protocol.sessions import SlotSession

logger = logging.getLogger(__name__)

_READY_POLL = 0.05


class SlotSessions:
    """Opens, gives, closes."""

    def __init__(self, settings: SlotSettings, spark: SparkEnvironment | None, scope: ServiceScope) -> None:
        self._settings = settings
        self._spark = spark
        self._scope = scope

    @property
    def can_attach_ahead(self) -> bool:
        """True while sessions can be opened for processes that have no work yet."""
        return self._settings.attaches_ahead and self._spark is not None and self._spark.is_ready

    def give(self, slot_index: int, process: SlotProcess) -> None:
        """Begin to open a session for a process that has none, and send it there. Idempotent."""
        if process.attachment.value is Attachment.NONE:
            process.attachment.set(Attachment.OPENING)
            self._scope.spawn("open session", self._give(slot_index, process))

    async def _give(self, slot_index: int, process: SlotProcess) -> None:
        try:
            session = await self._open(slot_index)
        except (FlinklikeError, TimeoutError) as error:
            process.refuse_spark(str(error) or type(error).__name__)
            return
        if process.exit.value is not None:
            await self._close(session)
            return
        process.attach(session)

    async def _open(self, slot_index: int) -> SlotSession:
        spark = self._spark
        if spark is None:
            message = "this TaskManager runs without Spark (taskmanager.spark.enabled: false)"
            raise UnavailableError(message)
        async with asyncio.timeout(self._settings.session_timeout):
            while not spark.is_ready:  # noqa: ASYNC110 - the environment has no event for it
                await asyncio.sleep(_READY_POLL)
            return await spark.open_session(slot_index)

    async def cancel_jobs(self, process: SlotProcess) -> None:
        """The soft step: the session's active Spark jobs fail in the slot process."""
        session = process.session  # the process has none any more when it ends, or the JVM does, meanwhile
        if self._spark is None or session is None or not process.uses_spark:
            return
        try:
            await self._spark.cancel_session_jobs(session)
        except FlinklikeError as error:
            logger.info("soft cancel of session %s is left to the kill: %s", session.session_id, error)

    async def end(self, process: SlotProcess) -> ClosedSession:
        """Close the session of a process that is reaped; returns when Spark runs nothing for it any more (R15)."""
        session, process.session = process.session, None
        if session is None:
            return ClosedSession()
        closed = await self._close(session)
        if closed.change is not None and process.reuse_key is not None:
            jvm_changes.log(process.reuse_key.job_id, closed.change)
        return closed

    async def _close(self, session: SlotSession) -> ClosedSession:
        if self._spark is None:
            return ClosedSession()
        try:
            return await self._spark.close_session(session)
        except FlinklikeError as error:
            # The environment kills the JVM rather than leave a session half closed, so nothing runs for it now.
            logger.warning("session %s ended with its JVM: %s", session.session_id, error)
            return ClosedSession()

    def forget(self, process: SlotProcess) -> None:
        """The JVM is lost, and the session with it."""
        process.session = None
