"""Flink's bodies of checkpoints on request, savepoints and stops."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

Triggered = TypedDict("Triggered", {"request-id": str})
"""The id under which the operation is asked about: the client's `triggerId`, or a new one."""


class OperationStatus(TypedDict):
    """Whether there is an outcome."""

    id: Literal["IN_PROGRESS", "COMPLETED"]


CauseOfOperation = TypedDict("CauseOfOperation", {"class": str, "stack-trace": str, "serialized-throwable": str})
SavepointOutcome = TypedDict(
    "SavepointOutcome", {"location": NotRequired[str], "failure-cause": NotRequired[CauseOfOperation]}
)


class CheckpointOutcome(TypedDict):
    """The number of the checkpoint, or why there is none."""

    checkpointId: NotRequired[int]
    failureCause: NotRequired[CauseOfOperation]


class SavepointOperation(TypedDict):
    """A savepoint, or a stop."""

    status: OperationStatus
    operation: SavepointOutcome | None


DisposalOutcome = TypedDict("DisposalOutcome", {"failure-cause": NotRequired[CauseOfOperation]})


class DisposalOperation(TypedDict):
    """A savepoint that is deleted: an outcome without a cause says that it is gone."""

    status: OperationStatus
    operation: DisposalOutcome | None


class CheckpointOperation(TypedDict):
    """A checkpoint on request."""

    status: OperationStatus
    operation: CheckpointOutcome | None
