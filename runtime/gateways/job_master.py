"""The stream between one JobMaster process and one TaskManager, which all their jobs share.

The TaskManager dials, when a slot request names a JobMaster process to which it has no stream. Every message that
belongs to a job carries the owner's epoch (R1, R11); commands are idempotent by attempt or allocation id.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.ids import AllocationId, ExecutionAttemptId, JobId, PartitionId, VertexId
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import NO_BATCH, StreamPosition
from runtime.gateways.task import (
    DEFAULT_PROFILE,
    FailureInfo,
    JobInformation,
    OutputDirectory,
    ResourceProfile,
    TaskDeploymentDescriptor,
    TaskExecutionReport,
    TaskProgress,
)

# --- down: JobMaster process -> TaskManager ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterJob:
    """The data that all tasks of a job share. Sent once per (job, stream), before the first deployment of the job."""

    job: JobInformation


@dataclass(frozen=True, slots=True)
class AnswerSlotOffers:
    """Answer to OfferSlots: the accepted allocations are ACTIVE now; the TaskManager frees the others."""

    job_id: JobId
    epoch: int
    accepted: tuple[AllocationId, ...]
    rejected: tuple[AllocationId, ...]


@dataclass(frozen=True, slots=True)
class DeployTasks:
    """Attempts to run. Several may wait in one ACTIVE slot (deploy-ahead); they run in this order.

    `fence_revision` is that of the newest fence that this owner has put on the TaskManager for the job, 0 without one.
    The TaskManager refuses deployments with an older revision (R14).
    """

    job_id: JobId
    epoch: int
    tasks: tuple[TaskDeploymentDescriptor, ...]
    fence_revision: int = 0


@dataclass(frozen=True, slots=True)
class CancelTasks:
    """Attempts to cancel, first softly, then by force (R15). Each attempt ends in a terminal report.

    `ends_batches`: streaming queries end between two batches before, if they do within the TaskManager's drain timeout.
    """

    job_id: JobId
    epoch: int
    attempts: tuple[ExecutionAttemptId, ...]
    ends_batches: bool = False


@dataclass(frozen=True, slots=True)
class AcknowledgeReports:
    """Terminal reports whose event is durable, or that the owner does not need any more (R10)."""

    job_id: JobId
    epoch: int
    attempts: tuple[ExecutionAttemptId, ...]


@dataclass(frozen=True, slots=True)
class FreeSlots:
    """Allocations that the job does not need any more."""

    job_id: JobId
    epoch: int
    allocations: tuple[AllocationId, ...]


@dataclass(frozen=True, slots=True)
class ReleasePartitions:
    """Result partitions that no consumer needs any more: delete their files."""

    job_id: JobId
    epoch: int
    partitions: tuple[PartitionId, ...]


@dataclass(frozen=True, slots=True)
class CommitOutputs:
    """Order to move all outputs of a decided job into their bases. Idempotent (R28).

    `epoch` and `order` number the orders of a job: a higher one replaces a lower one (R27). `fence_revision` as in
    DeployTasks. `vertex_id` is a vertex with outputs, for messages.
    """

    job_id: JobId
    epoch: int
    vertex_id: VertexId
    outputs: tuple[OutputDirectory, ...]
    order: int = 0
    fence_revision: int = 0


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Tell the positions of the queries of these attempts, for this checkpoint."""

    job_id: JobId
    epoch: int
    checkpoint_id: int
    attempts: tuple[ExecutionAttemptId, ...]


@dataclass(frozen=True, slots=True)
class EndedQuery:
    """The query of an attempt that has FINISHED; its directory stays as long as the job. `splits`: as for a deployment.

    `committed_batch`: one that its directory has at least, NO_BATCH where none is known.
    """

    attempt_id: ExecutionAttemptId
    uid: str
    parallelism: int
    splits: bytes = b"[]"
    committed_batch: int = NO_BATCH


