"""The values behind the keys of protocol.md 1, as frozen records with a versioned JSON form."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.ids import Incarnation, JobId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.shares import DEFAULT_QUEUE
from runtime.common.states import JobStatus
from runtime.gateways.checkpoints import QueryPosition
from runtime.gateways.operations import SavepointDisposal, StreamOperation
from runtime.gateways.overview import Takeover


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes that are inline up to 32 KiB, else a pointer to a synced immutable object, always with digest."""

    sha256: str
    inline: bytes
    object_key: str


@dataclass(frozen=True, slots=True)
class GraphRecord:
    """`jobs/<id>/graph`. `submitter` and `namespace` say whose job it is (R48); without a submitter: the admin's.

    `trace`: the context of the job's trace, "" where nobody is told traces. `program_run`: as in SubmitJobRequest.
    `checkpointing`: what holds for a streaming job under every owner; None for other jobs, and in earlier releases.
    `checkpoint_name`: that of the graph (R59). `savepoint`: the path that the job is started from, "" for none (R62).
    `queue` and `priority`: where it waits for slots (D-128).
    """

    graph: Payload
    name: str
    submit_millis: int
    client: str
    submitter: str = ""
    namespace: str = DEFAULT_NAMESPACE
    trace: str = ""
    program_run: str = ""
    checkpointing: CheckpointSettings | None = None
    checkpoint_name: str = ""
    savepoint: str = ""
    queue: str = DEFAULT_QUEUE
    priority: int = 0


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """`jobs/<id>/owner`; the epoch E is the key's mod_revision. `takeovers`: earlier changes of owner, oldest first."""

    incarnation: Incarnation
    address: str
    takeovers: tuple[Takeover, ...] = ()


@dataclass(frozen=True, slots=True)
class EventsRecord:
    """`jobs/<id>/events/<n>`: one batch."""

    events: Payload


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """`jobs/<id>/checkpoints/<n>`: a completed checkpoint of a streaming job."""

    checkpoint_id: int
    trigger_millis: int
    completed_millis: int
    positions: tuple[QueryPosition, ...]


@dataclass(frozen=True, slots=True)
class LastCheckpointRecord:
    """`jobs/<id>/checkpointed`: the number of the latest checkpoint, which outlives its record (R33)."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """`operations/<id>/<trigger id>`: a checkpoint on request, a savepoint or a stop of a streaming job (R61)."""

    operation: StreamOperation


@dataclass(frozen=True, slots=True)
class DisposalRecord:
    """`disposals/<trigger id>`: a savepoint that is to be deleted, or was (R62)."""

    disposal: SavepointDisposal


@dataclass(frozen=True, slots=True)
class ResultRecord:
    """`jobs/<id>/result`: Flink's dirty result. `summary` is the last JobSummary as JSON."""

    status: JobStatus
    summary: bytes
    archive: Payload


@dataclass(frozen=True, slots=True)
class DoneRecord:
    """`done/<id>`: Flink's clean result."""

    graph_digest: str
    status: JobStatus
    summary: bytes
    archive_key: str
    archive_offset: int
    archive_size_bytes: int
    archive_sha256: str


_NOWHERE = Incarnation("")


@dataclass(frozen=True, slots=True)
class WantedRecord:
    """`jobs/<id>/wanted`: a wish, to cancel the job or to move it.

    `move_to`: the process that is to run the job instead of its owner of `move_epoch`; void under any other epoch.
    `reason`: why the cluster itself wishes it, "" for a wish of a client.
    """

    wants_cancel: bool
    client: str
    move_to: Incarnation = _NOWHERE
    move_epoch: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ClientRecord:
    """`jobs/<id>/client`: until when the job's client has promised to be back, in milliseconds since 1970; 0: never."""

    expires_millis: int


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """`leader/jobmanager/<lease>`; the leader's epoch is the key's create revision. `metrics_address`: where the
    process serves its metrics (D-110), "" where it does not."""

    incarnation: Incarnation
    address: str
    rest_address: str
    metrics_address: str = ""


