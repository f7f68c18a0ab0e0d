"""What the endpoint has to tell its peers, gathered so that it leaves in as few messages as possible."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId
from runtime.gateways.job_master import TaskProgresses, TaskReports
from runtime.gateways.resource_manager import SlotsFreed
from runtime.gateways.task import TaskExecutionReport, TaskProgress
from runtime.taskexecutor.core.events import SendProgress, SendReport
from runtime.taskexecutor.core.reports import messages_of, progress_size_bytes, report_size_bytes

RUNNING_DELAY = 0.005
"""Seconds that the news of a task's begin wait for the news of its end."""

_Recipient = tuple[Incarnation, JobId, int]


class Outbox:
    """Reports and progress by owner, job and epoch; freed slots for the leader."""

    def __init__(self, tell_owner: Callable[[Incarnation, Any], None], tell_leader: Callable[[Any], None]) -> None:
        self._tell_owner = tell_owner
        self._tell_leader = tell_leader
        self._reports: dict[_Recipient, list[TaskExecutionReport]] = {}
        self._progress: dict[_Recipient, dict[ExecutionAttemptId, TaskProgress]] = {}
        self._freed: list[AllocationId] = []
        self._has_end = False
        self._late_flush: asyncio.TimerHandle | None = None

    def add_report(self, effect: SendReport) -> None:
        """All reports of an attempt are told, in order."""
        recipient = effect.owner, effect.report.attempt_id.job_id, effect.epoch
        self._reports.setdefault(recipient, []).append(effect.report)
        self._has_end = self._has_end or effect.report.state.is_terminal

    def add_progress(self, effect: SendProgress) -> None:
        """Only the latest of each attempt matters."""
        recipient = effect.owner, effect.progress.attempt_id.job_id, effect.epoch
        self._progress.setdefault(recipient, {})[effect.progress.attempt_id] = effect.progress

    def add_freed(self, allocation_id: AllocationId) -> None:
        """A slot is ready for the next job."""
        self._freed.append(allocation_id)

    def deliver(self) -> None:
        """Send everything: at once, but RUNNING waits a moment for the end of a short task.

        That is one message instead of two.
        """
        if self._has_end or self._progress or self._freed:
            self.flush()
        elif self._reports and self._late_flush is None:
            self._late_flush = asyncio.get_running_loop().call_later(RUNNING_DELAY, self.flush)

    def flush(self) -> None:
        """Send everything now."""
        if self._late_flush is not None:
            self._late_flush.cancel()
            self._late_flush = None
        if self._reports:
            reports, self._reports, self._has_end = self._reports, {}, False
            for (owner, job_id, epoch), listed in reports.items():
                for group in messages_of(listed, report_size_bytes):
                    self._tell_owner(owner, TaskReports(job_id, epoch, group))
        if self._progress:
            progress, self._progress = self._progress, {}
            for (owner, job_id, epoch), latest in progress.items():
                for told in messages_of(latest.values(), progress_size_bytes):
                    self._tell_owner(owner, TaskProgresses(job_id, epoch, told))
        if self._freed:
            freed, self._freed = self._freed, []
            self._tell_leader(SlotsFreed(tuple(freed)))