@dataclass(frozen=True, slots=True)
class TriggerSavepoint:
    """Copy the directories of the queries of these attempts into `part`, each as of one committed batch. Idempotent.

    `holds`: end each query between two batches first, and hold it until EndSavepoint. `drains`: after it has read what
    was there. `operation` is the id of what it is for. `ended`: queries of the job that have finished, on whichever
    TaskManager; whoever has them here copies their directories too.
    """

    job_id: JobId
    epoch: int
    operation: str
    part: str
    attempts: tuple[ExecutionAttemptId, ...]
    holds: bool = False
    drains: bool = False
    ended: tuple[EndedQuery, ...] = ()


@dataclass(frozen=True, slots=True)
class FinishSavepoint:
    """All `queries` are copied into `part`: verify it, write its metadata, and rename it to `directory`. Idempotent."""

    job_id: JobId
    epoch: int
    operation: str
    part: str
    directory: str
    checkpoint_id: int
    trigger_millis: int
    job_name: str
    queries: int = 0


@dataclass(frozen=True, slots=True)
class EndSavepoint:
    """The operation is over: end what is done for it, and remove what these attempts have copied into `part`, if named.

    `finishes`: attempts that are held finish, else their queries go on.
    """

    job_id: JobId
    epoch: int
    operation: str
    attempts: tuple[ExecutionAttemptId, ...]
    finishes: bool = False
    part: str = ""


@dataclass(frozen=True, slots=True)
class SplitAnswer:
    """Answer to the SplitRequest of that attempt and sequence: the number of the split, NO_SPLIT when none is left."""

    attempt_id: ExecutionAttemptId
    sequence: int
    split: int


@dataclass(frozen=True, slots=True)
class AnswerSplits:
    """Splits that are durably those of these attempts (R12)."""

    job_id: JobId
    epoch: int
    answers: tuple[SplitAnswer, ...]


@dataclass(frozen=True, slots=True)
class EndJob:
    """The job is over (R16): end its attempts, free its slots, drop its partitions, reports and directory.

    `keeps_outputs`: the outputs of finished attempts below `ctx.output_path()` stay (R28).
    """

    job_id: JobId
    epoch: int
    keeps_outputs: bool = False


# --- up: TaskManager -> JobMaster process -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """One allocated slot, offered to its job. `profile` is the one it was requested with."""

    allocation_id: AllocationId
    slot_index: int
    profile: ResourceProfile = DEFAULT_PROFILE


@dataclass(frozen=True, slots=True)
class OfferSlots:
    """Slots that the ResourceManager allocated for this job on this TaskManager.

    `task_manager_id` is the resource id of the TaskManager, which the job's history shows.
    """

    job_id: JobId
    epoch: int
    offers: tuple[SlotOffer, ...]
    task_manager_id: str = ""


@dataclass(frozen=True, slots=True)
class HeldAttempt:
    """An attempt that its TaskManager knows.

    It waits (DEPLOYING), runs (RUNNING) or is being cancelled (CANCELING) in the slot of `allocation_id`. Or it has
    ended in `state`, and its report, which is not acknowledged, follows. `ordinal` -1: it was never deployed here.
    `deployed_millis` is the deployment by its first owner's clock, `running_millis` the start by the TaskManager's; 0
    is unknown. `hold`: the operation for which its query is held, or is about to be; "" for none.
    """

    attempt_id: ExecutionAttemptId
    ordinal: int
    state: ExecutionState
    allocation_id: AllocationId | None
    deployed_millis: int = 0
    running_millis: int = 0
    hold: str = ""


@dataclass(frozen=True, slots=True)
class JobCensus:
    """Everything a TaskManager has of a job (R6): the first message about it on a stream, if there is anything (R11).

    `slots` are the ACTIVE ones; the TaskManager offers others again. A large census comes in parts, the last of which
    `is_complete`. `is_moving`: this TaskManager moves or has moved the job's outputs, or will with new contact (R27).
    """

    job_id: JobId
    epoch: int
    slots: tuple[SlotOffer, ...]
    attempts: tuple[HeldAttempt, ...]
    is_complete: bool
    task_manager_id: str = ""
    is_moving: bool = False


