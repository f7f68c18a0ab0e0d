"""Bodies of flame graphs and back pressure, as Flink's dashboard wants them."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict


class FlameNode(TypedDict):
    """A frame that was seen `value` times, with those that it had called."""

    name: str
    value: int
    children: list[FlameNode]


class FlameGraph(TypedDict):
    """`endTimestamp` -3, and no data: nothing of the vertex runs."""

    endTimestamp: int
    data: NotRequired[FlameNode]


BackPressureOfSubtask = TypedDict(
    "BackPressureOfSubtask",
    {
        "subtask": int,
        "attempt-number": int,
        "backpressureLevel": str,
        "backpressure-level": str,
        "ratio": float,
        "idleRatio": float,
        "busyRatio": float,
    },
)

BackPressure = TypedDict(
    "BackPressure",
    {
        "status": str,
        "backpressureLevel": NotRequired[str],
        "backpressure-level": NotRequired[str],
        "end-timestamp": NotRequired[int],
        "subtasks": NotRequired[list[BackPressureOfSubtask]],
    },
)
"""`status` is "deprecated", and the rest missing, while nothing of the vertex runs."""
