"""Spark environments without a JVM of the TaskManager: what they have in common, and the one that is no job's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from runtime.aio.watch import Watch
from runtime.common.deletion import delete_tree
from runtime.common.errors import BugError, NotFoundError
from runtime.common.stream_progress import QueryPhase, ScriptLook, StreamLook, StreamPosition
from runtime.gateways.process import SparkJvmFigures
from runtime.gateways.spark_work import SparkQuery, SparkWork
from runtime.security.file_mask import PRIVATE_MODE
from runtime.taskexecutor.driver_jvm.command import import_path
from runtime.taskexecutor.spark.environment import ClosedSession, JvmChange, SparkLoss
from runtime.taskexecutor.spark.spark_answers import WorkAsked
from runtime.taskexecutor.spark_protocol.archive_build import builder_command
from runtime.taskexecutor.spark_protocol.sessions import SlotSession, SparkProgress
from runtime.taskexecutor.spark_protocol.settings import SparkSettings
from runtime.taskexecutor.task_environment import TaskEnvironment


class WithoutJvm:
    """The parts of a SparkEnvironment that say: there is nothing to start, to warm, to measure or to cancel."""

    def __init__(self) -> None:
        self.put_back: Watch[JvmChange | None] = Watch(None)

    async def start(self) -> None:
        """Nothing is to be started."""

    @property
    def is_warm(self) -> bool:
        """False: there is none."""
        return False

    @property
    def memory_bytes(self) -> int:
        """0: a JVM below a slot is measured with its slot."""
        return 0

    async def cancel_session_jobs(self, session: SlotSession) -> None:
        """The slot process asks its JVM to end."""

    def note_use(self, job_id: str) -> None:
        """Nothing is kept by job."""

    async def end_job(self, job_id: str) -> None:
        """Nothing is kept by job."""

    async def progress(self) -> Mapping[str, SparkProgress]:
        """Nothing is known of its jobs."""
        return {}

    async def work(
        self, asked: WorkAsked, stages_max: int, *, has_plans: bool
    ) -> tuple[SparkWork, tuple[SparkQuery, ...]] | None:
        """Nothing is known of its jobs."""
        return None

    async def stream_positions(self, session_id: str) -> tuple[StreamPosition, ...]:
        """No query of its jobs is known."""
        del session_id
        return ()

    async def look_at_stream(self, session_id: str, hold: str, *, drains: bool) -> StreamLook:
        """No query of its jobs is known."""
        del session_id, hold, drains
        return StreamLook(QueryPhase.NONE)

    async def look_at_script(self, session_id: str, hold: str) -> ScriptLook:
        """No query of its jobs is known."""
        del session_id, hold
        return ScriptLook(QueryPhase.NONE)

    async def jvm_figures(self, key: str) -> SparkJvmFigures | None:
        """There is no JVM of the TaskManager."""
        del key
        return None

    async def page(self, target: str, prefix: str) -> tuple[bytes, bytes]:
        """Raises NotFoundError: there is no JVM of the TaskManager."""
        del target, prefix
        message = "there is no JVM of all jobs here: each job has one of its own, whose pages are its environment's"
        raise NotFoundError(message)

    async def thread_dump(self) -> str:
        """There is no JVM of the TaskManager."""
        return ""

    async def restart(self) -> None:
        """Nothing is to be started."""


class NoSharedJvm(WithoutJvm):
    """In the place of the default environment where each job has a JVM of its own (`taskmanager.slot.isolation`).

    It makes the class archive with which those start in half the time, as the host of a default JVM would.
    """

    problem = ""
    is_ready = True

    def __init__(self, settings: SparkSettings, environment: TaskEnvironment) -> None:
        super().__init__()
        self._settings = settings
        self._environment = environment
        self._builder: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Begin to make the class archive, unless it is there."""
        settings = self._settings
        if not settings.class_archive or settings.slot_gids:  # R50: what jobs could have written is none
            return
        for directory in (settings.work_directory, settings.log_directory, settings.cds_directory):
            directory.mkdir(parents=True, exist_ok=True, mode=PRIVATE_MODE)
        variables = self._environment.variables
        with settings.log_file("archive").open("wb") as log:
            self._builder = await asyncio.create_subprocess_exec(
                *builder_command(settings),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**variables, "PYTHONPATH": import_path(variables)},
                start_new_session=True,
            )

    async def open_session(self, slot_index: int, shares: int = 1) -> SlotSession:
        """Raises BugError: no job is given this environment."""
        message = f"slot {slot_index} asks for a JVM that jobs share, and there is none"
        raise BugError(message)

    async def close_session(self, session: SlotSession) -> ClosedSession:
        """Raises BugError: there is none to close."""
        message = f"session {session.session_id} is of no JVM"
        raise BugError(message)

    async def wait_lost(self) -> SparkLoss:
        """Never returns: there is nothing to lose."""
        await asyncio.Event().wait()
        return SparkLoss("")

    async def end(self, loss: SparkLoss) -> None:
        """There is nothing to end."""

    async def give_up(self, reason: str) -> None:
        """There is nothing to end."""

    async def stop(self) -> None:
        """End the making of the archive, and what it has written. Idempotent."""
        builder, self._builder = self._builder, None
        if builder is not None and builder.returncode is None:
            builder.kill()
            await builder.wait()
        await asyncio.to_thread(delete_tree, self._settings.work_directory)
