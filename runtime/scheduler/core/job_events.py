"""The durable events of a job (R10): what its next owner must know before it decides anything.

The stored form is JSON with a version. Bytes in events are JSON texts themselves, so they are stored as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from runtime.common.accumulators import UserAccumulator
from runtime.common.errors import InvalidInputError
from runtime.common.exchange import InputShare
from runtime.common.ids import ExecutionAttemptId, PartitionId, VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedException
from runtime.executiongraph.archived_rescales import Rescale
from runtime.executiongraph.core.execution import TaskManagerLocation
from runtime.gateways.rescales import VertexBounds
from runtime.gateways.spark_work import SparkWork
from runtime.gateways.task import OutputDirectory, PartitionDescriptor, TaskMetrics

EVENTS_SCHEMA_VERSION = 8
"""1 had attempts and releases only, 2 neither starts nor whose failures were handled, 3 neither the mode of outputs nor
their commit, 4 no batches of queries, 5 no parallelism that was chosen, 6 neither speculative attempts nor rescales, 7
no splits on demand; every version is read."""


@dataclass(frozen=True, slots=True)
class JobStarted:
    """The execution timeout of the job runs from here on, also under later owners."""

    at_millis: int
    type: Literal["job-started"] = "job-started"


@dataclass(frozen=True, slots=True)
class AttemptFinished:
    """An attempt is accepted: its partitions may be read, its outputs moved, its report acknowledged.

    `accumulators`: what it has counted, for the result (D-116); earlier releases counted nothing.
    """

    attempt_id: ExecutionAttemptId
    ordinal: int
    location: TaskManagerLocation
    timestamps: Mapping[ExecutionState, int]
    value: bytes
    partitions: tuple[PartitionDescriptor, ...]
    outputs: tuple[OutputDirectory, ...]
    metrics: TaskMetrics
    type: Literal["attempt-finished"] = "attempt-finished"
    accumulators: tuple[UserAccumulator, ...] = ()
    spark_work: SparkWork | None = None


@dataclass(frozen=True, slots=True)
class PartitionsReleased:
    """No consumer needs these partitions any more; their files may be deleted."""

    partitions: tuple[PartitionId, ...]
    type: Literal["partitions-released"] = "partitions-released"


@dataclass(frozen=True, slots=True)
class FailureHandled:
    """A failure after which the job goes on, as the exception history shows it.

    `is_concurrent`: it happened while the one before was handled. `backoff_seconds` is set when the restart strategy
    counts it: the pause that follows. `attempts` are those that it ended: until they are reset, what they report again
    is this failure. `deployed_millis` tells of each of them when it was deployed, -1 before.
    """

    exception: ArchivedException
    at_millis: int
    is_concurrent: bool
    backoff_seconds: float | None
    type: Literal["failure-handled"] = "failure-handled"
    attempts: tuple[ExecutionAttemptId, ...] = ()
    deployed_millis: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """Consumers could not read these partitions: their producers run again, and it counts against them."""

    partitions: tuple[PartitionId, ...]
    type: Literal["partitions-lost"] = "partitions-lost"


@dataclass(frozen=True, slots=True)
class SubtasksReset:
    """Subtasks of one vertex run again, finished ones included. `ordinals` are those of the new attempts.

    `unbegun` are those of them of which no attempt has begun yet (D-067).
    """

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    ordinals: tuple[int, ...]
    type: Literal["subtasks-reset"] = "subtasks-reset"
    unbegun: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OutputsCommitting:
    """Everything has finished and is accepted: the outputs become visible, and the job can only finish (R26)."""

    type: Literal["outputs-committing"] = "outputs-committing"


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """A subtask of a streaming query has committed a batch, its first one as far as is durable: no later attempt of it
    begins anew (R59). Higher numbers are in the records of checkpoints.
    """

    vertex_id: VertexId
    subtask_index: int
    batch: int
    type: Literal["batch-committed"] = "batch-committed"


@dataclass(frozen=True, slots=True)
class ParallelismDecided:
    """A vertex has a subtask for each of these shares, under each owner (R66). `reason` tells users why."""

    vertex_id: VertexId
    shares: tuple[InputShare, ...]
    broadcast: tuple[int, ...]
    reason: str
    type: Literal["parallelism-decided"] = "parallelism-decided"


@dataclass(frozen=True, slots=True)
class SpeculativeAttempts:
    """Subtasks of a vertex get attempts with these numbers beside their current ones (R67)."""

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    ordinals: tuple[int, ...]
    type: Literal["speculative-attempts"] = "speculative-attempts"


@dataclass(frozen=True, slots=True)
class HandedSplit:
    """An attempt that has had `sequence` splits has this one, by its number in the list, from now on."""

    attempt_id: ExecutionAttemptId
    sequence: int
    split: int


@dataclass(frozen=True, slots=True)
class SplitsHandedOut:
    """Attempts of a source have these splits beside those that they had, under each owner (R12).

    An attempt that had one of them before counts no more.
    """

    vertex_id: VertexId
    handouts: tuple[HandedSplit, ...]
    type: Literal["splits-handed-out"] = "splits-handed-out"


@dataclass(frozen=True, slots=True)
class RequirementsChanged:
    """A client has given these vertices other bounds, which hold under each owner (R69)."""

    bounds: tuple[VertexBounds, ...]
    type: Literal["requirements-changed"] = "requirements-changed"


@dataclass(frozen=True, slots=True)
class JobRescaled:
    """The vertices of a rescale have another parallelism, under each owner; nothing of them runs (R68).

    `ordinals`: of the attempts of their subtasks, in the order of the rescale's vertices. `unbegun`: vertices of which
    no attempt has begun yet.
    """

    rescale: Rescale
    ordinals: tuple[tuple[int, ...], ...]
    unbegun: tuple[VertexId, ...] = ()
    type: Literal["job-rescaled"] = "job-rescaled"


@dataclass(frozen=True, slots=True)
class RescaleEnded:
    """How a rescale has ended, for people."""

    rescale: Rescale
    type: Literal["rescale-ended"] = "rescale-ended"


JobEvent = (
    JobStarted
    | AttemptFinished
    | PartitionsReleased
    | FailureHandled
    | PartitionsLost
    | SubtasksReset
    | OutputsCommitting
    | BatchCommitted
    | ParallelismDecided
    | SpeculativeAttempts
    | SplitsHandedOut
    | RequirementsChanged
    | JobRescaled
    | RescaleEnded
)


@dataclass(frozen=True, slots=True)
class JobEventBatch:
    """What one events transaction writes."""

    version: int
    events: tuple[Annotated[JobEvent, Field(discriminator="type")], ...]


_ADAPTER: TypeAdapter[JobEventBatch] = TypeAdapter(JobEventBatch)


def encode_events(events: tuple[JobEvent, ...]) -> bytes:
    """The stored form of one batch."""
    return _ADAPTER.dump_json(JobEventBatch(EVENTS_SCHEMA_VERSION, events))


def decode_events(data: bytes) -> tuple[JobEvent, ...]:
    """The inverse of `encode_events`. Raises InvalidInputError for anything else."""
    try:
        batch = _ADAPTER.validate_json(data)
    except ValidationError as error:
        message = "cannot read a batch of job events"
        raise InvalidInputError(message, tuple(str(one["loc"]) for one in error.errors())) from error
    if not 1 <= batch.version <= EVENTS_SCHEMA_VERSION:
        message = f"job events of version {batch.version}, this version reads up to {EVENTS_SCHEMA_VERSION}"
        raise InvalidInputError(message)
    return batch.events
