"""Flink's bodies of what users' code has counted (D-116)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.executiongraph.archived import ArchivedExecution, ArchivedExecutionGraph, ArchivedVertex
from runtime.rest.bodies.schema import accumulators as schema

_TYPES: Mapping[AccumulatorKind, str] = {
    AccumulatorKind.COUNTER: "LongCounter",
    AccumulatorKind.GAUGE: "Gauge",
    AccumulatorKind.HISTOGRAM: "Histogram",
}


def job_accumulators(graph: ArchivedExecutionGraph) -> schema.JobAccumulators:
    """The body of GET /jobs/:id/accumulators."""
    return {
        "job-accumulators": [],
        "user-task-accumulators": _infos(graph.accumulators()),
        "serialized-user-task-accumulators": {},
        "left-out": graph.accumulators_left_out,
    }


def vertex_accumulators(vertex: ArchivedVertex) -> schema.VertexAccumulators:
    """The body of GET /jobs/:id/vertices/:vid/accumulators."""
    return {"id": vertex.id, "user-accumulators": _infos(vertex.accumulators)}


def subtasks_accumulators(vertex: ArchivedVertex) -> schema.SubtasksAccumulators:
    """The body of GET /jobs/:id/vertices/:vid/subtasks/accumulators."""
    subtasks: list[schema.AccumulatorsOfSubtask] = [
        {
            "subtask": one.index,
            "attempt": one.current.attempt,
            "endpoint": one.current.endpoint,
            "user-accumulators": _infos(one.current.accumulators),
        }
        for one in vertex.subtasks
    ]
    return {"id": vertex.id, "parallelism": vertex.parallelism, "subtasks": subtasks}


def attempt_accumulators(index: int, attempt: ArchivedExecution) -> schema.AttemptAccumulators:
    """The body of GET .../subtasks/:i/attempts/:n/accumulators."""
    return {
        "subtask": index,
        "attempt": attempt.attempt,
        "id": attempt.attempt_id,
        "user-accumulators": _infos(attempt.accumulators),
    }


def values_by_name(graph: ArchivedExecutionGraph) -> dict[str, schema.AccumulatorValue]:
    """For the job's result. Where vertices use one name for two kinds, the later kind is named, too."""
    found: dict[str, schema.AccumulatorValue] = {}
    for one in graph.accumulators():
        name = one.name if one.name not in found else f"{one.name} ({_TYPES[one.kind]})"
        found[name] = _value(one)
    return found


def _infos(accumulators: Iterable[UserAccumulator]) -> list[schema.UserAccumulatorInfo]:
    return [{"name": one.name, "type": _TYPES[one.kind], "value": json.dumps(_value(one))} for one in accumulators]


def _value(one: UserAccumulator) -> schema.AccumulatorValue:
    if one.kind is AccumulatorKind.COUNTER:
        return one.count
    return {"count": one.count, "sum": one.total, "min": one.least, "max": one.most}
