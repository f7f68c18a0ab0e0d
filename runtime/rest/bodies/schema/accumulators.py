"""Bodies of what users' code has counted, as Flink's clients want them."""

from __future__ import annotations

from typing_extensions import TypedDict


class UserAccumulatorInfo(TypedDict):
    """`value`: a number of a counter, else count, sum, min and max as JSON text."""

    name: str
    type: str
    value: str


JobAccumulators = TypedDict(
    "JobAccumulators",
    {
        "job-accumulators": list[UserAccumulatorInfo],
        "user-task-accumulators": list[UserAccumulatorInfo],
        "serialized-user-task-accumulators": dict[str, str],
        "left-out": int,
    },
)
"""`left-out`: entries of vertices above what one job shows."""

VertexAccumulators = TypedDict("VertexAccumulators", {"id": str, "user-accumulators": list[UserAccumulatorInfo]})

AccumulatorsOfSubtask = TypedDict(
    "AccumulatorsOfSubtask",
    {"subtask": int, "attempt": int, "endpoint": str, "user-accumulators": list[UserAccumulatorInfo]},
)


class SubtasksAccumulators(TypedDict):
    """Of the current attempts."""

    id: str
    parallelism: int
    subtasks: list[AccumulatorsOfSubtask]


AttemptAccumulators = TypedDict(
    "AttemptAccumulators",
    {"subtask": int, "attempt": int, "id": str, "user-accumulators": list[UserAccumulatorInfo]},
)


class Values(TypedDict):
    """What is kept of the values of a gauge, one of each subtask, or of a histogram."""

    count: int
    sum: float
    min: float
    max: float


AccumulatorValue = int | Values
"""An integer of a counter."""
