"""Bodies of what Spark does for jobs. Times are milliseconds since 1970, -1 for never; sizes are bytes."""

from __future__ import annotations

from typing_extensions import TypedDict

SparkCounts = TypedDict(
    "SparkCounts",
    {
        "tasks-total": int,
        "tasks-active": int,
        "tasks-completed": int,
        "tasks-failed": int,
        "run-time": int,
        "cpu-time": int,
        "gc-time": int,
        "read-bytes": int,
        "read-records": int,
        "write-bytes": int,
        "write-records": int,
        "shuffle-read-bytes": int,
        "shuffle-write-bytes": int,
        "spilled-memory-bytes": int,
        "spilled-disk-bytes": int,
    },
)
"""Of one stage, or of all stages of an attempt. Times are of all their tasks together."""


SparkStageInfo = TypedDict(
    "SparkStageInfo",
    {"id": int, "attempt": int, "name": str, "status": str, "start-time": int, "end-time": int, "counts": SparkCounts},
)

SparkQueryInfo = TypedDict(
    "SparkQueryInfo", {"id": int, "description": str, "start-time": int, "end-time": int, "plan": str}
)

SparkOfAttempt = TypedDict(
    "SparkOfAttempt",
    {
        "vertex": str,
        "vertex-name": str,
        "subtask": int,
        "attempt": int,
        "attempt-id": str,
        "taskmanager-id": str,
        "environment": str | None,
        "status": str,
        "jobs": int,
        "jobs-failed": int,
        "stages-total": int,
        "total": SparkCounts,
        "stages": list[SparkStageInfo],
        "queries": list[SparkQueryInfo],
    },
)


SparkOfJob = TypedDict(
    "SparkOfJob", {"now": int, "attempts": list[SparkOfAttempt], "left-out": int, "problems": list[str]}
)
"""Of attempts that have used Spark. `left-out`: running ones that were not asked. `problems`: who has not answered in
time, in words; what ended attempts have kept is shown all the same.
"""
