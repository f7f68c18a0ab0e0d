"""The conditions of sensors, without I/O: a job in one of the target states, a cluster with free slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from airflow_flinklike.client import JobState, operations
from airflow_flinklike.client.protocol import Operation, told_job_id
from runtime.common.ids import JobId, parse_job_id
from runtime.common.states import JobStatus, JobType

JOBS = "/jobs/overview"
TASK_MANAGERS = "/taskmanagers"


class Verdict(Enum):
    """The outcome of one look: not yet, met, or never to be met."""

    WAITING = "waiting"
    REACHED = "reached"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class JobWish:
    """A job, by its id or the newest one of a name, that is to reach one of `states`."""

    states: frozenset[JobStatus]
    job_id: JobId | None = None
    name: str = ""
    started_after_millis: int = 0

    @property
    def is_about_an_end(self) -> bool:
        """True if only the end of the job can fulfil the wish."""
        return all(status.is_globally_terminal for status in self.states)

    def __str__(self) -> str:
        return f"job {self.job_id}" if self.job_id else f"the newest job named {self.name!r}"


@dataclass(frozen=True, slots=True)
class JobLook:
    """A look at the job; `state` is None while there is no job of that name."""

    verdict: Verdict
    state: JobState | None = None

    def __str__(self) -> str:
        if self.state is None:
            return "there is none yet"
        return f"Job {self.state.job_id}: {self.state.status.value} {self.state.pending_reason}".rstrip()

    def since(self, job_id: JobId) -> int:
        """The last known modification of that job, for a long poll; 0 when there is none."""
        return self.state.last_modification if self.state is not None and self.state.job_id == job_id else 0


def job_wish(
    states: str | Iterable[str],
    *,
    job_id: str | None = None,
    name: str | None = None,
    started_after: datetime | str | None = None,
) -> JobWish:
    """The wish from the arguments of a sensor. Raises ValueError, InvalidInputError."""
    if bool(job_id) == bool(name):
        message = "give either job_id= or job_name="
        raise ValueError(message)
    if job_id:
        return JobWish(parse_states(states), parse_job_id(job_id))
    return JobWish(parse_states(states), None, str(name), _millis(started_after))


def parse_states(given: str | Iterable[str]) -> frozenset[JobStatus]:
    """The states of these names; a text is split at commas. Raises ValueError that lists the valid names."""
    names = [one.strip() for one in given.split(",")] if isinstance(given, str) else [str(one) for one in given]
    known = {status.value: status for status in JobStatus}
    wrong = [name for name in names if name.upper() not in known]
    if wrong or not names:
        message = f"target_states: {', '.join(map(repr, wrong)) or 'none'} given, expected some of {', '.join(known)}"
        raise ValueError(message)
    return frozenset(known[name.upper()] for name in names)


def _millis(moment: datetime | str | None) -> int:
    if not moment:
        return 0
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def look_at_job(wish: JobWish, *, wait: float = 0.0, seen: JobLook | None = None) -> Operation[JobLook]:
    """One look; with `wait` in seconds a long poll for a change since `seen`. Raises JobNotFoundError."""
    job_id = wish.job_id or newest(wish, (yield from operations.get_json(JOBS)))
    if job_id is None:
        return JobLook(Verdict.WAITING)
    since = 0 if seen is None else seen.since(job_id)
    state = yield from operations.status(job_id, wait=wait if since else 0.0, since=since)
    return (yield from judge(wish, state))


def newest(wish: JobWish, overview: Mapping[str, Any]) -> JobId | None:
    """The newest job of the name in the overview, which lists newer jobs first. A waiting job starts later."""
    for job in overview["jobs"]:
        begun = job["start-time"]
        if job["name"] == wish.name and (begun < 0 or begun >= wish.started_after_millis):
            return told_job_id(job["jid"])
    return None


def judge(wish: JobWish, state: JobState) -> Operation[JobLook]:
    """The look at a wish for a job in that state."""
    status, verdict = state.status, Verdict.WAITING
    if status in wish.states or (status.is_globally_terminal and (yield from _has_passed(wish, state.job_id))):
        verdict = Verdict.REACHED
    elif status.is_globally_terminal:
        verdict = Verdict.MISSED
    return JobLook(verdict, state)


def _has_passed(wish: JobWish, job_id: JobId) -> Operation[bool]:
    """True if the job, which has ended, has passed one of the states."""
    if wish.is_about_an_end:
        return False
    details = yield from operations.get_json(f"/jobs/{job_id}")
    return any(details["timestamps"].get(status.value, 0) > 0 for status in wish.states)


@dataclass(frozen=True, slots=True)
class ClusterWish:
    """A cluster with enough free slots, if wanted on TaskManagers with Spark, or with a Spark profile."""

    free_slots: int = 1
    has_spark: bool = False
    spark_profile: str = ""


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """The free slots of the matching TaskManagers, and the number of these TaskManagers."""

    is_reached: bool
    free_slots: int
    task_managers: int

    def __str__(self) -> str:
        return f"{self.free_slots} free slots on {self.task_managers} TaskManagers that are ready for it"


def look_at_cluster(wish: ClusterWish) -> Operation[ClusterLook]:
    """One look at the TaskManagers."""
    return room(wish, (yield from operations.get_json(TASK_MANAGERS)))


def room(wish: ClusterWish, task_managers: Mapping[str, Any]) -> ClusterLook:
    """The look at a wish, from the list of TaskManagers."""
    free = [int(one["freeSlots"]) for one in task_managers["taskmanagers"] if _serves(one, wish)]
    is_reached = bool(free) and sum(free) >= wish.free_slots
    return ClusterLook(is_reached, sum(free), len(free))


def _serves(task_manager: Mapping[str, Any], wish: ClusterWish) -> bool:
    """True if the TaskManager matches the wish. A draining one offers no slots."""
    if task_manager.get("state", "ready") != "ready":
        return False
    if wish.spark_profile and task_manager.get("spark-profile") != wish.spark_profile:
        return False
    return bool(task_manager.get("spark")) or not (wish.has_spark or wish.spark_profile)


START_LOOK_SECONDS = 2.0
"""Between looks at a job that is RUNNING, while not all of it has started: the first query of a script is no change of
the job, so no long poll ends with it."""


def have_all_started(job_id: JobId) -> Operation[bool]:
    """True if each task of a running job runs or has finished. A streaming query runs from its first trigger on.

    The task of a streaming script runs before its queries do: one of them has to have triggered.
    """
    details = yield from operations.get_json(f"/jobs/{job_id}")
    if not details["vertices"] or not all(_has_started(vertex) for vertex in details["vertices"]):
        return False
    if details.get("job-type") != JobType.STREAMING.value:
        return True
    vertices = (yield from operations.get_json(f"/jobs/{job_id}/streams"))["vertices"]
    return any(vertex["uid"] or _has_triggered(vertex) for vertex in vertices)


def _has_triggered(vertex: Mapping[str, Any]) -> bool:
    return any(query["has-triggered"] for subtask in vertex["subtasks"] for query in subtask["queries"])


def _has_started(vertex: Mapping[str, Any]) -> bool:
    tasks = vertex["tasks"]
    return int(tasks.get("RUNNING", 0)) + int(tasks["FINISHED"]) >= max(1, int(vertex["parallelism"]))
