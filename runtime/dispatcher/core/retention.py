"""Finished jobs that are still shown, and ids that are still taken: bounded by count, age and size of archives."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from runtime.common.ids import JobId
from runtime.gateways.dispatcher import JobSummary


@dataclass(frozen=True, slots=True)
class Retention:
    """How many finished jobs are kept, for how long after their end, and how large their archives may be together."""

    count_max: int
    age_millis_max: int
    bytes_max: int = sys.maxsize


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A cleaned job as it is kept in memory; all else is read from the store when a client asks."""

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
        """The jobs, the last to end first."""
        return reversed(self._jobs.values())

    def get(self, job_id: JobId) -> FinishedJob | None:
        """A finished job, None if it is not kept."""
        return self._jobs.get(job_id)

    def add(self, job: FinishedJob) -> tuple[JobId, ...]:
        """Keep a job. Returns the jobs that leave because there are too many, the first to end first."""
        self._jobs.pop(job.summary.job_id, None)
        self._jobs[job.summary.job_id] = job
        excess = max(0, len(self._jobs) - self._retention.count_max)
        oldest = tuple(islice(self._jobs, excess))
        for job_id in oldest:
            del self._jobs[job_id]
        return oldest

    def expire(self, now_millis: int) -> tuple[JobId, ...]:
        """Remove the jobs that ended too long ago, and return them."""
        limit = now_millis - self._retention.age_millis_max
        expired = []
        for job_id, job in self._jobs.items():
            if job.summary.end_millis >= limit:
                break
            expired.append(job_id)
        for job_id in expired:
            del self._jobs[job_id]
        return tuple(expired)


@dataclass(frozen=True, slots=True)
class RememberedJob:
    """A cleaned job, as retention knows it. `revision`: of its key `done/<id>`."""

    end_millis: int
    archive_bytes: int
    revision: int


class RememberedIds:
    """The ids of all cleaned jobs, in the order in which they ended."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._jobs: dict[JobId, RememberedJob] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def load(self, jobs: dict[JobId, RememberedJob]) -> None:
        """Take over the stored ids, in any order. Ids that were added meanwhile stay."""
        everything = jobs | self._jobs
        self._jobs = dict(sorted(everything.items(), key=lambda item: item[1].end_millis))
        self._bytes = sum(job.archive_bytes for job in self._jobs.values())

    def add(self, job_id: JobId, job: RememberedJob) -> None:
        """A job was cleaned."""
        self._jobs[job_id] = job
        self._bytes += job.archive_bytes

    def due(self, now_millis: int, limit: int) -> list[JobId]:
        """Ids to forget now, oldest first, at most `limit`."""
        oldest = now_millis - self._retention.age_millis_max
        excess = len(self._jobs) - self._retention.count_max
        excess_bytes = self._bytes - self._retention.bytes_max
        due: list[JobId] = []
        for job_id, job in self._jobs.items():
            is_kept = len(due) >= excess and excess_bytes <= 0 and job.end_millis >= oldest
            if len(due) == limit or is_kept:
                break
            due.append(job_id)
            excess_bytes -= job.archive_bytes
        return due

    def revision(self, job_id: JobId) -> int:
        """The revision that has stored a job as cleaned."""
        return self._jobs[job_id].revision

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Remove ids that the store has forgotten."""
        for job_id in jobs:
            self._bytes -= self._jobs.pop(job_id).archive_bytes
