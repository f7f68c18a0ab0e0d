"""The Dispatcher to the outside (DispatcherGateway), and the stream between it and a JobMaster process.

A JobMaster process dials the leader. Its first message is RegisterJobMaster, answered by
JobMasterRegistered. Requirements of all its jobs and their status pushes travel on the same stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from runtime.common.ids import ClusterUuid, Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.gateways.job_master import Heartbeat
from runtime.gateways.resource_manager import JobRequirements, RegistrationRefused


class SubmitOutcome(Enum):
    """How a submit ended (semantics.md, Identity)."""

    ACCEPTED = "ACCEPTED"
    ALREADY_SUBMITTED = "ALREADY_SUBMITTED"


@dataclass(frozen=True, slots=True)
class SubmitJobRequest:
    """`graph` is the JobGraph's canonical JSON, `digest` its sha256 in hex. The client chose the id.

    `submitter` and `namespace` are those of who has signed in (R48), "" the admin and the default one.
    """

    job_id: JobId
    graph: bytes
    digest: str
    client: str
    submitter: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class SubmitJobResponse:
    """The job is durable (or was already); `status` is what is known of it now."""

    outcome: SubmitOutcome
    status: JobStatus


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Names one job."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Empty:
    """Nothing to say."""


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """Subtasks by state."""

    created: int = 0
    scheduled: int = 0
    deploying: int = 0
    initializing: int = 0
    running: int = 0
    finished: int = 0
    canceling: int = 0
    canceled: int = 0
    failed: int = 0
    reconciling: int = 0

    @property
    def total(self) -> int:
        """All subtasks."""
        active = self.created + self.scheduled + self.deploying + self.initializing + self.running + self.canceling
        return active + self.finished + self.canceled + self.failed + self.reconciling


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One line of /jobs/overview. Pushed by the owner on every change, so lists never fan out.

    `sequence` rises with every change of this job under one epoch; (epoch, sequence) orders summaries.
    `pending_reason` says what a waiting job waits for. `end_millis` is -1 while not terminal. `is_committing`: the
    outcome is decided, and the outputs become visible: a cancel comes too late (R26). `keeps_outputs`: it has ended
    after that without its outputs, or nobody knows: what its tasks have written is not deleted (R28). `submitter` and
    `namespace` are what is stored with the graph: the leader fills them in, whatever an owner says (R48).
    """

    job_id: JobId
    name: str
    status: JobStatus
    epoch: int
    sequence: int
    start_millis: int
    end_millis: int
    last_modification_millis: int
    tasks: TaskCounts
    pending_reason: str
    is_committing: bool = False
    keeps_outputs: bool = False
    submitter: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class JobDetailsResponse:
    """The execution graph as JSON: `runtime.executiongraph.archived.ArchivedExecutionGraph`."""

    archived_graph: bytes


JOB_DETAILS_SOURCE = "job-details"
"""Chunk source of a JobMaster process: job id -> the same bytes, for a graph above the size of a message."""


class DispatcherGateway(Protocol):
    """What a Dispatcher answers, in the JobManager and (for its own jobs) in a JobMaster process."""

    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        """Make the job durable. Idempotent by (job id, digest); ConflictError for another digest."""

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        """Make the wish durable and forward it. Idempotent; ConflictError if the job ended otherwise."""

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        """The whole execution graph of a job, live or archived. NotFoundError if unknown."""


# --- stream: JobMaster process -> JobManager --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterJobMaster:
    """A JobMaster process introduces itself."""

    incarnation: Incarnation
    address: str
    version: str
    protocol_version: int
    capacity: int
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class JobInventoryEntry:
    """One job that this process runs or holds."""

    job_id: JobId
    epoch: int
    status: JobStatus


@dataclass(frozen=True, slots=True)
class JobMasterHeartbeat:
    """Complete inventory (R5) and load of a process. `assignment` is the highest epoch it has been sent.

    `is_draining`: it takes no jobs and wants others to take those that it has.
    """

    inventory: tuple[JobInventoryEntry, ...]
    assignment: int
    cpu_fraction: float
    memory_bytes: int
    is_draining: bool = False


@dataclass(frozen=True, slots=True)
class JobSummaries:
    """Status pushes, coalesced."""

    summaries: tuple[JobSummary, ...]


@dataclass(frozen=True, slots=True)
class DeclareRequirements:
    """Requirements of any number of jobs of this process, for the ResourceManager."""

    jobs: tuple[JobRequirements, ...]


@dataclass(frozen=True, slots=True)
class JobAssignmentRefused:
    """The process cannot take the job (full, shutting down, graph unreadable)."""

    job_id: JobId
    epoch: int
    reason: str
    is_permanent: bool


JobMasterToDispatcher = (
    RegisterJobMaster | JobMasterHeartbeat | JobSummaries | DeclareRequirements | JobAssignmentRefused
)


# --- stream: JobManager -> JobMaster process --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobMasterRegistered:
    """The leader accepts; `epoch` is its term."""

    cluster: ClusterUuid
    epoch: int
    blob_address: str
    heartbeat_interval: float
    heartbeat_timeout: float


@dataclass(frozen=True, slots=True)
class AssignJob:
    """Run this job: the owner key names you, its revision is `epoch`. Idempotent.

    `graph` is the stored graph record's inline bytes, or b"" when `graph_key` points into storage.
    `is_fresh`: there was no owner before this epoch (R6), so nothing of this job can be running. `namespace`: whose
    secrets its tasks may ask for; "" of older leaders: the default one.
    """

    job_id: JobId
    epoch: int
    is_fresh: bool
    graph: bytes
    graph_key: str
    digest: str
    submit_millis: int
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class CancelJobs:
    """These jobs' `wanted` key says cancel, and why if no person wants it."""

    jobs: tuple[JobId, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DropJobs:
    """Jobs that this process has no business with (any more): stop them without touching durable state."""

    jobs: tuple[JobInventoryEntry, ...]


@dataclass(frozen=True, slots=True)
class NotifyResources:
    """Why a job's requirements are not fulfilled, "" when they are."""

    job_id: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class DrainJobMaster:
    """Begin, or end, to drain. The next heartbeat says that it was heard."""

    is_draining: bool


@dataclass(frozen=True, slots=True)
class JobsNotTaken:
    """You drain, and nobody can take your jobs."""

    reason: str


DispatcherToJobMaster = (
    JobMasterRegistered
    | RegistrationRefused
    | AssignJob
    | CancelJobs
    | DropJobs
    | NotifyResources
    | DrainJobMaster
    | JobsNotTaken
    | Heartbeat
)
