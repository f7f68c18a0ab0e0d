"""Bodies of /jobs/:id/vertices. Times are milliseconds."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from runtime.rest.bodies.schema.common import CountPerState, IOMetrics, MillisPerState
from runtime.rest.bodies.schema.streams import StreamQuery

Attempt = TypedDict(
    "Attempt",
    {
        "subtask": int,
        "status": str,
        "attempt": int,
        "attempt-id": str,
        "endpoint": str,
        "start-time": int,
        "start_time": int,
        "end-time": int,
        "duration": int,
        "metrics": IOMetrics,
        "taskmanager-id": str,
        "status-duration": dict[str, int],
        "memory-bytes-peak": int,
        "slot": int,
        "streams": NotRequired[list[StreamQuery]],
        "other-concurrent-attempts": NotRequired[list["Attempt"]],
    },
)
"""`streams`: of an attempt that runs streaming queries, or has run some. `other-concurrent-attempts`: of the current
attempt of a subtask, those that run beside it.
"""


class TimedAttempt(Attempt):
    """An attempt with when it entered each state. `memory-bytes-peak` 0, `slot` -1: not known."""

    timestamps: dict[str, int]


class AttemptsOfVertex(TypedDict):
    """All attempts of the subtasks of a vertex."""

    id: str
    name: str
    parallelism: int
    attempts: list[TimedAttempt]


class AttemptsOfJob(TypedDict):
    """All attempts of a job."""

    now: int
    vertices: list[AttemptsOfVertex]


class Statistics(TypedDict):
    """Of one number of all subtasks."""

    min: int
    max: int
    avg: int
    sum: int
    median: int
    p25: int
    p75: int
    p95: int


Aggregated = TypedDict("Aggregated", {"metrics": dict[str, Statistics], "status-duration": dict[str, Statistics]})


class Vertex(TypedDict):
    """A vertex with the current attempts of its subtasks."""

    id: str
    name: str
    parallelism: int
    maxParallelism: int
    now: int
    subtasks: list[Attempt]
    aggregated: Aggregated


class TimesOfSubtask(TypedDict):
    """When the current attempt of a subtask entered each state, 0 for never."""

    subtask: int
    endpoint: str
    duration: int
    timestamps: MillisPerState


class SubtaskTimes(TypedDict):
    """When each subtask entered each state."""

    id: str
    name: str
    now: int
    subtasks: list[TimesOfSubtask]


TaskManagerOfVertex = TypedDict(
    "TaskManagerOfVertex",
    {
        "endpoint": str,
        "taskmanager-id": str,
        "status": str,
        "start-time": int,
        "end-time": int,
        "duration": int,
        "metrics": IOMetrics,
        "status-counts": CountPerState,
        "aggregated": Aggregated,
    },
)


class VertexTaskManagers(TypedDict):
    """The subtasks of a vertex by the TaskManager that runs them."""

    id: str
    name: str
    now: int
    taskmanagers: list[TaskManagerOfVertex]
