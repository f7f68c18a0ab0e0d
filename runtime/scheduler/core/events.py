"""What can happen to a job: the inputs of JobMasterCore. Every event carries the moment it was noticed."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.ids import AllocationId, Incarnation
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.job_master import HeldAttempt, SlotOffer
from runtime.gateways.overview import Takeover
from runtime.gateways.task import FailureInfo, TaskExecutionReport, TaskProgress
from runtime.jobgraph.graph import JobGraph
from runtime.scheduler.core.job_events import JobEvent


@dataclass(frozen=True, slots=True)
class Moment:
    """Both clocks, read once. Decisions rest on `monotonic` (seconds) only; `millis` is for people.

    `draw` is a number in [-1, 1), for what must not happen to all jobs at the same time.
    """

    monotonic: float
    millis: int
    draw: float = 0.0


@dataclass(frozen=True, slots=True)
class JobGraphLoaded:
    """The job's graph is here, verified and valid."""

    graph: JobGraph
    at: Moment


@dataclass(frozen=True, slots=True)
class JobRead:
    """A job that had an owner before: its graph and its durable events are here (R6). The census is still to come."""

    graph: JobGraph
    batches: tuple[tuple[JobEvent, ...], ...]
    at: Moment
    takeovers: tuple[Takeover, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskManagersRegistered:
    """These TaskManagers are registered now: whoever is asked in a census. Of `unreadable` nobody knows where (R31)."""

    incarnations: frozenset[Incarnation]
    at: Moment
    unreadable: frozenset[Incarnation] = frozenset()


@dataclass(frozen=True, slots=True)
class InitializationFailed:
    """The job cannot be built, and why: its graph is unreadable, or the owner must not start it.

    `name` is the job's as far as it could be read. `may_run`: what earlier owners have started is stopped first (R16).
    `keeps_outputs`: its outcome was decided, or nobody can read whether it was (R28); `is_decided`: for sure (R26).
    """

    failure: FailureInfo
    name: str
    at: Moment
    may_run: bool = False
    keeps_outputs: bool = False
    is_decided: bool = False


@dataclass(frozen=True, slots=True)
class InitializationDelayed:
    """The graph cannot be had now; it is asked for again. "" when that is over."""

    reason: str
    at: Moment


@dataclass(frozen=True, slots=True)
class SlotsOffered:
    """A TaskManager offers slots that were allocated for this job."""

    location: TaskManagerLocation
    offers: tuple[SlotOffer, ...]
    at: Moment


@dataclass(frozen=True, slots=True)
class JobCounted:
    """A TaskManager says what it has of the job, on a new stream: slots that the job had taken, attempts, and whether
    its outputs are being moved there.
    """

    location: TaskManagerLocation
    slots: tuple[SlotOffer, ...]
    attempts: tuple[HeldAttempt, ...]
    is_last: bool
    at: Moment
    is_moving: bool = False


@dataclass(frozen=True, slots=True)
class SlotsGone:
    """Slots are lost on a TaskManager that is still there."""

    incarnation: Incarnation
    allocations: tuple[AllocationId, ...]
    reason: str
    at: Moment


@dataclass(frozen=True, slots=True)
class TaskManagerDisconnected:
    """The stream to a TaskManager has ended. What runs there goes on; its next stream begins with a census (R11)."""

    incarnation: Incarnation
    reason: str
    at: Moment


@dataclass(frozen=True, slots=True)
class SlotsClosed:
    """These slots take nothing more, because their TaskManager drains; what runs in them goes on."""

    incarnation: Incarnation
    allocations: tuple[AllocationId, ...]
    at: Moment


@dataclass(frozen=True, slots=True)
class TaskManagerGone:
    """A TaskManager counts as lost (R18). `is_reaped`: there is proof that nothing of it runs any more (R13)."""

    incarnation: Incarnation
    reason: str
    at: Moment
    is_reaped: bool = False


@dataclass(frozen=True, slots=True)
class AttemptsReported:
    """News of attempts, in the order in which they happened. `incarnation`: the TaskManager that says so."""

    reports: tuple[TaskExecutionReport, ...]
    at: Moment
    incarnation: Incarnation | None = None

    def failures_last(self) -> list[TaskExecutionReport]:
        """What has FINISHED comes first: a failure might cancel it, and it would take effect again (R17)."""
        return sorted(self.reports, key=lambda report: report.state is ExecutionState.FAILED)


@dataclass(frozen=True, slots=True)
class AttemptsProgressed:
    """What running attempts are doing."""

    progresses: tuple[TaskProgress, ...]
    at: Moment


@dataclass(frozen=True, slots=True)
class OutputsMoved:
    """The answer to the order to move the job's outputs that has this number."""

    order: int
    failure: FailureInfo | None
    at: Moment


@dataclass(frozen=True, slots=True)
class OutputsMoving:
    """How far the move under that order is. `problem`: why it does not get on, "" if it does."""

    order: int
    files_moved: int
    files_total: int
    problem: str
    at: Moment


@dataclass(frozen=True, slots=True)
class FenceWritten:
    """The fence on a TaskManager is acknowledged (R14)."""

    incarnation: Incarnation
    revision: int
    at: Moment


@dataclass(frozen=True, slots=True)
class FenceConfirmed:
    """The TaskManager has obeyed the fence, or its key is gone: nothing that it was for runs there (R14, R15)."""

    incarnation: Incarnation
    at: Moment


@dataclass(frozen=True, slots=True)
class EventsWritten:
    """Batch `number` is durable (R10)."""

    number: int
    at: Moment


@dataclass(frozen=True, slots=True)
class WriteDelayed:
    """The write in flight does not get through; it is repeated without limit (R2, R20)."""

    reason: str
    at: Moment


@dataclass(frozen=True, slots=True)
class ResultWritten:
    """The result is durable (R3)."""

    at: Moment


@dataclass(frozen=True, slots=True)
class OwnershipLost:
    """A transaction was refused: another owner has a higher epoch, or the job has a result."""

    reason: str
    at: Moment


@dataclass(frozen=True, slots=True)
class CancelWanted:
    """A person wants the job to end, or the cluster does: because of `reason`."""

    at: Moment
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DeadlineReached:
    """The job's execution timeout is over."""

    at: Moment


@dataclass(frozen=True, slots=True)
class RestartDue:
    """The pause before a restart is over."""

    at: Moment


@dataclass(frozen=True, slots=True)
class ResourcesNotified:
    """Why requirements are not fulfilled, "" when they are."""

    reason: str
    at: Moment


@dataclass(frozen=True, slots=True)
class Ticked:
    """The process's wheel has turned: do what was left for later."""

    at: Moment


RecoveryEvent = JobRead | InitializationFailed | TaskManagersRegistered
InitializationEvent = JobGraphLoaded | InitializationFailed | InitializationDelayed
TaskManagerEvent = (
    SlotsOffered
    | JobCounted
    | SlotsGone
    | TaskManagerDisconnected
    | SlotsClosed
    | TaskManagerGone
    | AttemptsReported
    | AttemptsProgressed
    | OutputsMoved
    | OutputsMoving
)
StoreEvent = EventsWritten | WriteDelayed | ResultWritten | OwnershipLost
FenceEvent = FenceWritten | FenceConfirmed
ControlEvent = CancelWanted | DeadlineReached | RestartDue | ResourcesNotified | Ticked
Event = InitializationEvent | RecoveryEvent | TaskManagerEvent | FenceEvent | StoreEvent | ControlEvent
