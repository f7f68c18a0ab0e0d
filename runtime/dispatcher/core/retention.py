"""Finished jobs that are still shown, and ids that are still taken: both bounded by count and by age."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from runtime.common.ids import JobId
from runtime.gateways.dispatcher import JobSummary


@dataclass(frozen=True, slots=True)
class Retention:
    """How many finished jobs are kept, and for how long after their end."""

    count_max: int
    age_millis_max: int


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A cleaned job as it is kept in memory; everything else of it is read when asked for."""

    summary: JobSummary
    digest: str


class FinishedJobs:
    """Cleaned jobs in the order in which they ended."""

    def __init__(self, retention: Retention) -> None:
        assert retention.count_max >= 0, retention
        self._retention = retention
        self._jobs: dict[JobId, FinishedJob] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[FinishedJob]:
        """Newest end first."""
        return reversed(self._jobs.values())

    def get(self, job_id: JobId) -> FinishedJob | None:
        """One of them."""
        return self._jobs.get(job_id)

    def add(self, job: FinishedJob) -> None:
        """Keep a job; the oldest one leaves when there are too many."""
        self._jobs.pop(job.summary.job_id, None)
        self._jobs[job.summary.job_id] = job
        while len(self._jobs) > self._retention.count_max:
            del self._jobs[next(iter(self._jobs))]

    def expire(self, now_millis: int) -> tuple[JobId, ...]:
        """Let go of those that ended too long ago, and return them."""
        limit = now_millis - self._retention.age_millis_max
        expired = []
        for job_id, job in self._jobs.items():
            if job.summary.end_millis >= limit:
                break
            expired.append(job_id)
        for job_id in expired:
            del self._jobs[job_id]
        return tuple(expired)


class RememberedIds:
    """The ids of all cleaned jobs, in the order in which they ended."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._ended: dict[JobId, int] = {}

    def __len__(self) -> int:
        return len(self._ended)

    def load(self, ended: dict[JobId, int]) -> None:
        """Take over what is stored: when each job ended, in any order. What was added meanwhile stays."""
        everything = ended | self._ended
        self._ended = dict(sorted(everything.items(), key=lambda item: item[1]))

    def add(self, job_id: JobId, end_millis: int) -> None:
        """A job was cleaned."""
        self._ended[job_id] = end_millis

    def due(self, now_millis: int, limit: int) -> list[JobId]:
        """Ids to forget now, oldest first, at most `limit`."""
        oldest = now_millis - self._retention.age_millis_max
        excess = len(self._ended) - self._retention.count_max
        due: list[JobId] = []
        for job_id, end_millis in self._ended.items():
            if len(due) == limit or (len(due) >= excess and end_millis >= oldest):
                break
            due.append(job_id)
        return due

    def forget(self, jobs: Iterable[JobId]) -> None:
        """They are forgotten."""
        for job_id in jobs:
            del self._ended[job_id]
