"""The bodies of what Spark does for jobs."""

from __future__ import annotations

from collections.abc import Iterable

from runtime.executiongraph.archived import ArchivedExecution, ArchivedVertex
from runtime.gateways.spark_work import SparkQuery, SparkStage, SparkWork
from runtime.rest.bodies.schema import spark as schema


def of_attempt(
    vertex: ArchivedVertex,
    subtask: int,
    attempt: ArchivedExecution,
    work: SparkWork,
    queries: Iterable[SparkQuery],
    environment: str | None = None,
) -> schema.SparkOfAttempt:
    """One attempt that has used Spark. `environment`: the key of its environment, None for one that is not there."""
    return {
        "vertex": vertex.id,
        "vertex-name": vertex.name,
        "subtask": subtask,
        "attempt": attempt.attempt,
        "attempt-id": attempt.attempt_id,
        "taskmanager-id": attempt.task_manager_id,
        "environment": environment,
        "status": attempt.state.value,
        "jobs": work.jobs,
        "jobs-failed": work.jobs_failed,
        "stages-total": work.stages_total,
        "total": _counts(work.total),
        "stages": [_stage(one) for one in work.stages],
        "queries": [_query(one) for one in queries],
    }


def _stage(one: SparkStage) -> schema.SparkStageInfo:
    return {
        "id": one.stage_id,
        "attempt": one.attempt,
        "name": one.name,
        "status": one.state,
        "start-time": one.submitted_millis,
        "end-time": one.completed_millis,
        "counts": _counts(one),
    }


def _query(one: SparkQuery) -> schema.SparkQueryInfo:
    return {
        "id": one.query_id,
        "description": one.description,
        "start-time": one.submitted_millis,
        "end-time": one.completed_millis,
        "plan": one.plan,
    }


def _counts(one: SparkStage) -> schema.SparkCounts:
    return {
        "tasks-total": one.tasks_total,
        "tasks-active": one.tasks_active,
        "tasks-completed": one.tasks_completed,
        "tasks-failed": one.tasks_failed,
        "run-time": one.run_millis,
        "cpu-time": one.cpu_millis,
        "gc-time": one.gc_millis,
        "read-bytes": one.read_bytes,
        "read-records": one.read_records,
        "write-bytes": one.write_bytes,
        "write-records": one.write_records,
        "shuffle-read-bytes": one.shuffle_read_bytes,
        "shuffle-write-bytes": one.shuffle_write_bytes,
        "spilled-memory-bytes": one.spilled_memory_bytes,
        "spilled-disk-bytes": one.spilled_disk_bytes,
    }
