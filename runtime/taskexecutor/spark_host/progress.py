"""From Spark's status store to progress per session, and to the jobs that no session wants. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from runtime.common.stream_progress import StreamProgress
from runtime.taskexecutor.spark_host.driver import ActiveJob
from runtime.taskexecutor.spark_host.stream_progress import with_stage
from runtime.taskexecutor.spark_protocol.sessions import SparkProgress

_SUMS: Mapping[str, str] = {
    "tasks_active": "numActiveTasks",
    "tasks_completed": "numCompleteTasks",
    "tasks_failed": "numFailedTasks",
    "tasks_total": "numTasks",
    "read_bytes": "inputBytes",
    "write_bytes": "outputBytes",
    "read_records": "inputRecords",
    "write_records": "outputRecords",
}


def progress_by_tag(
    jobs: Iterable[ActiveJob],
    stages: Iterable[Mapping[str, Any]],
    tags: frozenset[str],
    streams: Mapping[str, tuple[StreamProgress, ...]],
) -> dict[str, SparkProgress]:
    """Sums over the active jobs and stages of each tag in `tags`, and its streaming queries."""
    owner_of_stage: dict[int, str] = {}
    longest: dict[str, Mapping[str, Any]] = {}
    totals: dict[str, dict[str, Any]] = {}
    for job in jobs:
        for tag in job.tags & tags:
            total = totals.setdefault(tag, asdict(SparkProgress()))
            total["jobs_active"] += 1
            owner_of_stage.update(dict.fromkeys(job.stage_ids, tag))
    for tag in streams.keys() & tags:
        totals.setdefault(tag, asdict(SparkProgress()))
    for stage in stages:
        owner = owner_of_stage.get(stage["stageId"])
        if owner is None:
            continue
        total = totals[owner]
        total["stages_active"] += 1
        if owner not in longest or _left(stage) > _left(longest[owner]):
            longest[owner] = stage
        for name, key in _SUMS.items():
            total[name] += int(stage.get(key) or 0)
        total["cpu_millis"] += int(stage.get("executorCpuTime") or 0) // 1_000_000
    for tag in streams.keys() & tags:
        totals[tag]["streams"] = with_stage(streams[tag], longest.get(tag))
    return {tag: SparkProgress(**total) for tag, total in totals.items()}


def _left(stage: Mapping[str, Any]) -> int:
    return int(stage.get("numTasks") or 0) - int(stage.get("numCompleteTasks") or 0)


def unwanted_jobs(jobs: Sequence[ActiveJob], live_tags: frozenset[str]) -> list[int]:
    """Active jobs that carry no live tag: what the reaper cancels (pitfall 3)."""
    return [job.job_id for job in jobs if not job.tags & live_tags]
