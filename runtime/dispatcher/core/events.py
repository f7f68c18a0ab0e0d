"""The events of a Dispatcher (past participles), and the stored forms of a job that events carry."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.errors import FlinklikeError
from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.shares import DEFAULT_QUEUE
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import (
    JobAssignmentRefused,
    JobMasterHeartbeat,
    JobSummary,
    RegisterJobMaster,
    is_same_run,
)
from runtime.gateways.overview import Takeover
from runtime.highavailability.records import DRAINING, JobMasterRecord

NO_PROCESS = Incarnation("")
"""Stands for "no process" where an owner would be named."""


@dataclass(frozen=True, slots=True)
class JobSource:
    """A job as it was submitted. `graph` is b"" when the stored record points to an object (`graph_key`)."""

    job_id: JobId
    digest: str
    name: str
    graph: bytes
    graph_key: str
    submit_millis: int
    client: str
    submitter: str = ""
    namespace: str = DEFAULT_NAMESPACE
    trace: str = ""
    program_run: str = ""
    checkpoint_name: str = ""
    savepoint: str = ""
    queue: str = DEFAULT_QUEUE
    priority: int = 0

    def is_same(self, other: JobSource) -> bool:
        """The same content, or the same run of a program (R54), of the same submitter (R48)."""
        is_same_job = self.digest == other.digest or is_same_run(self.program_run, other.program_run)
        return is_same_job and self.submitter == other.submitter


@dataclass(frozen=True, slots=True)
class JobOwner:
    """The process that runs a job and the epoch under which it does (E)."""

    incarnation: Incarnation
    address: str
    epoch: int


@dataclass(frozen=True, slots=True)
class RecoveredJob:
    """A stored job, as a new term finds it. `ended` is the summary of a dirty result.

    `graph_revision`: the revision of its graph, 0 if there is none. An owner of that epoch was written with the graph,
    and is the first one; any other owner takes over what an earlier one may have started (R6).
    `move_to`: the process that is wanted to run the job instead of the present owner, "" without such a wish.
    `cancel_reason`: why the cluster wants the job cancelled, "" if a client does. `client_expires_millis`: when the
    client of the job has promised to be back, 0 without a promise.
    """

    source: JobSource
    graph_revision: int
    owner: JobOwner | None
    wants_cancel: bool
    ended: JobSummary | None
    move_to: Incarnation = NO_PROCESS
    cancel_reason: str = ""
    client_expires_millis: int = 0
    takeovers: tuple[Takeover, ...] = ()


# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubmitRequested:
    """A client wants a job to run. `request` names the waiting call."""

    request: int
    source: JobSource


@dataclass(frozen=True, slots=True)
class SubmitStored:
    """The submit transaction succeeded; `epoch` is 0 when it wrote no owner.

    `graph_key` names the object that holds a graph too large for the record, "" when it is inline.
    """

    job_id: JobId
    epoch: int
    graph_key: str


@dataclass(frozen=True, slots=True)
class SubmitFoundStored:
    """The submit transaction found the id taken by a job that is not in memory.

    Either that job is cleaned, and past retention here. Or it is not, and this leader takes it over: the job is this
    leader's own write, whose answer was lost. `digest` is "", as is the rest, if its record cannot be read (R20).
    """

    job_id: JobId
    digest: str
    status: JobStatus
    is_cleaned: bool
    submitter: str = ""
    program_run: str = ""


@dataclass(frozen=True, slots=True)
class SubmitFailed:
    """The submit transaction did not happen."""

    job_id: JobId
    error: FlinklikeError


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """A client wants a job to be cancelled."""

    request: int
    job_id: JobId


@dataclass(frozen=True, slots=True)
class WantedStored:
    """The wish to cancel is durable with that `reason`, or (`is_stored` False) the job has a result already."""

    job_id: JobId
    is_stored: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class EndStored:
    """The end of a job that no process runs is durable, or (`summary` None) the store has something else by now."""

    job_id: JobId
    summary: JobSummary | None


@dataclass(frozen=True, slots=True)
class CancelFailed:
    """The wish to cancel could not be made durable."""

    job_id: JobId
    error: FlinklikeError


@dataclass(frozen=True, slots=True)
class EndFailed:
    """The end of a job that no process runs could not be made durable."""

    job_id: JobId
    error: FlinklikeError


@dataclass(frozen=True, slots=True)
class OwnerStored:
    """The assign transaction succeeded under `epoch`."""

    job_id: JobId
    epoch: int
    takeovers: tuple[Takeover, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnerNotStored:
    """The assign transaction found another owner than expected; `found` is the stored one (None: none)."""

    job_id: JobId
    found: RecoveredJob | None


@dataclass(frozen=True, slots=True)
class JobReloaded:
    """The stored state of a job (None: nothing is stored)."""

    job_id: JobId
    found: RecoveredJob | None


@dataclass(frozen=True, slots=True)
class ProcessKnown:
    """A process is registered in the store; it takes jobs once its stream is there."""

    record: JobMasterRecord

    @property
    def is_draining(self) -> bool:
        """True if the process takes no jobs, as far as the store tells."""
        return self.record.state == DRAINING


@dataclass(frozen=True, slots=True)
class ProcessRegistered:
    """A process has opened a stream to this leader (again)."""

    registration: RegisterJobMaster


@dataclass(frozen=True, slots=True)
class ProcessDisconnected:
    """The stream of a process has ended. The process may live."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class ProcessLost:
    """The lease of a process has ended, and with it its registration in the store."""

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class InventoryReceived:
    """A process has told all that it has of jobs (R5), and its load."""

    incarnation: Incarnation
    heartbeat: JobMasterHeartbeat


