"""A SlotPool without processes: what a task does is said by its operators, and tests end running ones by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from runtime.aio.watch import Watch
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import CheckpointAnswer
from runtime.gateways.task import TaskExecutionReport, TaskMetrics
from runtime.taskexecutor.slots.work import SlotListener, SlotWork

AT_ONCE = b'"finish"'
"""Operators of a task that finishes by itself."""


class TestingSlotPool:
    """Implements `SlotPool`."""

    __test__ = False

    def __init__(self, *, is_ready: bool = True) -> None:
        self.readiness: Watch[bool] = Watch(is_ready)
        self.work: dict[ExecutionAttemptId, SlotWork] = {}
        self.slots: dict[int, ExecutionAttemptId] = {}
        self.started: Watch[int] = Watch(0)
        self.renewals = 0
        self.ended_jobs: list[JobId] = []
        self.may_end_jobs = asyncio.Event()
        self.may_end_jobs.set()
        self.cancelled: list[ExecutionAttemptId] = []
        self._ending: dict[ExecutionAttemptId, asyncio.Future[TaskExecutionReport | None]] = {}

    async def run(self, slot_index: int, work: SlotWork, listener: SlotListener, /) -> None:
        attempt_id = work.task.attempt_id
        assert slot_index not in self.slots
        self.slots[slot_index] = attempt_id
        self.work[attempt_id] = work
        ending = self._ending[attempt_id] = asyncio.get_running_loop().create_future()
        try:
            listener.task_state_changed(report_of(attempt_id, ExecutionState.RUNNING))
            self.started.set(self.started.value + 1)
            if work.task.task.operators == AT_ONCE:
                ending.set_result(report_of(attempt_id))
            report = await ending
            if report is not None:
                listener.task_state_changed(report)
        finally:
            del self.slots[slot_index], self._ending[attempt_id]

    views = None
    queries = None

    async def positions(self, attempts: Sequence[ExecutionAttemptId], /) -> tuple[CheckpointAnswer, ...]:
        """No query runs here."""
        return tuple(CheckpointAnswer(attempt_id, None, "no query of it runs here") for attempt_id in attempts)

    def give_split(self, attempt_id: ExecutionAttemptId, split: int, /) -> None:
        """No code here takes splits on demand."""
        raise AssertionError(attempt_id, split)

    def memory_bytes(self) -> dict[int, int]:
        return dict.fromkeys(self.slots, 1 << 20)

    async def renew(self) -> None:
        assert not self.slots
        self.renewals += 1

    async def end_job(self, job_id: JobId, /) -> None:
        self.ended_jobs.append(job_id)
        await self.may_end_jobs.wait()

    async def cancel(self, slot_index: int, attempt_id: ExecutionAttemptId, /) -> None:
        self.cancelled.append(attempt_id)
        if self.slots.get(slot_index) == attempt_id:
            self.end(attempt_id, report_of(attempt_id, ExecutionState.CANCELED))

    def end(self, attempt_id: ExecutionAttemptId, report: TaskExecutionReport | None) -> None:
        """End a running attempt with a report, or without a word."""
        ending = self._ending[attempt_id]
        if not ending.done():
            ending.set_result(report)

    def finish(self, attempt_id: ExecutionAttemptId) -> None:
        """End a running attempt well."""
        self.end(attempt_id, report_of(attempt_id))

    def crash(self, attempt_id: ExecutionAttemptId, error: Exception) -> None:
        """Let `run` raise."""
        self._ending[attempt_id].set_exception(error)

    async def wait_started(self, count: int) -> None:
        """Until so many attempts have begun."""
        await self.started.wait_until(lambda started: started >= count)


def report_of(
    attempt_id: ExecutionAttemptId, state: ExecutionState = ExecutionState.FINISHED, value: bytes = b"null"
) -> TaskExecutionReport:
    """A plain report."""
    return TaskExecutionReport(attempt_id, state, 0, None, value, (), (), TaskMetrics())
