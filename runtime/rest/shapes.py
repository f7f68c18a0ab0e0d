"""The shapes of all answers: Flink's fields, and ours beside them. The source of /openapi.json; tests compare bodies.

A shape is a type, `[shape]` for a list, `{name: shape}` for an object, `Keyed` for one with the same shape under every
key, `Maybe` for a field that not every answer has, and `None` where anything may stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runtime.common.states import ExecutionState, JobStatus

Shape = Any
"""Python has no way to write the recursion down without a class for each kind."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """An object whose keys are data. `keys` are always there."""

    value: Shape
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Maybe:
    """A field that is left out where it says nothing."""

    value: Shape


def _by(states: Iterable[ExecutionState | JobStatus], value: Shape) -> Keyed:
    return Keyed(value, tuple(state.value for state in states))


ERRORS = {"errors": [str]}
EMPTY: dict[str, Shape] = {}

START = {
    "flinklike-version": str,
    "page": str,
    "overview": str,
    "jobs": str,
    "taskmanagers": str,
    "jobmasters": str,
    "openapi": str,
}
CLUSTER_OVERVIEW = {
    "taskmanagers": int,
    "slots-total": int,
    "slots-available": int,
    "jobs-running": int,
    "jobs-finished": int,
    "jobs-cancelled": int,
    "jobs-failed": int,
    "flink-version": str,
    "flink-commit": str,
    "jobmasters": int,
    "leader": str,
    "delegation-tokens": [{"provider": str, "valid-until": int, "failures": int, "failure": str, "obtained": bool}],
}
PRINCIPAL = {"name": str, "role": str, "namespace": str, "via": str}
_TOKEN = {"created": int, "expires": int}
_PRINCIPAL_RECORD = {
    "name": str,
    "role": str,
    "namespace": str,
    "is-revoked": bool,
    "tokens": [_TOKEN],
    "certificate": str,
    "problem": str,
}
PRINCIPALS = {"principals": [_PRINCIPAL_RECORD]}
NEW_TOKEN = {**_PRINCIPAL_RECORD, "token": str}
DASHBOARD_CONFIG = {
    "refresh-interval": int,
    "timezone-name": str,
    "timezone-offset": int,
    "flink-version": str,
    "flink-revision": str,
    "features": {"web-submit": bool, "web-cancel": bool, "web-rescale": bool, "web-history": bool},
    "high-availability": str,
}
CONFIGURATION = [{"key": str, "value": str}]

_RESOURCE = {
    "cpuCores": float,
    "taskHeapMemory": int,
    "taskOffHeapMemory": int,
    "managedMemory": int,
    "networkMemory": int,
    "extendedResources": Keyed(float),
}
MEMORY_FIELDS = (
    "frameworkHeap",
    "taskHeap",
    "frameworkOffHeap",
    "taskOffHeap",
    "networkMemory",
    "managedMemory",
    "jvmMetaspace",
    "jvmOverhead",
    "totalFlinkMemory",
    "totalProcessMemory",
)
METRIC_FIELDS = (
    "heapUsed",
    "heapCommitted",
    "heapMax",
    "nonHeapUsed",
    "nonHeapCommitted",
    "nonHeapMax",
    "directCount",
    "directUsed",
    "directMax",
    "mappedCount",
    "mappedUsed",
    "mappedMax",
    "nettyShuffleMemorySegmentsAvailable",
    "nettyShuffleMemorySegmentsUsed",
    "nettyShuffleMemorySegmentsTotal",
    "nettyShuffleMemoryAvailable",
    "nettyShuffleMemoryUsed",
    "nettyShuffleMemoryTotal",
)
_TASK_MANAGER = {
    "id": str,
    "path": str,
    "dataPort": int,
    "jmxPort": int,
    "timeSinceLastHeartbeat": int,
    "slotsNumber": int,
    "freeSlots": int,
    "assignedTasks": int,
    "totalResource": _RESOURCE,
    "freeResource": _RESOURCE,
    "hardware": {"cpuCores": int, "physicalMemory": int, "freeMemory": int, "managedMemory": int},
    "memoryConfiguration": dict.fromkeys(MEMORY_FIELDS, int),
    "incarnation": str,
    "version": str,
    "spark": bool,
    "spark-profile": str,
    "spark-master": str,
    "spark-version": str,
    "warm": bool,
    "state": str,
    "problem": str,
    "not-enforced": [str],
    "tenancy": str,
    "tenant": str,
}
TASK_MANAGERS = {"taskmanagers": [_TASK_MANAGER]}
TASK_MANAGER = {
    **_TASK_MANAGER,
    "metrics": {
        **dict.fromkeys(METRIC_FIELDS, int),
        "garbageCollectors": [{"name": str, "count": int, "time": int}],
    },
    "allocatedSlots": [
        {"index": int, "jobId": str, "allocationId": str, "resource": _RESOURCE, "assignedTasks": int},
    ],
}
_JOB_MASTER = {
    "id": str,
    "address": str,
    "state": str,
    "version": str,
    "capacity": int,
    "jobs-running": int,
    "jobs-assigned": int,
    "cpu-fraction": float,
    "memory-bytes": int,
    "last-heartbeat": int,
}
JOB_MASTERS = {"jobmasters": [_JOB_MASTER]}
JOB_MASTER = {**_JOB_MASTER, "jobs": [{"jid": str, "name": str, "state": str}]}

_TASK_COUNTS = (
    "running",
    "canceling",
    "canceled",
    "total",
    "created",
    "scheduled",
    "deploying",
    "reconciling",
    "finished",
    "initializing",
    "failed",
)
_JOB_OVERVIEW = {
    "jid": str,
    "name": str,
    "jobType": str,
    "schedulerType": str,
    "start-time": int,
    "end-time": int,
    "duration": int,
    "state": str,
    "last-modification": int,
    "tasks": dict.fromkeys(_TASK_COUNTS, int),
    "pending-operators": int,
    "pending-reason": str,
    "namespace": str,
    "submitter": str,
}
SUBMITTED = {"jobUrl": str, "status": str, "outcome": str}
JOBS = {"jobs": [{"id": str, "status": str}]}
JOBS_OVERVIEW = {"jobs": [_JOB_OVERVIEW]}
JOBS_CHANGED = {"jobs": [_JOB_OVERVIEW], "unknown": [str]}
JOB_STATUS = {"status": str, "last-modification": int, "pending-reason": str, "is-own": bool}

_IO_METRICS = {
    "read-bytes": int,
    "read-bytes-complete": bool,
    "write-bytes": int,
    "write-bytes-complete": bool,
    "read-records": int,
    "read-records-complete": bool,
    "write-records": int,
    "write-records-complete": bool,
    "accumulated-backpressured-time": int,
    "accumulated-idle-time": int,
    "accumulated-busy-time": float,
}
_PLAN = {
    "jid": str,
    "name": str,
    "type": str,
    "nodes": [
        {
            "id": str,
            "operator": str,
            "parallelism": int,
            "operator_strategy": str,
            "description": str,
            "optimizer_properties": EMPTY,
            "inputs": Maybe([{"id": str, "num": int, "exchange": str, "ship_strategy": str}]),
        }
    ],
}
_PROGRESS = {
    "text": str,
    "fraction": float,
    "spark-stages-active": int,
    "spark-tasks-completed": int,
    "spark-tasks-total": int,
}
_VERTEX_OVERVIEW = {
    "id": str,
    "slotSharingGroupId": str,
    "name": str,
    "maxParallelism": int,
    "parallelism": int,
    "status": str,
    "start-time": int,
    "end-time": int,
    "duration": int,
    "tasks": _by(ExecutionState, int),
    "metrics": _IO_METRICS,
    "slot-sharing-group": str,
    "exclusive": bool,
    "restarts": int,
    "progress": _PROGRESS,
}
JOB = {
    "jid": str,
    "application-id": str,
    "name": str,
    "isStoppable": bool,
    "state": str,
    "job-type": str,
    "schedulerType": str,
    "start-time": int,
    "end-time": int,
    "duration": int,
    "maxParallelism": int,
    "now": int,
    "timestamps": _by(JobStatus, int),
    "vertices": [_VERTEX_OVERVIEW],
    "status-counts": _by(ExecutionState, int),
    "plan": _PLAN,
    "pending-operators": int,
    "pending-reason": str,
    "namespace": str,
    "submitter": str,
    "last-modification": int,
    "jobmaster": str,
    "jobmaster-id": str,
    "takeovers": [{"timestamp": int, "from": str, "from-id": str, "to": str, "to-id": str, "reason": str}],
}
JOB_LOGS = {
    "state": str,
    "last-modification": int,
    "vertices": [{"id": str, "name": str, "parallelism": int, "tasks": Keyed(int), "progress": _PROGRESS}],
    "attempts": [
        {
            "vertex": str,
            "subtask": int,
            "attempt": int,
            "ended": bool,
            "missing": str,
            "logs": Keyed({"data": str, "next-offset": int, "size": int, "truncated": bool, "dropped": int}),
        }
    ],
    "more": bool,
}
JOB_PLAN = {"plan": _PLAN}
JOB_CONFIG = {
    "jid": str,
    "name": str,
    "execution-config": {
        "restart-strategy": str,
        "user-failures": str,
        "job-parallelism": int,
        "object-reuse-mode": bool,
        "user-config": Keyed(str),
    },
}
_FAILURE = {
    "exceptionName": str,
    "stacktrace": str,
    "timestamp": int,
    "failureLabels": Keyed(str),
    "taskName": Maybe(str),
    "endpoint": Maybe(str),
    "taskManagerId": Maybe(str),
}
JOB_EXCEPTIONS = {
    "exceptionHistory": {"entries": [{**_FAILURE, "concurrentExceptions": [_FAILURE]}], "truncated": bool},
}
_RESULT = {
    "id": str,
    "name": str,
    "application-status": str,
    "accumulator-results": Keyed(str),
    "net-runtime": int,
    "application-id": str,
    "start-time": int,
    "end-time": int,
    "result": Maybe(None),
    "failure-cause": Maybe(
        {
            **dict.fromkeys(("class", "message", "stack-trace", "kind", "serialized-throwable"), str),
            "recoverable": bool,
            "failure-labels": Keyed(str),
        }
    ),
}
RESULT = {"status": {"id": str}, "job-execution-result": Maybe(_RESULT)}

_STATISTICS = dict.fromkeys(("min", "max", "avg", "sum", "median", "p25", "p75", "p95"), int)
_AGGREGATED = {"metrics": Keyed(_STATISTICS), "status-duration": Keyed(_STATISTICS)}
ATTEMPT = {
    "subtask": int,
    "status": str,
    "attempt": int,
    "endpoint": str,
    "start-time": int,
    "start_time": int,
    "end-time": int,
    "duration": int,
    "metrics": _IO_METRICS,
    "taskmanager-id": str,
    "status-duration": Keyed(int),
    "attempt-id": str,
}
_VERTEX = {"id": str, "name": str, "now": int}
VERTEX = {**_VERTEX, "parallelism": int, "maxParallelism": int, "subtasks": [ATTEMPT], "aggregated": _AGGREGATED}
SUBTASK_TIMES = {
    **_VERTEX,
    "subtasks": [{"subtask": int, "endpoint": str, "duration": int, "timestamps": _by(ExecutionState, int)}],
}
VERTEX_TASK_MANAGERS = {
    **_VERTEX,
    "taskmanagers": [
        {
            "endpoint": str,
            "taskmanager-id": str,
            "status": str,
            "start-time": int,
            "end-time": int,
            "duration": int,
            "metrics": _IO_METRICS,
            "status-counts": _by(ExecutionState, int),
            "aggregated": _AGGREGATED,
        }
    ],
}

BLOBS_MISSING = {"missing": [str], "keys": Keyed(str)}
BLOB_STORED = {"key": str}

_NAMES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def json_schema(shape: Shape) -> dict[str, Any]:
    """The same as JSON Schema. Clients must expect more fields, so objects are open."""
    if isinstance(shape, Maybe):
        return json_schema(shape.value)
    if shape is None:
        return {}
    if isinstance(shape, list):
        return {"type": "array", "items": json_schema(shape[0])}
    if isinstance(shape, Keyed):
        return {"type": "object", "required": list(shape.keys), "additionalProperties": json_schema(shape.value)}
    if isinstance(shape, dict):
        required = [name for name, value in shape.items() if not isinstance(value, Maybe)]
        properties = {name: json_schema(value) for name, value in shape.items()}
        return {"type": "object", "required": required, "properties": properties}
    return {"type": _NAMES[shape]}
