"""The Dispatcher's interface (DispatcherGateway), and its stream with a JobMaster process.

A JobMaster process dials the leader. Its first message is RegisterJobMaster, answered by
JobMasterRegistered. Requirements of all its jobs and their status pushes travel on the same stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from runtime.common.ids import ClusterUuid, Incarnation, JobId
from runtime.common.states import JobStatus, JobType, SchedulerType
from runtime.gateways.job_master import Heartbeat
from runtime.gateways.operations import StreamOperation, TriggerOperation
from runtime.gateways.rescales import RequirementsUpdated, UpdateRequirements
from runtime.gateways.resource_manager import JobRequirements, RegistrationRefused

FAILURE_LENGTH_MAX = 300
LABELS_MAX = 8
LABEL_LENGTH_MAX = 120


def is_same_run(one: str, other: str) -> bool:
    """True if two `program_run` tell of one request (R54). Each is digests between slashes: by the id of the program,
    and by its content, which an upload of the same bytes has too. One in common is enough.
    """
    return bool(set(one.split("/")) & set(other.split("/")) - {""})


class SubmitOutcome(Enum):
    """The outcome of an accepted submit (semantics.md, Identity)."""

    ACCEPTED = "ACCEPTED"
    ALREADY_SUBMITTED = "ALREADY_SUBMITTED"


@dataclass(frozen=True, slots=True)
class SubmitJobRequest:
    """`graph` is the JobGraph's canonical JSON, `digest` its sha256 in hex. The client chose the id.

    `submitter` and `namespace` are those of the principal (R48); "" is the admin, and the default namespace. `trace`:
    the context of the job's trace (`runtime.traces.span.TraceContext`), "" where nobody is told traces. `program_run`:
    the request to run an uploaded program that has made the graph (`is_same_run`), "" for any other job. `queue` and
    `priority`: where the job waits for slots (D-128); "" is the default queue.
    """

    job_id: JobId
    graph: bytes
    digest: str
    client: str
    submitter: str = ""
    namespace: str = ""
    trace: str = ""
    program_run: str = ""
    queue: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class SubmitJobResponse:
    """The job is durable (or was already); `status` is its current one."""

    outcome: SubmitOutcome
    status: JobStatus


@dataclass(frozen=True, slots=True)
class JobRequest:
    """Names one job."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Empty:
    """An answer without content."""


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

    `sequence` rises with every change of this job under one epoch; (epoch, sequence) orders summaries
    of a job that goes on, and its end is later than all of them.
    `pending_reason` says what a waiting job waits for, `pending_kind` its `runtime.common.waiting.WaitingKind` (an
    owner of an earlier release says none). `end_millis` is -1 while not terminal. `is_committing`: the
    outcome is decided and the outputs become visible, so a cancel comes too late (R26). `keeps_outputs`: the job has
    ended after that without its outputs, or its decision is unknown, so no outputs are deleted (R28). `submitter`,
    `namespace`, `trace`, `program_run`, `client`, `queue` and `priority` are stored with the graph; the leader fills
    them in, and ignores those of an owner (R48). `deletes_checkpoints`: it has ended, and TaskManagers delete the
    directories of its streaming queries. `failure`: of a FAILED job the root cause in a line of at most
    FAILURE_LENGTH_MAX characters, `failure_labels` what failure enrichers say of it, `key=value`, at most LABELS_MAX of
    LABEL_LENGTH_MAX characters.
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
    job_type: JobType = JobType.BATCH
    scheduler_type: SchedulerType = SchedulerType.DEFAULT
    trace: str = ""
    program_run: str = ""
    pending_kind: str = ""
    client: str = ""
    deletes_checkpoints: bool = False
    failure: str = ""
    failure_labels: tuple[str, ...] = ()
    queue: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class JobDetailsResponse:
    """The execution graph as JSON: `runtime.executiongraph.archived.ArchivedExecutionGraph`."""

    archived_graph: bytes


JOB_DETAILS_SOURCE = "job-details"
"""Chunk source of a JobMaster process: job id -> the same bytes, for a graph above the size of a message."""


