"""Flink's bodies for /jobs/:id/vertices: vertices, subtasks, attempts and their aggregates."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal, get_args

from runtime.common.ids import VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.archived import ArchivedExecution, ArchivedSubtask, ArchivedVertex
from runtime.rest.bodies.job_bodies import duration, io_metrics
from runtime.rest.bodies.schema import vertices as schema
from runtime.rest.bodies.stream_bodies import stream_queries

_Metric = Literal[
    "read-bytes",
    "write-bytes",
    "read-records",
    "write-records",
    "accumulated-busy-time",
    "accumulated-idle-time",
    "accumulated-backpressured-time",
]
_METRICS: tuple[_Metric, ...] = get_args(_Metric)
_LIVE_STATES = ("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING")


def vertex_details(vertex: ArchivedVertex, now: int) -> schema.Vertex:
    """The body of GET /jobs/:id/vertices/:vid."""
    subtasks = [subtask_details(one, now) for one in vertex.subtasks]
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "now": now,
        "subtasks": subtasks,
        "aggregated": _aggregated(subtasks),
    }


def _aggregated(subtasks: Sequence[schema.Attempt]) -> schema.Aggregated:
    return {
        "metrics": {name: _statistics([int(one["metrics"][name]) for one in subtasks]) for name in _METRICS},
        "status-duration": {
            name: _statistics([one["status-duration"].get(name, 0) for one in subtasks]) for name in _LIVE_STATES
        },
    }


def subtask_details(subtask: ArchivedSubtask, now: int) -> schema.Attempt:
    """The current attempt, the element of `subtasks`, with those that run beside it."""
    body = attempt_details(subtask.index, subtask.current, now)
    if subtask.concurrent:
        body["other-concurrent-attempts"] = [attempt_details(subtask.index, one, now) for one in subtask.concurrent]
    return body


def attempt_details(index: int, attempt: ArchivedExecution, now: int) -> schema.Attempt:
    """One attempt, as in /subtasks/:i/attempts/:n."""
    body: schema.Attempt = {
        "subtask": index,
        "status": attempt.state.value,
        "attempt": attempt.attempt,
        "attempt-id": attempt.attempt_id,
        "endpoint": attempt.endpoint,
        "start-time": attempt.start_millis,
        "start_time": attempt.start_millis,
        "end-time": attempt.end_millis,
        "duration": duration(attempt.start_millis, attempt.end_millis, now),
        "metrics": io_metrics(attempt.metrics, is_complete=attempt.is_complete),
        "taskmanager-id": attempt.task_manager_id,
        "status-duration": {state.value: spent for state, spent in attempt.status_durations(now).items()},
        "memory-bytes-peak": attempt.metrics.memory_bytes_peak,
        "slot": attempt.slot_index,
    }
    if attempt.streams:
        body["streams"] = stream_queries(attempt.streams, is_live=not attempt.state.is_terminal)
    return body


def attempts_of_job(vertices: Sequence[ArchivedVertex], now: int) -> schema.AttemptsOfJob:
    """The body of GET /jobs/:id/attempts."""
    return {"now": now, "vertices": [_attempts_of_vertex(one, now) for one in vertices]}


def _attempts_of_vertex(vertex: ArchivedVertex, now: int) -> schema.AttemptsOfVertex:
    attempts: list[schema.TimedAttempt] = [
        {
            **attempt_details(subtask.index, attempt, now),
            "timestamps": {state.value: at for state, at in attempt.timestamps.items()},
        }
        for subtask in vertex.subtasks
        for attempt in subtask.attempts()
    ]
    return {"id": vertex.id, "name": vertex.name, "parallelism": vertex.parallelism, "attempts": attempts}


def subtask_times(vertex: ArchivedVertex, now: int) -> schema.SubtaskTimes:
    """The body of GET /jobs/:id/vertices/:vid/subtasktimes."""
    return {
        "id": vertex.id,
        "name": vertex.name,
        "now": now,
        "subtasks": [_times(subtask, now) for subtask in vertex.subtasks],
    }


def _times(subtask: ArchivedSubtask, now: int) -> schema.TimesOfSubtask:
    timestamps = {state.value: subtask.current.timestamps.get(state, 0) for state in ExecutionState}
    return {
        "subtask": subtask.index,
        "endpoint": subtask.current.endpoint,
        "duration": duration(subtask.current.start_millis, subtask.current.end_millis, now),
        "timestamps": timestamps,
    }


def vertex_task_managers(vertex: ArchivedVertex, now: int) -> schema.VertexTaskManagers:
    """/jobs/:id/vertices/:vid/taskmanagers: the subtasks grouped by where they run."""
    groups: dict[tuple[str, str], list[ArchivedSubtask]] = {}
    for subtask in vertex.subtasks:
        key = (subtask.current.endpoint or "(unassigned)", subtask.current.task_manager_id or "(unassigned)")
        groups.setdefault(key, []).append(subtask)
    rows = [_task_manager(endpoint, name, members, now) for (endpoint, name), members in groups.items()]
    return {"id": vertex.id, "name": vertex.name, "now": now, "taskmanagers": rows}


def _task_manager(endpoint: str, name: str, members: Sequence[ArchivedSubtask], now: int) -> schema.TaskManagerOfVertex:
    group = ArchivedVertex(VertexId(""), name, (), len(members), 0, "", is_exclusive=False, subtasks=tuple(members))
    counts = group.counts()
    start, end = group.start_millis, group.end_millis
    return {
        "endpoint": endpoint,
        "taskmanager-id": name,
        "status": group.state.value,
        "start-time": start,
        "end-time": end,
        "duration": duration(start, end, now),
        "metrics": io_metrics(group.metrics(), is_complete=end >= 0),
        "status-counts": {state.value: counts[state] for state in ExecutionState},
        "aggregated": _aggregated([attempt_details(one.index, one.current, now) for one in members]),
    }


def _statistics(values: Sequence[int]) -> schema.Statistics:
    if not values:
        return {"min": 0, "max": 0, "avg": 0, "sum": 0, "median": 0, "p25": 0, "p75": 0, "p95": 0}
    ordered = sorted(values)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "avg": int(statistics.fmean(ordered)),
        "sum": sum(ordered),
        "median": _percentile(ordered, 50),
        "p25": _percentile(ordered, 25),
        "p75": _percentile(ordered, 75),
        "p95": _percentile(ordered, 95),
    }


def _percentile(ordered: Sequence[int], percent: int) -> int:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
