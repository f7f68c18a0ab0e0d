"""The shown summaries of jobs, in the order of the lists, and the number of jobs of each status.

Every change updates both, so that a list of many jobs is read, and not made.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase
from runtime.dispatcher.core.retention import FinishedJob, FinishedJobs, Retention
from runtime.gateways.dispatcher import JobSummary, TaskCounts

_Place = tuple[int, int, JobId]
"""(start, which job was shown first, the job): oldest first, so that a new job is added at the end."""


class ShownJobs:
    """The jobs of the registry without submits that are not stored yet, and cleaned jobs within retention.

    Every change of what is shown of one of `jobs` is followed by a call of `refresh` with its id, or of `publish`.
    """

    def __init__(self, jobs: Mapping[JobId, JobEntry], retention: Retention) -> None:
        self.finished = FinishedJobs(retention)
        self._jobs = jobs
        self._listed: dict[JobId, tuple[JobSummary, _Place]] = {}
        self._places: list[_Place] = []
        self._counts: Counter[JobStatus] = Counter()
        self._unfinished_of: Counter[str] = Counter()
        self._unfinished_in: Counter[str] = Counter()
        self._unfinished_at: Counter[str] = Counter()
        self._number = 0
        self.changes = 0
        """How often what is shown has changed."""
        self.jobs_ended = 0
        """How many jobs were seen to end: those that had ended before they were shown are not counted."""
        self.tasks_ended = 0
        """How many subtasks of shown jobs were seen to end."""

    def summary(self, job_id: JobId) -> JobSummary | None:
        """The shown summary of a job."""
        entry = self._jobs.get(job_id)
        if entry is not None and entry.phase.state is not JobPhase.SUBMITTING:
            return entry.summary
        finished = self.finished.get(job_id)
        return None if finished is None else finished.summary

    def newest_first(self) -> list[JobSummary]:
        """The summaries of all jobs."""
        return [self._listed[job_id][0] for _, _, job_id in reversed(self._places)]

    def counts(self) -> Mapping[JobStatus, int]:
        """How many there are of each status; a status without jobs may be missing."""
        return self._counts

    def unfinished_of(self, submitter: str) -> int:
        """How many jobs of that submitter have not ended."""
        return self._unfinished_of[submitter]

    def unfinished_in(self, namespace: str) -> int:
        """How many jobs in that namespace have not ended."""
        return self._unfinished_in[namespace]

    @property
    def queues(self) -> Collection[str]:
        """The queues of jobs that have not ended (D-128)."""
        return self._unfinished_at.keys()

    def publish(self, job_id: JobId) -> list[ef.DispatcherEffect]:
        """Update the lists, and wake long polls: the shown summary of the job has changed."""
        self.refresh((job_id,))
        return [ef.PublishSummary(job_id)]

    def keep(self, job: FinishedJob) -> None:
        """Show a job that is cleaned; the jobs that ended first leave if there are too many."""
        self.refresh((*self.finished.add(job), job.summary.job_id))

    def expire(self, now_millis: int) -> None:
        """Show the jobs no more that ended too long ago."""
        self.refresh(self.finished.expire(now_millis))

    def refresh(self, jobs: Iterable[JobId]) -> None:
        """Bring these jobs up to date in the lists."""
        for job_id in jobs:
            self._list(job_id, self.summary(job_id))

    def _list(self, job_id: JobId, summary: JobSummary | None) -> None:
        before, place = self._listed.pop(job_id, (None, None))
        self.changes += 1
        if before is not None:
            self._count(before, -1)
            self._note_ends(before, summary)
        if place is not None and (summary is None or summary.start_millis != place[0]):
            del self._places[bisect_left(self._places, place)]
            place = None
        if summary is None:
            return
        if place is None:
            self._number += 1
            place = (summary.start_millis, self._number, job_id)
            insort(self._places, place)
        self._count(summary, 1)
        self._listed[job_id] = (summary, place)

    def _note_ends(self, before: JobSummary, after: JobSummary | None) -> None:
        if after is None or before.status.is_globally_terminal:
            return
        self.jobs_ended += after.status.is_globally_terminal
        self.tasks_ended += max(0, _ended(after.tasks) - _ended(before.tasks))

    def _count(self, summary: JobSummary, by: int) -> None:
        self._counts[summary.status] += by
        if summary.status.is_globally_terminal:
            return
        for counter, key in (
            (self._unfinished_of, summary.submitter),
            (self._unfinished_in, summary.namespace),
            (self._unfinished_at, summary.queue),
        ):
            counter[key] += by
            if not counter[key]:
                del counter[key]


def _ended(tasks: TaskCounts) -> int:
    return tasks.finished + tasks.canceled + tasks.failed
