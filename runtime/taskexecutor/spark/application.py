"""ApplicationEnvironment: room for the JVM of a Java application, which its slot process starts itself (R53).

The JVM is a descendant of the slot process, so that it is limited, ended and reaped with it, and nothing of it is left
when the attempt has ended. Here is what it is started with: the TaskManager's Java, conf and class archive.
"""

from __future__ import annotations

import asyncio
import os

from runtime.aio.watch import Watch
from runtime.common.deletion import delete_tree
from runtime.common.errors import FlinklikeError, UnavailableError
from runtime.taskexecutor.driver_jvm.archive import ClassArchive
from runtime.taskexecutor.driver_jvm.command import class_path, java_command, jvm_additions, spark_home
from runtime.taskexecutor.driver_jvm.java import java_of_spark
from runtime.taskexecutor.spark.environment import ClosedSession, SparkLoss
from runtime.taskexecutor.spark.without_jvm import WithoutJvm
from runtime.taskexecutor.spark_protocol import settings as spark_settings
from runtime.taskexecutor.spark_protocol.sessions import SlotSession
from runtime.taskexecutor.spark_protocol.settings import SparkSettings

_ENDED = "the application has ended"


class ApplicationEnvironment(WithoutJvm):
    """A SparkEnvironment without a JVM of its own: `open_session` says how the slot process starts one."""

    def __init__(self, settings: SparkSettings) -> None:
        super().__init__()
        self._settings = settings
        self._loss: Watch[SparkLoss | None] = Watch(None)
        self._opened = 0

    @property
    def is_ready(self) -> bool:
        """True until it is given up."""
        return self._loss.value is None

    async def open_session(self, slot_index: int, shares: int = 1) -> SlotSession:
        """Say how to start the JVM. Raises UnavailableError where there is no Java."""
        del slot_index, shares
        return await asyncio.to_thread(self._launch)

    def _launch(self) -> SlotSession:
        """Blocking."""
        settings, self._opened = self._settings, self._opened + 1
        directory = settings.work_directory / str(self._opened)
        try:
            java = java_of_spark(os.environ)
            for made in (directory / "spark-local", directory / "tmp"):
                made.mkdir(parents=True, mode=0o700)
        except (FlinklikeError, OSError) as error:
            message = f"the JVM of the application cannot be started: {error}"
            raise UnavailableError(message) from error
        conf = spark_settings.application_conf(settings, directory / "spark-local")
        archive = ClassArchive.locate(java, settings.cds_directory, class_path(spark_home(), conf))
        options = (*(archive.use_options() if settings.class_archive else ()), f"-Djava.io.tmpdir={directory / 'tmp'}")
        return SlotSession(
            session_id=f"application-{settings.work_directory.name}-{self._opened}",
            port=0,
            secret="",
            pool="",
            directory=str(directory),
            conf=conf,
            command=java_command(java, conf=conf, archive_options=options),
            environment=jvm_additions(settings.driver_host),
        )

    async def close_session(self, session: SlotSession) -> ClosedSession:
        """Delete its files. The slot process, and with it the JVM, is reaped."""
        await asyncio.to_thread(delete_tree, session.directory)
        return ClosedSession()

    async def wait_lost(self) -> SparkLoss:
        """Returns when it is given up: with its attempt, or with the TaskManager."""
        found = await self._loss.wait_until(lambda loss: loss is not None)
        assert found is not None
        return found

    async def end(self, loss: SparkLoss) -> None:
        """Give it up for this reason."""
        self._loss.set(self._loss.value or loss)

    async def give_up(self, reason: str) -> None:
        """Give it up. Idempotent."""
        await self.end(SparkLoss(reason, is_planned=True))

    async def stop(self) -> None:
        """Idempotent."""
        await self.give_up(_ENDED)
        await asyncio.to_thread(delete_tree, self._settings.work_directory)
