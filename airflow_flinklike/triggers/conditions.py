"""What sensors look for, without I/O: a job that has reached one of some states, a cluster that has room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from airflow_flinklike.client import JobState, operations
from airflow_flinklike.client.protocol import Operation, told_job_id
from runtime.common.ids import JobId, parse_job_id
from runtime.common.states import JobStatus

JOBS = "/jobs/overview"
TASK_MANAGERS = "/taskmanagers"


class Verdict(Enum):
    """What one look has shown."""

    WAITING = "waiting"
    REACHED = "reached"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class JobWish:
    """A job that is to reach one of `states`: one by its id, or the newest one of a name."""

    states: frozenset[JobStatus]
    job_id: JobId | None = None
    name: str = ""
    started_after_millis: int = 0

    @property
    def is_about_an_end(self) -> bool:
        """True if nothing before the end of the job can fulfil it."""
        return all(status.is_globally_terminal for status in self.states)

    def __str__(self) -> str:
        return f"job {self.job_id}" if self.job_id else f"the newest job named {self.name!r}"


@dataclass(frozen=True, slots=True)
class JobLook:
    """What is known of the job; `state` is None while there is none of that name."""

    verdict: Verdict
    state: JobState | None = None

    def __str__(self) -> str:
        if self.state is None:
            return "there is none yet"
        return f"Job {self.state.job_id}: {self.state.status.value} {self.state.pending_reason}".rstrip()

    def since(self, job_id: JobId) -> int:
        """From where to wait for a change of that job."""
        return self.state.last_modification if self.state is not None and self.state.job_id == job_id else 0


def job_wish(
    states: str | Iterable[str],
    *,
    job_id: str | None = None,
    name: str | None = None,
    started_after: datetime | str | None = None,
) -> JobWish:
    """Check what a user has written. Raises ValueError, InvalidInputError."""
    if bool(job_id) == bool(name):
        message = "give either job_id= or job_name="
        raise ValueError(message)
    if job_id:
        return JobWish(parse_states(states), parse_job_id(job_id))
    return JobWish(parse_states(states), None, str(name), _millis(started_after))


def parse_states(given: str | Iterable[str]) -> frozenset[JobStatus]:
    """Names of states; a text is split at commas. Raises ValueError that lists them all."""
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
    """One look; with `wait` a long poll for a change since `seen`. Raises JobNotFoundError for an unknown id."""
    job_id = wish.job_id or newest(wish, (yield from operations.get_json(JOBS)))
    if job_id is None:
        return JobLook(Verdict.WAITING)
    since = 0 if seen is None else seen.since(job_id)
    state = yield from operations.status(job_id, wait=wait if since else 0.0, since=since)
    return (yield from judge(wish, state))


def newest(wish: JobWish, overview: Mapping[str, Any]) -> JobId | None:
    """The job of the name, in the overview, which is sorted that way. One that waits has not started too early."""
    for job in overview["jobs"]:
        begun = job["start-time"]
        if job["name"] == wish.name and (begun < 0 or begun >= wish.started_after_millis):
            return told_job_id(job["jid"])
    return None


def judge(wish: JobWish, state: JobState) -> Operation[JobLook]:
    """What a job's state means for the wish."""
    status, verdict = state.status, Verdict.WAITING
    if status in wish.states or (status.is_globally_terminal and (yield from _has_passed(wish, state.job_id))):
        verdict = Verdict.REACHED
    elif status.is_globally_terminal:
        verdict = Verdict.MISSED
    return JobLook(verdict, state)


def _has_passed(wish: JobWish, job_id: JobId) -> Operation[bool]:
    """True if the job, which is over, was in one of the states on its way."""
    if wish.is_about_an_end:
        return False
    details = yield from operations.get_json(f"/jobs/{job_id}")
    return any(details["timestamps"].get(status.value, 0) > 0 for status in wish.states)


@dataclass(frozen=True, slots=True)
class ClusterWish:
    """A cluster with so many free slots, on TaskManagers that have Spark, of a profile, when that is wanted."""

    free_slots: int = 1
    has_spark: bool = False
    spark_profile: str = ""


@dataclass(frozen=True, slots=True)
class ClusterLook:
    """What the TaskManagers that count have to give."""

    is_reached: bool
    free_slots: int
    task_managers: int

    def __str__(self) -> str:
        return f"{self.free_slots} free slots on {self.task_managers} TaskManagers that are ready for it"


def look_at_cluster(wish: ClusterWish) -> Operation[ClusterLook]:
    """One look at the TaskManagers."""
    return room(wish, (yield from operations.get_json(TASK_MANAGERS)))


def room(wish: ClusterWish, task_managers: Mapping[str, Any]) -> ClusterLook:
    """What there is for the wish."""
    free = [int(one["freeSlots"]) for one in task_managers["taskmanagers"] if _serves(one, wish)]
    is_reached = bool(free) and sum(free) >= wish.free_slots
    return ClusterLook(is_reached, sum(free), len(free))


def _serves(task_manager: Mapping[str, Any], wish: ClusterWish) -> bool:
    """One that drains gives no slot away."""
    if task_manager.get("state", "ready") != "ready":
        return False
    if wish.spark_profile and task_manager.get("spark-profile") != wish.spark_profile:
        return False
    return bool(task_manager.get("spark")) or not (wish.has_spark or wish.spark_profile)
