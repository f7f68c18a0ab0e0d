"""What R14 forbids on this TaskManager: fenced deployments, and exclusive attempts without contact. And why what ends
for no fault of its own does.

Invariants: a deployment that is older than its job's newest fence is never run; a fence is pending until nothing that
it is meant for runs; an attempt that was stopped for these reasons says so in its report, whatever it ended with,
unless it had finished; what a fence that cannot be read forbids is allowed again as soon as it can be (R31).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.gateways.task import SLOT_PREEMPTED, TASK_ISOLATED, FailureInfo, TaskExecutionReport

FENCES_REMEMBERED_MAX = 8192


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why an attempt is ended although its owner has not cancelled it and it has not failed."""

    class_name: str
    message: str

    @classmethod
    def isolated(cls, message: str) -> StopReason:
        """A fence, or no contact (R14)."""
        return cls(TASK_ISOLATED, message)

    @classmethod
    def no_owner(cls, message: str) -> StopReason:
        """`taskmanager.jobmaster-timeout` is over (R18)."""
        return cls("JobMasterTimeout", message)

    @classmethod
    def drained(cls, message: str) -> StopReason:
        """The TaskManager is being emptied."""
        return cls("TaskManagerDrained", message)

    @classmethod
    def preempted(cls, message: str) -> StopReason:
        """Its slot is for another queue (R64)."""
        return cls(SLOT_PREEMPTED, message)


@dataclass(frozen=True, slots=True)
class PendingFence:
    """Attempts of epochs up to `epoch` are being stopped."""

    job_id: JobId
    epoch: int
    revision: int
    is_readable: bool = True

    def is_for(self, attempt_id: ExecutionAttemptId) -> bool:
        """True for an attempt that must not go on."""
        return attempt_id.job_id == self.job_id and attempt_id.epoch <= self.epoch


class Isolation:
    """Fences and contact of one TaskManager."""

    def __init__(self) -> None:
        self.is_isolated = False
        """True while there is no contact: no exclusive attempt may begin."""
        self._newest: OrderedDict[JobId, int] = OrderedDict()
        self._unreadable: dict[JobId, int] = {}
        self._pending: dict[JobId, PendingFence] = {}
        self._reasons: dict[ExecutionAttemptId, StopReason] = {}

    def refusal(self, job_id: JobId, epoch: int, fence_revision: int) -> str:
        """Why a deployment is refused, "" when it is not.

        An owner that was assigned after the fence is newer than it: epochs and fences are revisions of one store.
        """
        newest = self._newest.get(job_id, 0)
        if max(epoch, fence_revision) >= newest:
            return ""
        return f"the deployment is older than fence {newest} of its job on this TaskManager"

    def unread(self, job_id: JobId, epoch: int, fence_revision: int) -> str:
        """Why nothing that is ordered under this epoch may begin for now, "" when it may: a fence cannot be read."""
        if max(epoch, fence_revision) >= self._unreadable.get(job_id, 0):
            return ""
        return f"fence {self._unreadable[job_id]} of its job on this TaskManager cannot be read"

    def fence(self, job_id: JobId, epoch: int, revision: int, *, is_readable: bool = True) -> PendingFence | None:
        """A fence was read. None when it, or a newer one, is known."""
        if revision <= (self._newest if is_readable else self._unreadable).get(job_id, 0):
            return None
        if is_readable:
            self._remember(job_id, revision)
        else:
            self._unreadable[job_id] = revision
        pending = self._pending[job_id] = PendingFence(job_id, epoch, revision, is_readable)
        return pending

    def _remember(self, job_id: JobId, revision: int) -> None:
        self._newest[job_id] = revision
        self._newest.move_to_end(job_id)
        if len(self._newest) > FENCES_REMEMBERED_MAX:
            self._newest.popitem(last=False)

    def reopen(self, job_id: JobId) -> None:
        """The fence that could not be read can be, or is lifted."""
        self._unreadable.pop(job_id, None)

    def pending(self) -> Iterator[PendingFence]:
        """The fences that are not obeyed yet."""
        return iter(tuple(self._pending.values()))

    def note_obeyed(self, fence: PendingFence) -> None:
        """Nothing that it is for runs here any more."""
        del self._pending[fence.job_id]

    def stop(self, attempt_id: ExecutionAttemptId, reason: StopReason) -> None:
        """Remember why an attempt will end. The first reason stays."""
        self._reasons.setdefault(attempt_id, reason)

    def is_stopping(self, attempt_id: ExecutionAttemptId) -> bool:
        """True for an attempt that is to end, and has not reported yet."""
        return attempt_id in self._reasons

    def explained(self, report: TaskExecutionReport) -> TaskExecutionReport:
        """The report with the reason for which the attempt was stopped, if it was."""
        if not report.state.is_terminal:
            return report
        reason = self._reasons.pop(report.attempt_id, None)
        if reason is None or report.state is ExecutionState.FINISHED:
            return report
        failure = FailureInfo(
            class_name=reason.class_name,
            message=reason.message,
            stack_trace=f"{reason.class_name}: {reason.message}",
            kind="SYSTEM",
            is_recoverable=True,
            timestamp_millis=report.timestamp_millis,
            is_isolation=True,
        )
        return replace(report, state=ExecutionState.FAILED, failure=failure)

    def end_job(self, job_id: JobId) -> None:
        """Forget why attempts of the job were ended; its fences stay."""
        self._reasons = {attempt: reason for attempt, reason in self._reasons.items() if attempt.job_id != job_id}