DRAINING = "draining"
"""State of a JobMaster process that takes no jobs."""


@dataclass(frozen=True, slots=True)
class JobMasterRecord:
    """`jobmasters/<incarnation>`, under the process's lease. `cpu_fraction`: 1.0 is one core."""

    incarnation: Incarnation
    address: str
    capacity: int
    jobs: int
    state: str
    version: str
    cpu_fraction: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TaskManagerRecord:
    """`taskmanagers/<incarnation>`: no lease (R13)."""

    incarnation: Incarnation
    task_manager_id: str
    address: str
    guard_address: str
    boot_id: str
    slots: int


@dataclass(frozen=True, slots=True)
class GuardRecord:
    """`taskmanagers/<incarnation>/guard`: a leader uses this TaskManager, and has reached its guard or not (R13).

    Without this record no slot of the TaskManager was ever given to a job.
    """

    is_reached: bool


@dataclass(frozen=True, slots=True)
class FenceRecord:
    """`taskmanagers/<incarnation>/fences/<job>`: attempts of epochs up to `epoch` are to be stopped there (R14).

    The fence's revision is the key's mod_revision, until the TaskManager's confirmation names it: 0 = not confirmed.
    A fence that was lifted stays as a mark, of epoch 0: a late repeat of the fence could not tell an absent key from
    one that was never written (R33).
    """

    epoch: int
    confirmed_revision: int = 0
    is_lifted: bool = False


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A principal's token as stored: its SHA-256, and its validity in milliseconds since 1970 (end 0: unlimited)."""

    sha256: str
    created_millis: int
    expires_millis: int


@dataclass(frozen=True, slots=True)
class PrincipalRecord:
    """`principals/<name>` (R48). `tokens`: the valid ones, newest first. `certificate`: the name in client certificates
    that sign in as this principal, "" for none. With neither the principal is revoked, and stays as a mark (R33)."""

    name: str
    role: str
    namespace: str
    tokens: tuple[StoredToken, ...]
    certificate: str = ""

    @property
    def is_revoked(self) -> bool:
        """True when neither a token nor a certificate signs in as this principal."""
        return not self.tokens and not self.certificate


@dataclass(frozen=True, slots=True)
class JarRecord:
    """`jars/<id>` (R54): a program that was uploaded to be run. `key`: the object with its bytes.

    `entries`: what may be run in it, the first by default; `uploader`: the submitter of its jobs, "" for the admin.
    """

    jar_id: str
    name: str
    key: str
    size_bytes: int
    uploaded_millis: int
    namespace: str
    uploader: str
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LastJarRecord:
    """`last-jar`: the program that was uploaded last."""

    jar_id: str


@dataclass(frozen=True, slots=True)
class ClusterEventRecord:
    """`cluster-events/<term>-<n>`: an event of the cluster (D-114). Fields as in ClusterEvent.

    `kind`: its value, which a later release may have added.
    """

    id: str
    millis: int
    kind: str
    message: str
    subject: str = ""
    job_id: str = ""
    namespace: str = ""
    count: int = 0


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result as read: the record, None when it cannot be read, and the revision at which it was written."""

    record: ResultRecord | None
    revision: int


class JobRecordKind(Enum):
    """The records of a job that are read one by one, by the last part of their keys."""

    GRAPH = "graph"
    OWNER = "owner"
    WANTED = "wanted"
    CLIENT = "client"
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class StoredJob:
    """All records of a job that is not cleaned, read at one revision.

    `problem` names the key of a record that cannot be read, "" when there is none; that record is None (a graph:
    empty). Such a job fails with that reason; it never stops a process. `unreadable`: which record that is, the first
    of several; None when there is none, or the graph is missing.
    """

    job_id: JobId
    graph: GraphRecord
    graph_revision: int
    owner: OwnerRecord | None
    epoch: int
    wanted: WantedRecord | None
    events: int
    result: ResultRecord | None
    problem: str = ""
    client: ClientRecord | None = None
    unreadable: JobRecordKind | None = None
