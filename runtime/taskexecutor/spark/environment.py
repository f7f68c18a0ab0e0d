"""What the rest of the TaskManager knows of Spark: sessions to open and close, progress, and "it is lost".

One environment = one shared driver JVM. A slot process talks to the JVM through the gateway that its
SlotSession names; everything it starts there carries the session's id as Spark job tag. When the JVM or its
host process is lost every open session is lost with it; `restart()` makes a fresh one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from runtime.aio.watch import Watch
from runtime.common.errors import PermanentError, RetryableError
from runtime.common.stream_progress import ScriptLook, StreamLook, StreamPosition
from runtime.gateways.process import SparkJvmFigures
from runtime.gateways.spark_work import SparkQuery, SparkWork
from runtime.taskexecutor.spark.spark_answers import WorkAsked
from runtime.taskexecutor.spark_protocol.sessions import SlotSession, SparkProgress


class SparkLostError(RetryableError):
    """The JVM or its host process is dead, or being replaced: open sessions no longer exist."""


class SparkRefusedError(PermanentError):
    """Spark does not start with the conf that it was given, and would not if it was tried again."""


@dataclass(frozen=True, slots=True)
class SparkLoss:
    """Why the JVM or its host is dead. `session_id`: the session that is the cause, "" where that is not known.

    `is_deed`: a call of that session has ended the JVM; else its tasks did not end when they had to (R15).
    `is_planned`: the TaskManager wants another one; no task uses it, so no earlier user of it fails (R45, R50).
    """

    reason: str
    session_id: str = ""
    is_deed: bool = False
    is_planned: bool = False

    def __str__(self) -> str:
        return self.reason


class ChangeOutcome(Enum):
    """The outcome of a change: put back; left until other tasks have ended; the JVM is replaced."""

    RESTORED = "restored"
    WAITS = "waits"
    SPENT = "spent"


@dataclass(frozen=True, slots=True)
class JvmChange:
    """What a session may have changed for all jobs of its JVM (R45), in words; none for one that did not work.

    `jobs`: those with sessions that still work, which may have done it as well.
    """

    outcome: ChangeOutcome
    jobs: tuple[str, ...]
    changes: tuple[str, ...]

    @classmethod
    def parse(cls, told: str) -> JvmChange | None:
        """From the lines of `jvm/JvmState.java`; None for no change."""
        if not told:
            return None
        outcome, jobs, *changes = told.split("\n")
        return cls(ChangeOutcome(outcome), tuple(filter(None, jobs.split(","))), tuple(changes))


@dataclass(frozen=True, slots=True)
class ClosedSession:
    """`left`: what its Python functions have started and what does not die, in words, "" as a rule (R29)."""

    left: str = ""
    change: JvmChange | None = None


class SparkEnvironment(Protocol):
    """Implementations: `environment_process.ProcessSparkEnvironment`. All methods belong to one event loop."""

    async def start(self) -> None:
        """Launch Spark host and JVM; return when one session has run a count. Warming goes on afterwards."""

    @property
    def is_ready(self) -> bool:
        """True while sessions can be opened."""

    @property
    def is_warm(self) -> bool:
        """True once the JVM has been warmed up."""

    @property
    def memory_bytes(self) -> int:
        """What the JVM itself has written, 0 where there is none."""

    async def end(self, loss: SparkLoss) -> None:
        """End it by force, as this loss; returns when its processes are dead."""

    async def give_up(self, reason: str) -> None:
        """End it, as a loss that is planned; returns when its processes are dead. A supervisor may start it again."""

    async def open_session(self, slot_index: int, shares: int = 1) -> SlotSession:
        """Make a gateway, a session and a tag for one slot process. Raises SparkLostError."""

    @property
    def put_back(self) -> Watch[JvmChange | None]:
        """Set when the JVM is changed for all, and when it no longer is, with what was put back while others work."""

    async def close_session(self, session: SlotSession) -> ClosedSession:
        """End everything of a session; call it after the slot process is reaped. Idempotent.

        Streams stopped, gateway shut, tag cancelled every 50 ms until quiet lasts, files removed. Returns when
        Spark shows no active task of the tag; when that takes longer than 5 s the JVM is killed (R15), and the
        session is lost with it. So it is when the session has left the JVM changed for all jobs, no other session works
        in it, and the change cannot be put back (R45).
        """

    async def cancel_session_jobs(self, session: SlotSession) -> None:
        """The soft step of a cancel: the session's active Spark jobs fail in the slot process."""

    def note_use(self, job_id: str) -> None:
        """A task of the job has touched Spark."""

    async def end_job(self, job_id: str) -> None:
        """The job left this TaskManager: end its own Python workers and forget its catalog. Idempotent.

        Does nothing for a job that has not touched Spark.
        """

    async def progress(self) -> Mapping[str, SparkProgress]:
        """Progress of all sessions with active Spark jobs, by session id; one call for all slots."""

    async def work(
        self, asked: WorkAsked, stages_max: int, *, has_plans: bool
    ) -> tuple[SparkWork, tuple[SparkQuery, ...]] | None:
        """What Spark has done for an attempt, and the queries if wanted; None when it cannot say it in time."""

    async def stream_positions(self, session_id: str) -> tuple[StreamPosition, ...]:
        """The positions of the session's streaming queries. Raises SparkLostError, ValueError."""

    async def look_at_stream(self, session_id: str, hold: str, *, drains: bool) -> StreamLook:
        """How far the session's query is; with the id of a hold, have it end between two batches. Idempotent.

        Raises SparkLostError, ValueError.
        """

    async def look_at_script(self, session_id: str, hold: str) -> ScriptLook:
        """The same of all queries that the session's script starts: none begins before the hold is over."""

    async def jvm_figures(self, key: str) -> SparkJvmFigures | None:
        """Heap, garbage collection and conf of the JVM, named `key`; None without a JVM of the TaskManager."""

    async def thread_dump(self) -> str:
        """The stacks of the JVM's threads, as jstack prints them, or why there are none; "" without a JVM."""

    async def page(self, target: str, prefix: str) -> tuple[bytes, bytes]:
        """(head, packed body) of the answer to a GET of Spark's own pages (R58).

        Raises NotFoundError where nobody may look at them, UnavailableError when the JVM does not make it in time.
        """

    async def wait_lost(self) -> SparkLoss:
        """Return the loss once host or JVM is dead. Level: returns at once while it is lost."""

    async def restart(self) -> None:
        """Replace a lost (or living) JVM and its host; returns like `start`."""

    async def stop(self) -> None:
        """End JVM and host; returns when both are reaped. Idempotent."""
