"""What a client asks of the state of a streaming job, and what is stored of it: a checkpoint, a savepoint, a stop."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.common.ids import JobId

TRIGGER_ID_LENGTH_MAX = 64
TARGET_LENGTH_MAX = 1024


class OperationKind(Enum):
    """CHECKPOINT: the last batches of all queries are recorded. SAVEPOINT: they are copied too. STOP: the job finishes
    with it."""

    CHECKPOINT = "CHECKPOINT"
    SAVEPOINT = "SAVEPOINT"
    STOP = "STOP"


class OperationState(Enum):
    """IN_PROGRESS until its outcome is durable."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class TriggerOperation:
    """`trigger_id` is the client's: the same one asks once. `target`: the directory below which a savepoint is made.

    `drains`: a STOP whose queries first read what is there.
    """

    job_id: JobId
    trigger_id: str
    kind: OperationKind
    target: str = ""
    drains: bool = False


@dataclass(frozen=True, slots=True)
class StreamOperation:
    """An operation as it is stored. `checkpoint_id`: its number among the job's checkpoints, which no other one has.

    `directory`: of the savepoint, "" for a checkpoint. `cause`: why it has failed. Times are milliseconds since 1970.
    `queries`: how many were asked for a savepoint that has ended, `answered` of how many there was a copy then.
    `size_bytes`: of the files of a completed savepoint.
    """

    trigger_id: str
    kind: OperationKind
    state: OperationState
    checkpoint_id: int
    trigger_millis: int
    directory: str = ""
    drains: bool = False
    ended_millis: int = 0
    cause: str = ""
    queries: int = 0
    answered: int = 0
    size_bytes: int = 0

    def is_answer_to(self, wanted: TriggerOperation) -> bool:
        """True if `wanted`, which has the same trigger, asks for this operation and for no other."""
        is_there = not self.directory or self.directory.rpartition("/")[0] == wanted.target.rstrip("/")
        return is_there and (self.kind, self.drains) == (wanted.kind, wanted.drains)


@dataclass(frozen=True, slots=True)
class SavepointDisposal:
    """A wish to delete a savepoint, as it is stored. `path`: of the savepoint; `below`: where it has to lie, "" for
    anywhere. Times are milliseconds since 1970; `cause`: why it has failed.

    `submitter` and `namespace`: whose savepoints may go, "" for everybody's (R48). `job_id`: whose savepoint it is, ""
    until it was found and may go: nothing is deleted before that is stored (R62).
    """

    trigger_id: str
    path: str
    state: OperationState
    trigger_millis: int
    below: str = ""
    submitter: str = ""
    namespace: str = ""
    job_id: str = ""
    ended_millis: int = 0
    cause: str = ""
