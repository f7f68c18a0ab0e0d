"""Slots and Spark, as far as the TaskExecutor needs them: `SlotProcessPool` in production, a fake in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from runtime.aio.watch import Watch
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.gateways.job_master import CheckpointAnswer
from runtime.gateways.process import SparkJvmFigures
from runtime.gateways.resource_manager import SparkEnvironmentStatus
from runtime.taskexecutor.slots.attempt_views import AttemptViews
from runtime.taskexecutor.slots.stream_queries import StreamQueries
from runtime.taskexecutor.slots.work import SlotListener, SlotWork


class SlotPool(Protocol):
    """Runs attempts in slots. Started and stopped by the runner of the process."""

    @property
    def readiness(self) -> Watch[bool]:
        """True while slots can take tasks."""

    async def run(self, slot_index: int, work: SlotWork, listener: SlotListener, /) -> None:
        """Run one attempt to its terminal report; returns when nothing of it is left in the slot (R15)."""

    async def renew(self) -> None:
        """Replace all processes, Spark too; returns when others can take tasks. Call it while nothing runs (R50)."""

    async def end_job(self, job_id: JobId, /) -> None:
        """The job has left: end its processes that no other job may use. Idempotent.

        Where slots are users of their own, returns when they are reaped: other jobs have these users next (R50).
        """

    def memory_bytes(self) -> Mapping[int, int]:
        """The memory of what runs in each slot, by the slot's number, as it was measured last; 0 where nothing runs."""

    @property
    def views(self) -> AttemptViews | None:
        """Looks into attempts; None where there are no processes to look into."""

    @property
    def queries(self) -> StreamQueries | None:
        """Streaming queries that run in slots; None where there are no processes."""

    async def positions(self, attempts: Sequence[ExecutionAttemptId], /) -> tuple[CheckpointAnswer, ...]:
        """How far the queries of these attempts have come for good, one answer for each."""

    def give_split(self, attempt_id: ExecutionAttemptId, split: int, /) -> None:
        """Tell a running attempt the number of its next split, NO_SPLIT when none is left (R12)."""

    async def cancel(self, slot_index: int, attempt_id: ExecutionAttemptId, /) -> None:
        """Cancel an attempt: softly, then by force. Idempotent."""


class SparkState(Protocol):
    """Spark, as far as slot reports and the end of a job need it."""

    @property
    def is_warm(self) -> bool:
        """True once the JVM has been warmed up."""

    @property
    def problem(self) -> str:
        """Why it could not be started again, "" as long as it can."""

    @property
    def changes(self) -> Watch[None]:
        """Changes with `statuses`."""

    def statuses(self) -> tuple[SparkEnvironmentStatus, ...]:
        """The environments beside the default one."""

    def jars_in_use(self) -> set[str]:
        """The sha256 of each jar of a job that the JVM of an environment may still read."""

    async def jvm_figures(self) -> tuple[SparkJvmFigures, ...]:
        """Of each JVM, asked now, the default one first."""

    async def end_job(self, job_id: str, /) -> None:
        """The job left this TaskManager. Idempotent; raises FlinklikeError when Spark cannot be reached."""
