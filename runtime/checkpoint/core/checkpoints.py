"""What a checkpoint is: the last committed batch of every query of a job, and what is told of one that failed.

Spark's own files in the checkpoint directories are the state; they stay where they are, and a query goes on behind its
last commit whatever is recorded here. The record is the cut through all queries: what `latest` and `restored` show.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.common.ids import ExecutionAttemptId, VertexId
from runtime.gateways.checkpoints import QueryPosition


class CheckpointFailureReason(Enum):
    """Why there is no checkpoint, in the words of Flink's CheckpointFailureReason."""

    NOT_ALL_REQUIRED_TASKS_RUNNING = "Not all required tasks are currently running."
    TASK_FAILURE = "Task has failed."
    CHECKPOINT_DECLINED = "Checkpoint was declined."
    CHECKPOINT_EXPIRED = "Checkpoint expired before completing."
    CHECKPOINT_COORDINATOR_SUSPEND = "Checkpoint Coordinator is suspending."
    CHECKPOINT_COORDINATOR_SHUTDOWN = "CheckpointCoordinator shutdown."

    @property
    def counts(self) -> bool:
        """True if it counts against execution.checkpointing.tolerable-failed-checkpoints, as in Flink."""
        return self in {CheckpointFailureReason.CHECKPOINT_DECLINED, CheckpointFailureReason.CHECKPOINT_EXPIRED}


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A checkpoint that is durable, or that is being made so. Positions are in the order of vertices and subtasks."""

    checkpoint_id: int
    trigger_millis: int
    completed_millis: int
    positions: tuple[QueryPosition, ...]

    @property
    def state_bytes(self) -> int:
        """Of all queries together."""
        return sum(position.state_bytes for position in self.positions)


@dataclass(frozen=True, slots=True)
class FailedCheckpoint:
    """A checkpoint that will not be made. `message` says why, with the words of `reason` first.

    `positions` are of those that had acknowledged it, `missing` are the others: vertex and subtask.
    """

    checkpoint_id: int
    trigger_millis: int
    failed_millis: int
    reason: CheckpointFailureReason
    message: str
    tasks_total: int
    tasks_acknowledged: int
    positions: tuple[QueryPosition, ...] = ()
    missing: tuple[tuple[VertexId, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PendingCheckpoint:
    """A checkpoint under way. `awaited`: attempts that have not acknowledged it."""

    checkpoint_id: int
    trigger_millis: int
    deadline: float
    awaited: frozenset[ExecutionAttemptId]
    positions: tuple[QueryPosition, ...] = ()

    @property
    def tasks_total(self) -> int:
        """How many queries the checkpoint is of."""
        return len(self.awaited) + len(self.positions)
