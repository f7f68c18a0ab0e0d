"""Events and effects of the TaskExecutor's core. Messages of the gateways are events too, as they came."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.ids import AllocationId, ExecutionAttemptId, Incarnation, JobId, PartitionId
from runtime.common.states import ExecutionState
from runtime.gateways.job_master import (
    AcknowledgeReports,
    AnswerSlotOffers,
    AnswerSplits,
    CancelTasks,
    CheckpointAnswer,
    CheckpointAnswered,
    CommitOutputs,
    CommitProgress,
    DeployTasks,
    EndJob,
    EndSavepoint,
    FinishSavepoint,
    FreeSlots,
    JobCensus,
    OfferSlots,
    OutputsCommitted,
    RegisterJob,
    ReleasePartitions,
    SavepointAnswered,
    SavepointFinished,
    SlotsDraining,
    SlotsLost,
    SplitsRequested,
    TriggerCheckpoint,
    TriggerSavepoint,
)
from runtime.gateways.resource_manager import (
    JobsEnded,
    PreemptionRefused,
    PreemptSlots,
    RequestSlot,
    SlotRequestRefused,
    SlotsFreed,
)
from runtime.gateways.task import (
    FailureInfo,
    JobInformation,
    TaskDeploymentDescriptor,
    TaskExecutionReport,
    TaskProgress,
)
from runtime.taskexecutor.core.jobs import JobMasterLocation

OwnerMessage = (
    RegisterJob
    | AnswerSlotOffers
    | DeployTasks
    | CancelTasks
    | AcknowledgeReports
    | FreeSlots
    | ReleasePartitions
    | CommitOutputs
    | TriggerCheckpoint
    | TriggerSavepoint
    | FinishSavepoint
    | EndSavepoint
    | AnswerSplits
    | EndJob
)

OwnerNews = (
    JobCensus
    | OfferSlots
    | SlotsLost
    | SlotsDraining
    | OutputsCommitted
    | CommitProgress
    | CheckpointAnswered
    | SavepointAnswered
    | SavepointFinished
    | SplitsRequested
)

# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OwnerSpoke:
    """A message arrived on the current stream to a JobMaster process."""

    owner: JobMasterLocation
    message: OwnerMessage


@dataclass(frozen=True, slots=True)
class CensusRequested:
    """A new owner asks what there is of its job."""

    job_id: JobId
    epoch: int
    owner: JobMasterLocation


@dataclass(frozen=True, slots=True)
class JobMasterConnected:
    """A new stream to this process is open."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class JobMasterDisconnected:
    """The stream to this process has ended."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class SlotTimedOut:
    """`taskmanager.slot.timeout` is over for this allocation."""

    allocation_id: AllocationId


@dataclass(frozen=True, slots=True)
class AttemptReported:
    """News of an attempt, from the slot or from the shell."""

    report: TaskExecutionReport


@dataclass(frozen=True, slots=True)
class AttemptProgressed:
    """A running attempt has got on."""

    progress: TaskProgress


@dataclass(frozen=True, slots=True)
class SplitWanted:
    """A running attempt has read the `sequence` splits that it was given, and waits for the next one (R12)."""

    attempt_id: ExecutionAttemptId
    sequence: int


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """Nothing of the attempt is left in its slot (R15)."""

    slot_index: int
    attempt_id: ExecutionAttemptId


@dataclass(frozen=True, slots=True)
class PositionsTold:
    """What queries of a job have answered for a checkpoint."""

    job_id: JobId
    checkpoint_id: int
    answers: tuple[CheckpointAnswer, ...]


@dataclass(frozen=True, slots=True)
class SavepointTold:
    """What was done here for a savepoint of a job."""

    message: SavepointAnswered | SavepointFinished


@dataclass(frozen=True, slots=True)
class OutputsMoved:
    """The mover of a job has ended: all is done, or it has failed for good, or it has stopped and may go on later, or
    it has found that another one has its order.
    """

    job_id: JobId
    failure: FailureInfo | None = None
    is_stopped: bool = False
    is_superseded: bool = False


@dataclass(frozen=True, slots=True)
class MoveProgressed:
    """How far the mover of a job is. `problem`: why it does not get on, "" if it does."""

    job_id: JobId
    files_moved: int
    files_total: int
    problem: str


@dataclass(frozen=True, slots=True)
class ClusterChanged:
    """The leader belongs to another cluster than everything that runs here (R1)."""


@dataclass(frozen=True, slots=True)
class Deregistered:
    """This TaskManager was declared dead (R14)."""


@dataclass(frozen=True, slots=True)
class FenceRequested:
    """An owner has put a fence on this TaskManager: attempts of epochs up to `epoch` are to be stopped (R14).

    Not `is_readable`: perhaps one has (R31). Then nothing of those epochs begins until FenceReadable.
    """

    job_id: JobId
    epoch: int
    revision: int
    is_readable: bool = True


@dataclass(frozen=True, slots=True)
class FenceReadable:
    """The job's fence can be read again, or is lifted."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class ContactLost:
    """Exclusive attempts may soon run elsewhere: none may go on or begin here until ContactRegained (R14)."""

    reason: str


@dataclass(frozen=True, slots=True)
class ContactRegained:
    """Exclusive attempts may begin again."""


@dataclass(frozen=True, slots=True)
class OwnersAwaited:
    """So many seconds have passed during which owners could have come (R18)."""

    seconds: float


