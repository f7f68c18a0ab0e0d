"""The shapes of a JobManager's answers that clients rely on, by path, and their check (R52).

The server may be broken, of another release, or not a JobManager. The code behind the check may rely on the shapes
without asking again. Fields that a shape does not name may have any value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.common.ids import is_hex_id
from runtime.common.states import JobStatus

Shape = Any
"""A `Kind`, `[shape]` for a list, `{name: shape}` for an object, `{None: shape}` for one whose keys are data.

A field whose name ends with `?` may be missing, as in answers of earlier releases.
"""

_INTEGER_MAX = (1 << 63) - 1
_MILLIS_MAX = 200_000_000_000_000
"""In the year 8307. Every date before it can be shown."""
_REAL_MAX = 1e18
_STATES = frozenset(one.value for one in JobStatus)


@dataclass(frozen=True, slots=True)
class Kind:
    """A plain value. `words` names it in errors."""

    words: str
    is_one: Callable[[Any], bool]


def _whole(value: Any, lowest: int, highest: int) -> bool:
    return type(value) is int and lowest <= value <= highest


TEXT = Kind("a text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
NUMBER = Kind("a whole number of 64 bits", lambda value: _whole(value, -_INTEGER_MAX, _INTEGER_MAX))
COUNT = Kind("a whole number from 0", lambda value: _whole(value, 0, _INTEGER_MAX))
PARALLELISM = Kind("a whole number from 1, or -1", lambda value: value == -1 or _whole(value, 0, _INTEGER_MAX))
MILLIS = Kind("a time in milliseconds", lambda value: _whole(value, -_INTEGER_MAX, _MILLIS_MAX))
REAL = Kind("a number", lambda value: type(value) in {int, float} and math.isfinite(value) and abs(value) <= _REAL_MAX)
STATE = Kind("a state of a job", lambda value: isinstance(value, str) and value in _STATES)
JOB_ID = Kind("a job id", lambda value: isinstance(value, str) and is_hex_id(value))
ANYTHING = Kind("anything", lambda _: True)

_PROGRESS = {"text": TEXT, "fraction": REAL, "spark-tasks-total": COUNT, "spark-tasks-completed": COUNT}
_PROGRESS |= {"spark-stages-active?": COUNT}
_JOB = {
    "jid": JOB_ID,
    "name": TEXT,
    "state": STATE,
    "start-time": MILLIS,
    "duration": NUMBER,
    "last-modification": NUMBER,
    "tasks": {"finished": COUNT, "total": COUNT},
    "pending-reason?": TEXT,
    "failure?": TEXT,
    "namespace?": TEXT,
    "submitter?": TEXT,
}
_NEWS = {"jid": JOB_ID, "state": STATE, "last-modification": NUMBER, "pending-reason?": TEXT}
_VERTEX = {
    "id": TEXT,
    "name": TEXT,
    "status": TEXT,
    "parallelism": PARALLELISM,
    "maxParallelism?": COUNT,
    "exclusive?": FLAG,
    "parallelism-decision?": TEXT,
    "splits?": {"total": COUNT, "finished": COUNT, "running": COUNT, "left": COUNT},
    "duration": NUMBER,
    "tasks": {None: COUNT, "FINISHED": COUNT},
    "metrics": {"write-records?": NUMBER, "write-files?": NUMBER, "write-bytes?": NUMBER},
    "restarts?": COUNT,
    "progress?": _PROGRESS,
}
_DETAILS = {
    "job-type?": TEXT,
    "jid": JOB_ID,
    "name": TEXT,
    "state": STATE,
    "duration": NUMBER,
    "timestamps": {None: NUMBER},
    "vertices": [_VERTEX],
    "plan": {"nodes": [{"id": TEXT, "inputs?": [{"id": TEXT, "ship_strategy?": TEXT}]}]},
    "pending-reason?": TEXT,
    "namespace?": TEXT,
    "submitter?": TEXT,
    "jobmaster?": TEXT,
    "jobmaster-id?": TEXT,
    "takeovers?": [{"timestamp": MILLIS, "from": TEXT, "to": TEXT, "reason": TEXT}],
}
_FAILURE = {"timestamp": MILLIS, "stacktrace": TEXT, "taskName?": TEXT, "taskManagerId?": TEXT}
_ACCUMULATOR = dict.fromkeys(("name", "type", "value"), TEXT)
_PIECE = {"data": TEXT, "next-offset": COUNT, "size": COUNT, "dropped?": COUNT}
_LOGGED = {"id": TEXT, "name": TEXT, "parallelism": PARALLELISM, "tasks": {None: COUNT}, "progress": _PROGRESS}
_ATTEMPT = {"vertex": TEXT, "subtask": COUNT, "attempt": COUNT, "ended": FLAG, "missing": TEXT, "logs": {None: _PIECE}}
_RESULT = {
    "id?": JOB_ID,
    "application-status": TEXT,
    "net-runtime?": NUMBER,
    "accumulators?": {None: ANYTHING},
    "failure-cause?": {
        **dict.fromkeys(("class?", "message?", "stack-trace?", "kind?"), TEXT),
        "recoverable?": FLAG,
        "failure-labels?": {None: TEXT},
    },
}
_TASK_MANAGER = {
    "id": TEXT,
    "path": TEXT,
    "freeSlots": COUNT,
    "slotsNumber": COUNT,
    "timeSinceLastHeartbeat": MILLIS,
    **dict.fromkeys(("state?", "problem?", "tenancy?", "tenant?", "spark-profile?", "profile?"), TEXT),
    "labels?": [TEXT],
    **dict.fromkeys(("spark?", "warm?"), FLAG),
    "not-enforced?": [TEXT],
    "spark-environments?": [{"key": TEXT, "memory-bytes": COUNT, "users": COUNT}],
}
_JOB_MASTER = {
    **dict.fromkeys(("id", "address", "state"), TEXT),
    **dict.fromkeys(("jobs-running", "capacity", "jobs-assigned", "memory-bytes"), COUNT),
    "cpu-fraction?": REAL,
    "last-heartbeat": MILLIS,
}
_PRINCIPAL = {
    **dict.fromkeys(("name", "role", "namespace"), TEXT),
    "tokens": [{"expires": MILLIS}],
    "problem?": TEXT,
    "certificate?": TEXT,
}
_STATUS = {"status": STATE, "last-modification?": NUMBER, "pending-reason?": TEXT, "is-own?": FLAG}
_OVERVIEW = {
    **dict.fromkeys(("taskmanagers?", "slots-total?", "slots-available?"), COUNT),
    **dict.fromkeys((f"jobs-{name}?" for name in ("running", "finished", "failed", "cancelled")), COUNT),
    "leader?": TEXT,
    "stand-bys?": [TEXT],
}
_QUEUE = {
    "name": TEXT,
    **dict.fromkeys(("slots-held", "jobs-running", "jobs-waiting", "min-slots"), COUNT),
    **dict.fromkeys(("share", "weight"), REAL),
}
_WORKER = {**dict.fromkeys(("id", "kind", "state", "reason", "profile?"), TEXT), "since": MILLIS}
_EVENT = {**dict.fromkeys(("id", "kind", "message"), TEXT), "timestamp": MILLIS}

_QUERY = {
    **dict.fromkeys(("batch-id", "backlog"), NUMBER),
    **dict.fromkeys(("rows", "state-rows", "state-bytes", "trigger-millis"), COUNT),
    **dict.fromkeys(("input-rows-per-second", "processed-rows-per-second"), REAL),
    **dict.fromkeys(("watermark", "progressed"), MILLIS),
    **dict.fromkeys(("idle", "has-triggered"), FLAG),
    "name?": TEXT,
}
_STREAM = {"uid": TEXT, "name": TEXT, "subtasks": [{"subtask": COUNT, "status": TEXT, "queries": [_QUERY]}]}

_ID = "(?P<job>[0-9a-f]{32})"
_SHAPES: Mapping[str, Shape] = {
    "/overview": {**_OVERVIEW, "flink-version?": TEXT},
    "/changes": {"revision": TEXT},
    "/events": {"events": [_EVENT], "next": TEXT},
    "/jobs": {"outcome?": TEXT, "warnings?": [TEXT]},
    "/jobs/overview": {"jobs": [_JOB]},
    "/jobs/wait": {"jobs": [_NEWS], "unknown": [JOB_ID]},
    f"/jobs/{_ID}": _DETAILS,
    f"/jobs/{_ID}/status": _STATUS,
    f"/jobs/{_ID}/config": {"execution-config": {"restart-strategy": TEXT, "user-failures?": TEXT}},
    f"/jobs/{_ID}/accumulators": {"user-task-accumulators": [_ACCUMULATOR], "left-out?": COUNT},
    f"/jobs/{_ID}/exceptions": {"exceptionHistory": {"entries": [_FAILURE]}},
    f"/jobs/{_ID}/execution-result": {"status": {"id": TEXT}, "job-execution-result?": _RESULT},
    f"/jobs/{_ID}/streams": {"jid": JOB_ID, "now": MILLIS, "vertices": [_STREAM]},
    f"/jobs/{_ID}/logs": {
        "state": STATE,
        "last-modification": NUMBER,
        "vertices": [_LOGGED],
        "attempts": [_ATTEMPT],
        "more": FLAG,
    },
    f"/jobs/{_ID}/vertices/[^/]+": {"subtasks": [{"attempt": COUNT}]},
    "/taskmanagers": {"taskmanagers": [_TASK_MANAGER]},
    "/resourcemanager": {"kinds": [{"kind": TEXT, "problem": TEXT}], "workers": [_WORKER]},
    "/queues": {"queues": [_QUEUE], "problem": TEXT},
    "/jobmasters": {"jobmasters": [_JOB_MASTER]},
    "/(?:jobmanager|taskmanagers/[^/]+|jobmasters/[^/]+)/logs": {
        "logs": [{"name": TEXT, "size": COUNT, "mtime": MILLIS}]
    },
    "/(?:jobmanager|taskmanagers/[^/]+|jobmasters/[^/]+)/thread-dump": {
        "threadInfos": [{"threadName": TEXT, "stringifiedThreadInfo": TEXT}],
    },
    "/log-level": {"level": TEXT, "processes": [dict.fromkeys(("process", "former", "error"), TEXT)]},
    "/blobs/missing": {"missing": [TEXT], "keys": {None: TEXT}},
    "/blobs/[0-9a-f]+": {"key": TEXT},
    "/tokens": {"principals": [_PRINCIPAL]},
    "POST /tokens": {"token?": TEXT},
    "/tokens/[^/]+/rotate": {"token": TEXT},
}
_COMPILED = [(re.compile(path), shape) for path, shape in _SHAPES.items()]


def check_answer(method: str, path: str, answer: Any) -> None:
    """Raises ValueError that names the place of the first wrong value, and what is expected there."""
    shape, job = _expected(method, path)
    if shape is not None:
        _check(answer, shape, "")
    if job:
        result = answer.get("job-execution-result") or {}
        told = {answer.get("jid", job), result.get("id", job)} - {job}
        if told:
            message = f"it is about job {told.pop()}"
            raise ValueError(message)


def _expected(method: str, path: str) -> tuple[Shape, str]:
    for asked in (f"{method} {path}", path):
        for pattern, shape in _COMPILED:
            match = pattern.fullmatch(asked)
            if match is not None:
                return shape, match.groupdict().get("job", "")
    return None, ""


def _check(value: Any, shape: Shape, place: str) -> None:
    """The recursion is as deep as the shape, not as the value."""
    if isinstance(shape, Kind):
        if not shape.is_one(value):
            raise _differs(value, shape.words, place)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise _differs(value, "a list", place)
        for number, one in enumerate(value):
            _check(one, shape[0], f"{place}[{number}]")
    elif not isinstance(value, dict):
        raise _differs(value, "an object", place)
    else:
        _check_fields(value, shape, place)


def _check_fields(value: Mapping[str, Any], shape: Mapping[str | None, Shape], place: str) -> None:
    for name, one in shape.items():
        if name is None:
            for key, member in value.items():
                _check(member, one, f"{place}.{key[:60]}")
            continue
        field = name.removesuffix("?")
        if field in value:
            if value[field] is not None or field == name or not isinstance(one, dict):
                _check(value[field], one, f"{place}.{field}")
        elif field == name:
            message = f"{f'{place}.{field}'.lstrip('.')} is missing"
            raise ValueError(message)


def _differs(value: Any, expected: str, place: str) -> ValueError:
    return ValueError(f"{place.lstrip('.') or 'it'} is {_shown(value)}, expected {expected}")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if type(value) is int and abs(value) > 1 << 128:  # Python refuses to format an int of thousands of digits
        return "a very large number"
    return repr(value)[:80]
