"""Adoption: the pure decision which job a try of a task continues, from the stored job and its state on the cluster.

The id is stored before the submit. `max_tries` is constant over the retries of a task, and a clear raises it, so it
tells one life of the task from the next. The start of the run does too: a clear restarts a run that had ended.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from airflow_flinklike.task_instance.stored_job import StoredJob
from runtime.common.ids import JobId
from runtime.common.states import JobStatus


@dataclass(frozen=True, slots=True)
class TaskLife:
    """One life of a task. It ends when a user clears the task, or deletes its run, which may be created again."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    run_started: str
    max_tries: int

    def job_id_of(self, number: int) -> JobId:
        """The id of the life's job of that number, so that a job is found when no store has its id."""
        parts = [self.dag_id, self.run_id, self.task_id, self.map_index, self.run_started, self.max_tries, number]
        return JobId(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32])

    def owns(self, job_id: JobId, number: int | None = None) -> bool:
        """True for the id of a job of this life, or of one that a clear has ended since the run was started.

        `number` is that of the job, None for one that its tries have counted. Nobody can make an id of another task.
        True as well for a job that all runs of the task share (`SharedTask`).
        """
        if number is not None:
            shared = SharedTask(self.dag_id, self.task_id, self.map_index)
            return job_id in {self.job_id_of(number), shared.job_id_of(number)}
        if any(self.job_id_of(one) == job_id for one in range(1, _TRIES_LOOKED_AT + 1)):
            return True
        oldest = max(0, self.max_tries - _LIVES_LOOKED_AT)
        before = (replace(self, max_tries=one) for one in range(oldest, self.max_tries))
        return any(life.job_id_of(one) == job_id for life in before for one in range(1, _TRIES_OF_OTHERS + 1))

    def id_after(self, ended: JobId | None, try_number: int) -> JobId | None:
        """The id of the job that follows the job `ended` of this life, or its first id.

        So a try whose submit is still under way when its worker has died and the try after it have chosen one id: the
        cluster accepts one of them. None when the life has no such job.
        """
        if ended is None:
            return self.job_id_of(1)
        numbers = range(1, try_number + 1)
        return next((self.job_id_of(one + 1) for one in numbers if self.job_id_of(one) == ended), None)

    def earlier_jobs(self, try_number: int, *, has_lives_before: bool = False) -> Iterator[StoredJob]:
        """The jobs that earlier tries of this life may have submitted, the newest first.

        `has_lives_before`: then those of the lives that clears have ended since the run was started. A clear raises
        `max_tries`.
        """
        lives = [(self, _TRIES_LOOKED_AT)]
        if has_lives_before:
            oldest = max(0, self.max_tries - _LIVES_LOOKED_AT)
            before = range(self.max_tries - 1, oldest - 1, -1)
            lives += [(replace(self, max_tries=one), _TRIES_OF_OTHERS) for one in before]
        for life, tries in lives:
            for number in range(min(try_number - 1, tries), 0, -1):
                yield StoredJob(life.job_id_of(number), life.max_tries, life.run_started)


@dataclass(frozen=True, slots=True)
class SharedTask:
    """A task whose runs share one job, which the first of them submits and the others find (`ensure_running`)."""

    dag_id: str
    task_id: str
    map_index: int

    def job_id_of(self, number: int) -> JobId:
        """The id of the task's job of that number. It says nothing of the run."""
        parts = ["all runs", self.dag_id, self.task_id, self.map_index, number]
        return JobId(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32])

    def numbers(self) -> dict[JobId, int]:
        """The ids among which the job is looked for, with their numbers."""
        return {self.job_id_of(number): number for number in range(1, _TRIES_LOOKED_AT + 1)}


def number_after(known: Collection[int]) -> int | None:
    """The number of the next job of a SharedTask. `known`: those of ended jobs that the cluster knows.

    Two runs that look at once find the same, so the cluster accepts one of them. None: each number is known.
    """
    latest = max(known, default=0)
    after = [*range(latest + 1, _TRIES_LOOKED_AT + 1), *range(1, latest)]
    return next((number for number in after if number not in known), None)


_TRIES_LOOKED_AT = 500
_TRIES_OF_OTHERS = 10
_LIVES_LOOKED_AT = 50


@dataclass(frozen=True, slots=True)
class Adopt:
    """The job runs: wait for its end."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class TakeResult:
    """The job is FINISHED: its value is that of the task."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class Submit:
    """Submit with this id, or with a new one."""

    job_id: JobId | None = None


@dataclass(frozen=True, slots=True)
class EndThenSubmit:
    """Wait for the end of the job, so that it and its successor never run at once; then decide again.

    `is_cleared`: a user has cleared the task, so the job may be cancelled.
    """

    job_id: JobId
    is_cleared: bool


Decision = Adopt | TakeResult | Submit | EndThenSubmit


def decide(stored: StoredJob | None, observed: JobStatus | None, max_tries: int, run_started: str = "") -> Decision:
    """The decision of a try. `observed` is the state of the stored job, None when the cluster does not know the job.

    `run_started` is "" when it is unknown.
    """
    if stored is None:
        return Submit()
    if not stored.is_of(max_tries, run_started):
        return _decide_cleared(stored.job_id, observed)
    return _decide_retry(stored.job_id, observed)


def _decide_retry(job_id: JobId, observed: JobStatus | None) -> Decision:
    match observed:
        case None:
            # An earlier try died before its submit, or its request is still under way: the same id settles it.
            return Submit(job_id)
        case JobStatus.FINISHED:
            return TakeResult(job_id)
        case JobStatus.FAILED | JobStatus.CANCELED:
            return Submit()
        case JobStatus.FAILING | JobStatus.CANCELLING:
            return EndThenSubmit(job_id, is_cleared=False)
        case _:
            return Adopt(job_id)


def _decide_cleared(job_id: JobId, observed: JobStatus | None) -> Decision:
    """The old id is never used again: the trigger of the life before may be about to cancel that job."""
    if observed is None or observed.is_globally_terminal:
        return Submit()
    return EndThenSubmit(job_id, is_cleared=True)
