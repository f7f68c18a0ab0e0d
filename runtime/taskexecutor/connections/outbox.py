"""What the endpoint has to tell its peers, gathered so that it leaves in as few messages as possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId
from runtime.gateways.job_master import TaskProgresses, TaskReports
from runtime.gateways.resource_manager import SlotsFreed
from runtime.gateways.task import TaskExecutionReport, TaskProgress
from runtime.taskexecutor.core.events import SendProgress, SendReport
from runtime.taskexecutor.core.reports import messages_of

_Recipient = tuple[Incarnation, JobId, int]


class Outbox:
    """Reports and progress by owner, job and epoch; freed slots for the leader."""

    def __init__(self) -> None:
        self._reports: dict[_Recipient, list[TaskExecutionReport]] = {}
        self._progress: dict[_Recipient, dict[ExecutionAttemptId, TaskProgress]] = {}
        self._freed: list[AllocationId] = []
        self._has_end = False

    @property
    def is_empty(self) -> bool:
        """Nothing to tell."""
        return not (self._reports or self._progress or self._freed)

    @property
    def is_urgent(self) -> bool:
        """True when a peer waits for something in here.

        None waits for RUNNING, which may travel with the next message.
        """
        return bool(self._has_end or self._progress or self._freed)

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

    def flush(self, tell_owner: Callable[[Incarnation, Any], None], tell_leader: Callable[[Any], None]) -> None:
        """Send everything."""
        if self._reports:
            reports, self._reports, self._has_end = self._reports, {}, False
            for (owner, job_id, epoch), listed in reports.items():
                for group in messages_of(listed):
                    tell_owner(owner, TaskReports(job_id, epoch, group))
        if self._progress:
            progress, self._progress = self._progress, {}
            for (owner, job_id, epoch), latest in progress.items():
                tell_owner(owner, TaskProgresses(job_id, epoch, tuple(latest.values())))
        if self._freed:
            freed, self._freed = self._freed, []
            tell_leader(SlotsFreed(tuple(freed)))
