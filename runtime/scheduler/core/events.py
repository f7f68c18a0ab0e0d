"""The events of a job: the inputs of JobMasterCore. Every event carries the moment at which it was noticed.

The message of a peer travels in `TaskManagerSpoke`: an event does not copy its fields.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.checkpoint.core.checkpoints import CompletedCheckpoint
from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.ids import Incarnation
from runtime.common.waiting import Waiting
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.job_master import CommitOutputs, DeployTasks, JobMessage
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.overview import Takeover
from runtime.gateways.rescales import UpdateRequirements
from runtime.gateways.task import FailureInfo
from runtime.jobgraph.graph import JobGraph
from runtime.scheduler.core.job_events import JobEvent


@dataclass(frozen=True, slots=True)
class Moment:
    """Both clocks, read once. Decisions rest on `monotonic` (seconds) only; `millis` is for people.

    `draw` is a random number in [-1, 1): the jitter of pauses, so that jobs do not restart all at the same time.
    """

    monotonic: float
    millis: int
    draw: float = 0.0


@dataclass(frozen=True, slots=True)
class JobGraphLoaded:
    """The job's graph is here, verified and valid. `checkpointing`: as its submission has settled it, if it has."""

    graph: JobGraph
    at: Moment
    checkpointing: CheckpointSettings | None = None


@dataclass(frozen=True, slots=True)
class JobRead:
    """A job that had an owner before: its graph, its durable events and its checkpoints are here (R6).

    The census is still to come.
    """

    graph: JobGraph
    batches: tuple[tuple[JobEvent, ...], ...]
    at: Moment
    takeovers: tuple[Takeover, ...] = ()
    checkpoints: tuple[CompletedCheckpoint, ...] = ()
    checkpointing: CheckpointSettings | None = None
    operations: tuple[StreamOperation, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskManagersRegistered:
    """The TaskManagers that are registered now, and that a census has to ask.

    The records of those in `unreadable` cannot be read, so that their addresses are not known (R31).
    """

    incarnations: frozenset[Incarnation]
    at: Moment
    unreadable: frozenset[Incarnation] = frozenset()


@dataclass(frozen=True, slots=True)
class InitializationFailed:
    """The job cannot be built, and why: its graph is unreadable, or the owner must not start it.

    `name`: the job's name as far as it could be read. `may_run`: attempts of earlier owners may run, and are stopped
    first (R16). `is_decided`: the outcome of the job was decided (R26). `keeps_outputs`: it was, or may have been: the
    events cannot be read (R28).
    """

    failure: FailureInfo
    name: str
    at: Moment
    may_run: bool = False
    keeps_outputs: bool = False
    is_decided: bool = False


@dataclass(frozen=True, slots=True)
class InitializationDelayed:
    """The graph cannot be read now, for `reason`; the runner asks again. "" when that is over."""

    reason: str
    at: Moment


@dataclass(frozen=True, slots=True)
class TaskManagerSpoke:
    """A TaskManager has sent a message about the job."""

    location: TaskManagerLocation
    message: JobMessage
    at: Moment

    @property
    def incarnation(self) -> Incarnation:
        """The TaskManager."""
        return self.location.incarnation


@dataclass(frozen=True, slots=True)
class TaskManagerDisconnected:
    """The stream to a TaskManager has ended. What runs there goes on; its next stream begins with a census (R11)."""

    incarnation: Incarnation
    reason: str
    at: Moment


@dataclass(frozen=True, slots=True)
class TaskManagerLost:
    """A TaskManager was silent for too long (R18). What runs there may go on."""

    incarnation: Incarnation
    reason: str
    at: Moment


@dataclass(frozen=True, slots=True)
class TaskManagerDied:
    """There is proof that nothing of a TaskManager runs any more (R13)."""

    incarnation: Incarnation
    reason: str
    at: Moment


@dataclass(frozen=True, slots=True)
class SendFailed:
    """A message to a TaskManager is too large for any stream, so its order cannot be carried out."""

    message: DeployTasks | CommitOutputs
    failure: FailureInfo
    at: Moment


@dataclass(frozen=True, slots=True)
class FenceWritten:
    """The fence on a TaskManager is acknowledged (R14)."""

    incarnation: Incarnation
    revision: int
    at: Moment


@dataclass(frozen=True, slots=True)
class FenceConfirmed:
    """The TaskManager has obeyed the fence, or is dead: no attempt that the fence was for runs there (R14, R15)."""

    incarnation: Incarnation
    at: Moment


@dataclass(frozen=True, slots=True)
class EventsWritten:
    """Batch `number` is durable (R10)."""

    number: int
    at: Moment


@dataclass(frozen=True, slots=True)
class CheckpointWritten:
    """The record of a checkpoint is durable."""

    checkpoint_id: int
    at: Moment


@dataclass(frozen=True, slots=True)
class OperationWritten:
    """The record of an operation is durable, and those of `dropped` are gone."""

    operation: StreamOperation
    dropped: tuple[str, ...]
    at: Moment


@dataclass(frozen=True, slots=True)
class WriteDelayed:
    """The store does not take the write in flight; the JobMaster repeats it without limit (R2, R20)."""

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
    """The job is to be cancelled. `reason` is why the cluster wants that, "" if a person does."""

    at: Moment
    reason: str = ""


@dataclass(frozen=True, slots=True)
class OperationWanted:
    """A client wants a checkpoint, a savepoint, or a stop with one."""

    wanted: TriggerOperation
    at: Moment


@dataclass(frozen=True, slots=True)
class RequirementsWanted:
    """A client wants other bounds of the parallelism of vertices."""

    wanted: UpdateRequirements
    at: Moment


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
    """Why the ResourceManager cannot fulfil the job's requirements, if it cannot."""

    waiting: Waiting
    at: Moment


@dataclass(frozen=True, slots=True)
class Ticked:
    """The wheel of the process has turned: do the work that was left for later."""

    at: Moment


RecoveryEvent = JobRead | InitializationFailed | TaskManagersRegistered
InitializationEvent = JobGraphLoaded | InitializationFailed | InitializationDelayed
TaskManagerEvent = TaskManagerSpoke | TaskManagerDisconnected | TaskManagerLost | TaskManagerDied | SendFailed
StoreEvent = EventsWritten | CheckpointWritten | OperationWritten | WriteDelayed | ResultWritten | OwnershipLost
FenceEvent = FenceWritten | FenceConfirmed
Wish = CancelWanted | OperationWanted | RequirementsWanted
ControlEvent = Wish | DeadlineReached | RestartDue | ResourcesNotified | Ticked
Event = InitializationEvent | RecoveryEvent | TaskManagerEvent | FenceEvent | StoreEvent | ControlEvent