@dataclass(frozen=True, slots=True)
class TaskReports:
    """State changes of attempts, in the order in which they happened."""

    job_id: JobId
    epoch: int
    reports: tuple[TaskExecutionReport, ...]


@dataclass(frozen=True, slots=True)
class TaskProgresses:
    """Progress of running attempts; only the latest of each matters."""

    job_id: JobId
    epoch: int
    progresses: tuple[TaskProgress, ...]


@dataclass(frozen=True, slots=True)
class SlotsLost:
    """Allocations that this TaskManager has lost without an order of the job."""

    job_id: JobId
    epoch: int
    allocations: tuple[AllocationId, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SlotsDraining:
    """Slots that take no more attempts: running attempts go on, new deployments are refused uncounted.

    The job's owner frees each as soon as it is idle. A draining TaskManager sends this again on every stream.
    """

    job_id: JobId
    epoch: int
    allocations: tuple[AllocationId, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class OutputsCommitted:
    """Answer to the CommitOutputs of that epoch and order; `failure` is set when the move failed for good."""

    job_id: JobId
    epoch: int
    vertex_id: VertexId
    failure: FailureInfo | None
    order: int = 0


@dataclass(frozen=True, slots=True)
class CommitProgress:
    """Progress of the move of that epoch and order. `problem`: why it makes no progress, "" if it does."""

    job_id: JobId
    epoch: int
    order: int
    files_moved: int
    files_total: int
    problem: str


@dataclass(frozen=True, slots=True)
class CheckpointAnswer:
    """The position of one attempt's query. `declined`: why there is none, "" where there is one.

    A script has none, but `queries`: those that it has started, by their names. There may be none of them.
    """

    attempt_id: ExecutionAttemptId
    position: StreamPosition | None
    declined: str = ""
    queries: tuple[StreamPosition, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointAnswered:
    """Answers to the TriggerCheckpoint of that checkpoint."""

    job_id: JobId
    epoch: int
    checkpoint_id: int
    answers: tuple[CheckpointAnswer, ...]


@dataclass(frozen=True, slots=True)
class SplitRequest:
    """An attempt wants its next split, having had `sequence` of them."""

    attempt_id: ExecutionAttemptId
    sequence: int


@dataclass(frozen=True, slots=True)
class SplitsRequested:
    """Attempts want their next splits. Repeated on each new stream until it is answered (R12)."""

    job_id: JobId
    epoch: int
    requests: tuple[SplitRequest, ...]


@dataclass(frozen=True, slots=True)
class SavepointAnswered:
    """Answers to the TriggerSavepoint of that operation: as of which batches the queries are copied, and durable."""

    job_id: JobId
    epoch: int
    operation: str
    answers: tuple[CheckpointAnswer, ...]


@dataclass(frozen=True, slots=True)
class SavepointFinished:
    """Answer to the FinishSavepoint of that operation. `failure`: why the savepoint is not there, "" when it is.

    `size_bytes`: of its files.
    """

    job_id: JobId
    epoch: int
    operation: str
    failure: str = ""
    size_bytes: int = 0


# --- both ways --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sent every heartbeat.interval when a stream is otherwise silent; any message counts as one."""

    sequence: int


JobMasterToTaskManager = (
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
    | Heartbeat
)

JobMessage = (
    JobCensus
    | OfferSlots
    | TaskReports
    | TaskProgresses
    | SlotsLost
    | SlotsDraining
    | OutputsCommitted
    | CommitProgress
    | CheckpointAnswered
    | SavepointAnswered
    | SavepointFinished
    | SplitsRequested
)
"""Messages of a TaskManager about one job, under the epoch of the job's owner."""

TaskManagerToJobMaster = JobMessage | Heartbeat
