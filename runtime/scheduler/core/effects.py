"""The outputs of JobMasterCore: the JobMaster executes them in this order."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.checkpoint.core.checkpoints import CompletedCheckpoint
from runtime.common.ids import Incarnation
from runtime.common.states import JobStatus
from runtime.executiongraph.archived import ArchivedExecutionGraph
from runtime.gateways.dispatcher import JobSummary
from runtime.gateways.job_master import JobMasterToTaskManager
from runtime.gateways.operations import StreamOperation
from runtime.gateways.resource_manager import JobRequirements
from runtime.scheduler.core.job_events import JobEvent


@dataclass(frozen=True, slots=True)
class SendMessages:
    """Send to one TaskManager, in this order, in one loop turn: they travel in one write."""

    incarnation: Incarnation
    messages: tuple[JobMasterToTaskManager, ...]


@dataclass(frozen=True, slots=True)
class WriteEvents:
    """Make a batch of events durable, then say EventsWritten. Writes of a job are made one after the other (R10)."""

    number: int
    events: tuple[JobEvent, ...]


@dataclass(frozen=True, slots=True)
class WriteCheckpoint:
    """Make the record of a checkpoint durable, drop those of `subsumed`, then say CheckpointWritten."""

    checkpoint: CompletedCheckpoint
    subsumed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteOperation:
    """Make an operation durable as it is here, drop the records of `dropped`, then say OperationWritten (R61)."""

    operation: StreamOperation
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnswerOperation:
    """Answer those who want an operation: it is durable, or it is refused, for now if `is_for_now`."""

    trigger_id: str
    operation: StreamOperation | None
    refusal: str = ""
    is_for_now: bool = False


@dataclass(frozen=True, slots=True)
class AnswerRequirements:
    """Answer those who want other bounds: they are durable, or refused, for now if `is_for_now`."""

    request_id: str
    refusal: str = ""
    is_for_now: bool = False


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Make the terminal state durable, then say ResultWritten. No component hears of the state before (R3)."""

    status: JobStatus
    archived: ArchivedExecutionGraph
    summary: JobSummary


@dataclass(frozen=True, slots=True)
class DeclareRequirements:
    """The complete requirement set has changed."""

    requirements: JobRequirements


@dataclass(frozen=True, slots=True)
class PublishSummary:
    """Something visible has changed."""

    summary: JobSummary


@dataclass(frozen=True, slots=True)
class ScheduleDeadline:
    """Say DeadlineReached at this monotonic time."""

    at: float


@dataclass(frozen=True, slots=True)
class ScheduleRestart:
    """Say RestartDue at this monotonic time. Several may be awaited."""

    at: float


@dataclass(frozen=True, slots=True)
class WriteFence:
    """Put a fence on a TaskManager: say FenceWritten, then FenceConfirmed when it is (R14)."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class EndRunner:
    """Nothing is left to do. `summary` is that of a durable result, None when another owner has the job."""

    summary: JobSummary | None


Effect = (
    SendMessages
    | WriteEvents
    | WriteCheckpoint
    | WriteOperation
    | AnswerOperation
    | AnswerRequirements
    | WriteResult
    | DeclareRequirements
    | PublishSummary
    | ScheduleDeadline
    | ScheduleRestart
    | WriteFence
    | EndRunner
)
