"""What happened, as the checkers and the reader of a failure see it: recorded outside of the system."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.shares import JobShare
from runtime.common.states import ExecutionState, JobStatus
from runtime.common.stream_progress import NO_BATCH
from runtime.gateways.operations import OperationState
from runtime.highavailability.kv.key_value_store import Txn, TxnResult, WatchEvent

AWAKE = "wakes"
CUT_OFF = "cannot send to"
FAILED = "has failed"
FROZEN = "is frozen"
KILLED = "is killed"
REACHED = "can send to"
READABLE = "has a record that can be read again"
STARTS = "starts"
STOPPED = "has stopped"
TERMINATED = "is told to stop"
TEMPLATE_KILLED = "has lost its template"
UNREADABLE = "has a record that cannot be read"

Whose = tuple[str, str]
"""The submitter and the namespace of a job."""


def whose(job_id: JobId) -> Whose:
    """Who submits that job."""
    return f"user-{job_id[-1]}", f"team-{job_id[0]}"


def place_of(job_id: JobId) -> JobShare:
    """Where that job waits for slots, in a cluster with queues."""
    return JobShare(f"q{int(job_id[1], 16) % 3}", int(job_id[2], 16) - 8)


@dataclass(frozen=True, slots=True)
class Applied:
    """The store has applied a transaction. `events` are the keys that it changed."""

    txn: Txn
    result: TxnResult
    events: tuple[WatchEvent, ...]


@dataclass(frozen=True, slots=True)
class Expired:
    """A lease has ended, with its keys: its time is over, or somebody has ended it."""

    lease: int
    events: tuple[WatchEvent, ...]
    is_revoked: bool = False


@dataclass(frozen=True, slots=True)
class Sent:
    """A component has put a message on a stream."""

    peer: str
    message: Any


@dataclass(frozen=True, slots=True)
class Received:
    """A component has taken a message from a stream."""

    peer: str
    message: Any


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """User code runs in a slot from now on."""

    attempt_id: ExecutionAttemptId
    slot_index: int
    is_exclusive: bool


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """It runs no more. None: killed. `is_users_last`: by an exclusive failure of its code that is final (R36)."""

    attempt_id: ExecutionAttemptId
    state: ExecutionState | None
    is_users_last: bool = False


@dataclass(frozen=True, slots=True)
class QueryStarted:
    """The streaming query of an attempt works on a directory from now on, until the attempt has ended.

    `behind`: it goes on behind this batch. `ends`: by itself, when all is read.
    """

    attempt_id: ExecutionAttemptId
    directory: str
    behind: int = NO_BATCH
    ends: bool = False


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """A query has committed a batch."""

    attempt_id: ExecutionAttemptId
    directory: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class QueryHeld:
    """The query of an attempt has ended between two batches, and its process waits for the word for `hold`."""

    attempt_id: ExecutionAttemptId
    hold: str


@dataclass(frozen=True, slots=True)
class QueryReleased:
    """It finishes, or goes on, by the word for `hold`. "": it finishes before it begins, as its job is stopped."""

    attempt_id: ExecutionAttemptId
    hold: str
    finishes: bool


@dataclass(frozen=True, slots=True)
class SavepointSeen:
    """What is at a path at the moment at which an operation with that savepoint has become COMPLETED in the store.

    `batches`: the one of each query, by uid and subtask. `problem`: why it is none, or is not whole.
    """

    job_id: JobId
    trigger_id: str
    directory: str
    batches: tuple[tuple[str, int, int], ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Restoring:
    """A client begins to submit a job of so many queries that starts from a savepoint."""

    job_id: JobId
    directory: str
    queries: int = 1


@dataclass(frozen=True, slots=True)
class RestoreRefused:
    """A client was told that a job cannot start from a savepoint, as that is being deleted."""

    job_id: JobId
    directory: str


@dataclass(frozen=True, slots=True)
class SubmitUnreadable:
    """A client was told that its job's id is taken by a job that cannot be read."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Disposing:
    """A client wants a savepoint deleted."""

    trigger_id: str
    directory: str


@dataclass(frozen=True, slots=True)
class DisposalAccepted:
    """It was told that this is accepted."""

    trigger_id: str


@dataclass(frozen=True, slots=True)
class DisposalShown:
    """It was shown what has become of that; None: that there is no such wish."""

    trigger_id: str
    state: OperationState | None


@dataclass(frozen=True, slots=True)
class SavepointTaken:
    """A savepoint is not there any more. `by`: the job that has claimed it, None where the cluster has deleted it."""

    directory: str
    by: JobId | None = None