class DispatcherGateway(Protocol):
    """The calls that a Dispatcher answers, in the JobManager and (for its own jobs) in a JobMaster process."""

    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        """Make the job durable. Idempotent by (job id, digest); ConflictError for another digest."""

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        """Make the wish to cancel durable and forward it. Idempotent. ConflictError if the job ended otherwise."""

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        """The whole execution graph of a job, live or archived. Raises NotFoundError for an unknown job."""

    async def request_operation(self, request: TriggerOperation, /) -> StreamOperation:
        """Have the job's owner make a checkpoint or a savepoint, or stop the job. Returns when the wish is durable.

        Idempotent by trigger id. Raises ConflictError where it is refused, UnavailableError while nobody can be asked.
        """

    async def set_requirements(self, request: UpdateRequirements, /) -> RequirementsUpdated:
        """Give vertices of a running job other bounds of their parallelism. Returns when they are durable (R69).

        Raises as `request_operation`.
        """


# --- stream: JobMaster process -> JobManager --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterJobMaster:
    """The first message of a JobMaster process on its stream. `metrics_address`: where it serves its metrics (D-110),
    "" where it does not. `worker_id`: the label of one that a driver has started, "" for others."""

    incarnation: Incarnation
    address: str
    version: str
    protocol_version: int
    capacity: int
    is_draining: bool = False
    metrics_address: str = ""
    worker_id: str = ""


@dataclass(frozen=True, slots=True)
class JobInventoryEntry:
    """One job in the inventory of a process: it runs, or has ended and is not dropped yet."""

    job_id: JobId
    epoch: int
    status: JobStatus


@dataclass(frozen=True, slots=True)
class JobMasterHeartbeat:
    """Complete inventory (R5) and load of a process. `assignment` is the highest epoch it has been sent.

    `is_draining`: the process takes no jobs, and others are to take its jobs over. `loop_lag`: how late its event loop
    was on average since the last one, in seconds.
    """

    inventory: tuple[JobInventoryEntry, ...]
    assignment: int
    cpu_fraction: float
    memory_bytes: int
    is_draining: bool = False
    loop_lag: float = 0.0


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
    """The process refuses an assignment (it is full, shuts down, or cannot read the graph)."""

    job_id: JobId
    epoch: int
    reason: str
    is_permanent: bool


JobMasterMessage = JobMasterHeartbeat | JobSummaries | DeclareRequirements | JobAssignmentRefused
"""What follows the registration."""

JobMasterToDispatcher = RegisterJobMaster | JobMasterMessage


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
    """Order to run a job: the owner key names the receiver, and its revision is `epoch`. Idempotent.

    `graph` is the stored graph record's inline bytes, or b"" when `graph_key` points into storage.
    `is_fresh`: there was no owner before this epoch (R6), so no task of the job can be running. `namespace`: the job's,
    whose secrets its tasks may ask for; "" from older leaders means the default one. `trace`: as in SubmitJobRequest.
    """

    job_id: JobId
    epoch: int
    is_fresh: bool
    graph: bytes
    graph_key: str
    digest: str
    submit_millis: int
    namespace: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class CancelJobs:
    """Order to cancel jobs, whose `wanted` keys say so. `reason`: why, "" when a person wants it."""

    jobs: tuple[JobId, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DropJobs:
    """Order to stop jobs that this process does not own (any more), without a change of durable state."""

    jobs: tuple[JobInventoryEntry, ...]


@dataclass(frozen=True, slots=True)
class NotifyResources:
    """Why a job's requirements are not fulfilled, "" when they are. `kind`: a `runtime.common.waiting.WaitingKind`."""

    job_id: JobId
    reason: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class DrainJobMaster:
    """Order to begin, or end, to drain. The next heartbeat shows that the process has obeyed."""

    is_draining: bool


@dataclass(frozen=True, slots=True)
class JobsNotTaken:
    """Answer to a draining process: no other process can take its jobs."""

    reason: str


DispatcherOrder = AssignJob | CancelJobs | DropJobs | NotifyResources | DrainJobMaster | JobsNotTaken | Heartbeat
"""What follows the answer to the registration."""

DispatcherToJobMaster = JobMasterRegistered | RegistrationRefused | DispatcherOrder
