"""Spark sessions of slot processes: opened ahead or on demand, ended with their process.

Without Spark everything here is a no-op. Every session that was opened is closed exactly once, unless its JVM is lost:
then it is closed already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from runtime.aio.scope import ServiceScope
from runtime.common.errors import FlinklikeError, UnavailableError
from runtime.common.spark_environments import DEFAULT_ENVIRONMENT, EnvironmentSpec
from runtime.taskexecutor.slots import jvm_changes
from runtime.taskexecutor.slots.slot_handle import Attachment, SlotProcess, SlotProcessState
from runtime.taskexecutor.slots.work import SlotSettings
from runtime.taskexecutor.spark.environment import ClosedSession, SparkEnvironment, SparkLostError, SparkRefusedError
from runtime.taskexecutor.spark.environment_room import Lease
from runtime.taskexecutor.spark.environments import SparkEnvironments
from runtime.taskexecutor.spark_protocol.sessions import SlotSession

logger = logging.getLogger(__name__)

_READY_POLL = 0.05
_ENVIRONMENTS_TRIED = 3


class SlotSessions:
    """Opens, gives, closes."""

    def __init__(
        self,
        settings: SlotSettings,
        spark: SparkEnvironment | None,
        environments: SparkEnvironments | None,
        scope: ServiceScope,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._environments = environments
        self._scope = scope

    @property
    def can_attach_ahead(self) -> bool:
        """True while sessions can be opened for processes that have no work yet."""
        return self._settings.attaches_ahead and self._spark is not None and self._spark.is_ready

    def suits(self, process: SlotProcess, spec: EnvironmentSpec) -> bool:
        """True if a process can run an attempt with this environment, which has it from now on (R53)."""
        if process.attachment.value is Attachment.NONE:
            return True
        if process.environment_key != spec.key:
            return False
        if spec.is_default or self._environments is None or process.lease is None:
            return True
        process.is_user = process.is_user or self._environments.renew(process.lease)
        return process.is_user

    def give(
        self,
        slot_index: int,
        process: SlotProcess,
        spec: EnvironmentSpec = DEFAULT_ENVIRONMENT,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Begin to open a session for a process that has none, and send it there. `note` hears what is waited for.

        Idempotent.
        """
        if process.attachment.value is Attachment.NONE:
            process.attachment.set(Attachment.OPENING)
            process.environment_key = spec.key
            self._scope.spawn("open session", self._give(slot_index, process, spec, note))

    async def _give(
        self, slot_index: int, process: SlotProcess, spec: EnvironmentSpec, note: Callable[[str], None]
    ) -> None:
        try:
            session = await self._session_in(slot_index, process, spec, note)
        except (FlinklikeError, TimeoutError) as error:
            self.release(process)
            is_refused = isinstance(error, SparkRefusedError)
            process.refuse_spark(str(error) or type(error).__name__, is_refused=is_refused)
            return
        if process.exit.value is not None:
            await self._close(process.environment, session)
            return
        process.attach(session)

    async def _session_in(
        self, slot_index: int, process: SlotProcess, spec: EnvironmentSpec, note: Callable[[str], None]
    ) -> SlotSession:
        """A session in the environment. One that is lost before it has opened the session is asked for again."""
        if spec.is_default or self._environments is None:
            process.environment = self._spark
            return await self._open(self._spark, slot_index, process.room.shares, lambda: True)
        for _ in range(_ENVIRONMENTS_TRIED):
            environment, lease = await self._acquired(self._environments, process, spec, note)
            process.environment, process.lease, process.is_user = environment, lease, True
            if process.state is not SlotProcessState.RUNNING:
                self.release(process)  # its attempt has ended meanwhile
            is_living = partial(self._environments.is_living, lease)
            try:
                session = await self._open(environment, slot_index, process.room.shares, is_living)
                if spec.is_application:
                    return session
                # Spark adds options of its own to some keys: what the job has asked for is there nevertheless.
                return replace(session, conf={**session.conf, **spec.conf})
            except SparkLostError:
                self.release(process)
        message = "the Spark environment for the job has ended again and again before it had a session for the task"
        raise UnavailableError(message)

    async def _acquired(
        self, environments: SparkEnvironments, process: SlotProcess, spec: EnvironmentSpec, note: Callable[[str], None]
    ) -> tuple[SparkEnvironment, Lease]:
        """The environment; a process that has ended waits for it no more. Raises FlinklikeError."""

        async def acquire() -> tuple[SparkEnvironment, Lease] | FlinklikeError:
            try:
                return await environments.acquire(spec, note)
            except FlinklikeError as error:
                return error

        acquiring = self._scope.start("wait for a Spark environment", acquire())
        process.acquiring = acquiring
        await asyncio.wait([acquiring])
        process.acquiring = None
        if acquiring.cancelled():
            message = "the process has ended"
            raise UnavailableError(message)
        found = acquiring.result()
        if isinstance(found, FlinklikeError):
            raise found
        return found

    async def _open(
        self, spark: SparkEnvironment | None, slot_index: int, shares: int, is_living: Callable[[], bool]
    ) -> SlotSession:
        if spark is None:
            message = "this TaskManager runs without Spark (taskmanager.spark.enabled: false)"
            raise UnavailableError(message)
        async with asyncio.timeout(self._settings.session_timeout):
            while not spark.is_ready:
                if not is_living():
                    message = "the Spark environment has ended"
                    raise SparkLostError(message)
                await asyncio.sleep(_READY_POLL)
            return await spark.open_session(slot_index, shares)

    def release(self, process: SlotProcess) -> None:
        """The process has no use of its environment any more: its attempt has ended, or gets no session. Idempotent."""
        if process.is_user and process.lease is not None and self._environments is not None:
            process.is_user = False
            self._environments.release(process.lease)

    async def cancel_jobs(self, process: SlotProcess) -> None:
        """The soft step: the session's active Spark jobs fail in the slot process."""
        session = process.session  # the process has none any more when it ends, or the JVM does, meanwhile
        if process.environment is None or session is None or not process.uses_spark:
            return
        try:
            await process.environment.cancel_session_jobs(session)
        except FlinklikeError as error:
            logger.info("soft cancel of session %s is left to the kill: %s", session.session_id, error)

    async def end(self, process: SlotProcess) -> ClosedSession:
        """Close the session of a process that is reaped; returns when Spark runs nothing for it any more (R15)."""
        session, process.session = process.session, None
        if session is None:
            return ClosedSession()
        closed = await self._close(process.environment, session)
        if closed.change is not None and process.reuse_key is not None:
            jvm_changes.log(process.reuse_key.job_id, closed.change)
        return closed

    async def _close(self, spark: SparkEnvironment | None, session: SlotSession) -> ClosedSession:
        if spark is None:
            return ClosedSession()
        try:
            return await spark.close_session(session)
        except FlinklikeError as error:
            # The environment kills the JVM rather than leave a session half closed, so nothing runs for it now.
            logger.warning("session %s ended with its JVM: %s", session.session_id, error)
            return ClosedSession()

    def forget(self, process: SlotProcess) -> None:
        """The JVM is lost, and the session with it."""
        process.session = None