@dataclass(frozen=True, slots=True)
class OperationAccepted:
    """A client was told that an operation of its job is accepted."""

    job_id: JobId
    trigger_id: str


@dataclass(frozen=True, slots=True)
class OperationShown:
    """A client was shown an operation; None: that there is none."""

    job_id: JobId
    trigger_id: str
    state: OperationState | None


@dataclass(frozen=True, slots=True)
class Submitting:
    """A client sends a job, for the first time or again. `expected` is how the job ends when nobody cancels it, and
    `value` what it returns if it finishes. `speculates`: it asks for second attempts of slow tasks (R67).
    """

    job_id: JobId
    expected: JobStatus
    value: Any = None
    speculates: bool = False


@dataclass(frozen=True, slots=True)
class Returned:
    """A client has got the value of its job, which has finished. None: it is not kept any more."""

    job_id: JobId
    value: Any


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A client was told that its job is accepted, or that its cancellation is."""

    job_id: JobId
    what: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A JobManager has answered a client as the leader. `asked_at`: when it was asked."""

    asked_at: float


@dataclass(frozen=True, slots=True)
class Refused:
    """A client was told that there is no room for its job (507), in answer to all that it has sent."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Cancelling:
    """A client asks for the end of a job."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Shown:
    """A client was shown the state of a job, and whose it is; None: that there is no such job.

    `place`: where it waits for slots, in a cluster with queues.
    """

    job_id: JobId
    status: JobStatus | None
    whose: Whose | None = None
    place: JobShare | None = None


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A driver has started a worker, as it was asked to a moment ago. `slots`: those of all workers from now on."""

    worker_id: str
    asked_at: float
    slots: int
    slots_max: int


@dataclass(frozen=True, slots=True)
class WorkerReleased:
    """A JobManager has told a worker to end: to drain, or at once."""

    worker_id: str
    kills: bool


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """A worker is gone, with its label."""

    worker_id: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What fate does."""

    what: str


@dataclass(frozen=True, slots=True)
class ProcessEvent:
    """A process starts, is ready, or has ended by itself."""

    what: str
    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class BlobDeleted:
    """An object of the storage is gone."""

    key: str


@dataclass(frozen=True, slots=True)
class OutputChanged:
    """A file below the directory that a job writes to is there now with so many bytes; None: it is gone.

    `by_task`: its task wrote it.
    """

    job_id: JobId
    name: str
    size: int | None
    by_task: bool = False


@dataclass(frozen=True, slots=True)
class Damaged:
    """Fate has taken an object of the storage, or spoiled what the store has under a key."""

    key: str


@dataclass(frozen=True, slots=True)
class InContact:
    """The store has answered a TaskManager's read of its own keys."""


Happening = (
    Applied
    | Expired
    | Sent
    | Received
    | AttemptStarted
    | AttemptEnded
    | QueryStarted
    | BatchCommitted
    | QueryHeld
    | QueryReleased
    | SavepointSeen
    | Restoring
    | RestoreRefused
    | SubmitUnreadable
    | Disposing
    | DisposalAccepted
    | DisposalShown
    | SavepointTaken
    | OperationAccepted
    | OperationShown
    | Submitting
    | Returned
    | Acknowledged
    | Refused
    | Answered
    | Cancelling
    | Shown
    | WorkerStarted
    | WorkerReleased
    | WorkerEnded
    | Fault
    | ProcessEvent
    | BlobDeleted
    | OutputChanged
    | Damaged
    | InContact
)


class Record(NamedTuple):
    """Who did what when."""

    at: float
    process: str
    what: Happening


@dataclass
class History:
    """In the order in which it happened."""

    records: list[Record] = field(default_factory=list)
    isolation_seconds: int = 20
    """taskmanager.isolation-timeout of its cluster."""
    witness: Callable[[Applied], Happening | None] | None = None
    """Looks at what the store has applied, at that moment."""

    def add(self, at: float, process: str, what: Happening) -> None:
        """One more."""
        self.records.append(Record(at, process, what))
        if self.witness is not None and isinstance(what, Applied) and (seen := self.witness(what)) is not None:
            self.records.append(Record(at, "witness", seen))

    def digest(self) -> str:
        """Equal for equal histories."""
        text = "\n".join(f"{record.at!r} {record.process} {record.what!r}" for record in self.records)
        return hashlib.sha256(text.encode()).hexdigest()