@dataclass(frozen=True, slots=True)
class DrainChanged:
    """From now on no slot is given away and nothing is begun, for this reason; "": everything is as before."""

    reason: str


@dataclass(frozen=True, slots=True)
class EnvironmentRenewed:
    """Spark and all slot processes are others, which have met no job."""


@dataclass(frozen=True, slots=True)
class Released:
    """What still runs is to run elsewhere: the time to drain is over, or `attempt_id` has nothing to do any more."""

    reason: str
    attempt_id: ExecutionAttemptId | None = None

    def is_for(self, attempt_id: ExecutionAttemptId) -> bool:
        """True for an attempt that is released."""
        return self.attempt_id in {None, attempt_id}


Event = (
    RequestSlot
    | PreemptSlots
    | JobsEnded
    | OwnerSpoke
    | CensusRequested
    | JobMasterConnected
    | JobMasterDisconnected
    | SlotTimedOut
    | AttemptReported
    | AttemptProgressed
    | SplitWanted
    | AttemptEnded
    | PositionsTold
    | SavepointTold
    | OutputsMoved
    | MoveProgressed
    | ClusterChanged
    | Deregistered
    | FenceRequested
    | FenceReadable
    | ContactLost
    | ContactRegained
    | OwnersAwaited
    | DrainChanged
    | Released
    | EnvironmentRenewed
)

# --- effects ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnectJobMaster:
    """Open a stream to this process unless there is one or one is being opened."""

    location: JobMasterLocation


@dataclass(frozen=True, slots=True)
class TellOwner:
    """Send a message to a connected JobMaster process."""

    owner: Incarnation
    message: OwnerNews


@dataclass(frozen=True, slots=True)
class SendReport:
    """Send a report to a connected owner; those of one turn and job travel in one message."""

    owner: Incarnation
    epoch: int
    report: TaskExecutionReport


@dataclass(frozen=True, slots=True)
class SendProgress:
    """Send progress to a connected owner; only the latest of each attempt in a turn."""

    owner: Incarnation
    epoch: int
    progress: TaskProgress


@dataclass(frozen=True, slots=True)
class TellResourceManager:
    """Send a message to the ResourceManager if one is registered with: the next report says the same, or it asks."""

    message: SlotsFreed | SlotRequestRefused | PreemptionRefused


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """The allocation has ended: tell the ResourceManager as soon as the slot is ready for the next job."""

    slot_index: int
    allocation_id: AllocationId


@dataclass(frozen=True, slots=True)
class StartSlotTimer:
    """Post SlotTimedOut after the slot timeout."""

    allocation_id: AllocationId


@dataclass(frozen=True, slots=True)
class RunAttempt:
    """Run an attempt in its slot, with so many slots' parts of the TaskManager; ends in AttemptEnded."""

    slot_index: int
    job: JobInformation
    task: TaskDeploymentDescriptor
    shares: int = 1


@dataclass(frozen=True, slots=True)
class CancelAttempt:
    """Ask the running attempt to stop, then force it."""

    slot_index: int
    attempt_id: ExecutionAttemptId


@dataclass(frozen=True, slots=True)
class GiveSplit:
    """Tell an attempt the number of its next split, NO_SPLIT when none is left."""

    attempt_id: ExecutionAttemptId
    split: int


@dataclass(frozen=True, slots=True)
class AskPositions:
    """Ask the queries of these attempts for their positions, and say PositionsTold."""

    message: TriggerCheckpoint


@dataclass(frozen=True, slots=True)
class DoSavepoint:
    """Do what an owner says about a savepoint; what is done is said as SavepointTold."""

    message: TriggerSavepoint | FinishSavepoint | EndSavepoint


@dataclass(frozen=True, slots=True)
class ReportUnstarted:
    """Make the terminal report of an attempt that never ran, and post it as AttemptReported."""

    attempt_id: ExecutionAttemptId
    state: ExecutionState
    reason: str


@dataclass(frozen=True, slots=True)
class DeletePartitions:
    """Delete the files of these result partitions."""

    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class MoveOutputs:
    """Do what a CommitOutputs asks for; ends in OutputsMoved."""

    message: CommitOutputs


@dataclass(frozen=True, slots=True)
class StopMove:
    """Have the mover of a job stop; ends in OutputsMoved (R27)."""

    job_id: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class ForgetJob:
    """Nothing of the job runs here any more: delete its directory, partitions and uncommitted outputs.

    Without `deletes_finished`, the outputs of finished attempts stay: the job goes on elsewhere or its owner keeps
    them, and others may commit them (R28).
    """

    job_id: JobId
    deletes_finished: bool = True


@dataclass(frozen=True, slots=True)
class FenceObeyed:
    """Nothing that the fence is for is left here (R15)."""

    job_id: JobId
    revision: int


@dataclass(frozen=True, slots=True)
class RenewEnvironment:
    """Replace Spark and all slot processes; post EnvironmentRenewed when nothing of the old ones is left (R50)."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An order was refused; the shell logs why."""

    reason: str


Effect = (
    ConnectJobMaster
    | TellOwner
    | SendReport
    | SendProgress
    | TellResourceManager
    | FreeSlot
    | StartSlotTimer
    | RunAttempt
    | CancelAttempt
    | GiveSplit
    | AskPositions
    | DoSavepoint
    | ReportUnstarted
    | DeletePartitions
    | MoveOutputs
    | StopMove
    | ForgetJob
    | FenceObeyed
    | RenewEnvironment
    | Refused
)
