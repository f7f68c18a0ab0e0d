"""What Spark has done for one attempt: its jobs with their stages, and the plans of its queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

STAGES_KEPT_MAX = 16
"""Of an attempt that has ended: those that took longest."""
STAGES_LIVE_MAX = 200
QUERIES_MAX = 20
NAME_LENGTH_MAX = 200
PLAN_LENGTH_MAX = 16_000
_SUMMED = (
    "tasks_total",
    "tasks_active",
    "tasks_completed",
    "tasks_failed",
    "run_millis",
    "cpu_millis",
    "gc_millis",
    "read_bytes",
    "read_records",
    "write_bytes",
    "write_records",
    "shuffle_read_bytes",
    "shuffle_write_bytes",
    "spilled_memory_bytes",
    "spilled_disk_bytes",
)


@dataclass(frozen=True, slots=True)
class SparkStage:
    """The last attempt of a stage, with Spark's `state` of it; or a sum of stages, then without a name.

    Times are milliseconds since 1970, -1 for never; `run_millis` is the time of all its tasks together.
    """

    stage_id: int = -1
    attempt: int = 0
    name: str = ""
    state: str = ""
    tasks_total: int = 0
    tasks_active: int = 0
    tasks_completed: int = 0
    tasks_failed: int = 0
    submitted_millis: int = -1
    completed_millis: int = -1
    run_millis: int = 0
    cpu_millis: int = 0
    gc_millis: int = 0
    read_bytes: int = 0
    read_records: int = 0
    write_bytes: int = 0
    write_records: int = 0
    shuffle_read_bytes: int = 0
    shuffle_write_bytes: int = 0
    spilled_memory_bytes: int = 0
    spilled_disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SparkWork:
    """`stages` are some of `stages_total`, in the order of their begin; `total` is the sum of all."""

    jobs: int
    jobs_failed: int
    stages_total: int
    total: SparkStage
    stages: tuple[SparkStage, ...] = ()


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """One query of Spark SQL. `completed_millis` -1 while it runs. `plan` may be cut."""

    query_id: int
    submitted_millis: int
    completed_millis: int
    description: str
    plan: str


def sum_of(stages: Iterable[SparkStage]) -> SparkStage:
    """All counters together."""
    found = list(stages)
    return SparkStage(**{name: sum(getattr(one, name) for one in found) for name in _SUMMED})


def work_of(jobs: int, jobs_failed: int, stages: Iterable[SparkStage], stages_max: int) -> SparkWork:
    """The work with the `stages_max` stages that took, or take, longest."""
    found = sorted(stages, key=lambda one: (one.submitted_millis < 0, one.submitted_millis, one.stage_id))
    longest = sorted(found, key=lambda one: -one.run_millis)[:stages_max]
    kept = {(one.stage_id, one.attempt) for one in longest}
    shown = tuple(one for one in found if (one.stage_id, one.attempt) in kept)
    return SparkWork(jobs, jobs_failed, len(found), sum_of(found), shown)