@dataclass(frozen=True, slots=True)
class SummariesReceived:
    """Owners pushed the state of jobs."""

    summaries: tuple[JobSummary, ...]


@dataclass(frozen=True, slots=True)
class AssignmentRefused:
    """A process does not run a job: for good (then it may have begun the job), or because it has no room now."""

    incarnation: Incarnation
    refusal: JobAssignmentRefused


@dataclass(frozen=True, slots=True)
class JobsCleaned:
    """The clean transaction of these jobs succeeded."""

    jobs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """A client wants a process to take no jobs any more and give away those that it has, or to take jobs again."""

    request: int
    incarnation: Incarnation
    is_draining: bool


@dataclass(frozen=True, slots=True)
class MoveRequested:
    """A client wants the process `target` to run a job."""

    request: int
    job_id: JobId
    target: Incarnation


@dataclass(frozen=True, slots=True)
class OwnerCutOff:
    """The ResourceManager: the owner under that epoch cannot reach TaskManagers that the job needs (R7)."""

    job_id: JobId
    epoch: int


@dataclass(frozen=True, slots=True)
class MoveWishStored:
    """The wish to move is durable, or (`is_stored` False) the job has a result already."""

    job_id: JobId
    is_stored: bool


@dataclass(frozen=True, slots=True)
class MoveWishFailed:
    """The wish to move could not be made durable."""

    job_id: JobId
    error: FlinklikeError


@dataclass(frozen=True, slots=True)
class HeartbeatRequested:
    """A client promises to be back by `expires_millis`, since 1970; 0: it withdraws its promise."""

    request: int
    job_id: JobId
    expires_millis: int


@dataclass(frozen=True, slots=True)
class PromiseStored:
    """The promise is durable, or (`is_stored` False) the job has a result already."""

    job_id: JobId
    expires_millis: int
    is_stored: bool


@dataclass(frozen=True, slots=True)
class PromiseFailed:
    """The promise could not be made durable."""

    job_id: JobId
    error: FlinklikeError


@dataclass(frozen=True, slots=True)
class ProcessesAdvised:
    """Who starts a JobMaster process for jobs that wait for one, or why none starts (R65)."""

    advice: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time passed. `now_millis` is the wall clock since 1970, `now` the monotonic clock in seconds."""

    now_millis: int = 0
    now: float = 0.0


SubmitEvent = SubmitRequested | SubmitStored | SubmitFoundStored | SubmitFailed
CancelEvent = CancelRequested | WantedStored | CancelFailed
EndEvent = EndStored | EndFailed | JobsCleaned
OwnerEvent = OwnerStored | OwnerNotStored | AssignmentRefused | JobReloaded
ProcessEvent = (
    ProcessKnown | ProcessRegistered | ProcessDisconnected | ProcessLost | InventoryReceived | SummariesReceived
)
MoveEvent = DrainRequested | MoveRequested | OwnerCutOff | MoveWishStored | MoveWishFailed
PromiseEvent = HeartbeatRequested | PromiseStored | PromiseFailed

DispatcherEvent = (
    SubmitEvent
    | CancelEvent
    | EndEvent
    | OwnerEvent
    | ProcessEvent
    | MoveEvent
    | PromiseEvent
    | ProcessesAdvised
    | Ticked
)
