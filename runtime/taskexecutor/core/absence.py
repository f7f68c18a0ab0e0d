"""How long each job has had no owner connected (R18). Pure: the caller measures time, and leaves out what does not
count.

Invariants: a job whose owner is connected starts at nothing again; a job is given up once per absence.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.common.ids import JobId


class OwnerAbsence:
    """The waits of all jobs of one TaskManager. `timeout` in seconds."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._away: dict[JobId, float] = {}

    def passed(self, seconds: float, absent: Iterable[JobId]) -> list[JobId]:
        """Add time in which no owner was connected for the jobs in `absent`. Returns the jobs to give up."""
        before = self._away
        self._away = {job_id: before.get(job_id, 0.0) + seconds for job_id in absent}
        return [
            job_id
            for job_id, away in self._away.items()
            if away >= self.timeout and before.get(job_id, 0.0) < self.timeout
        ]
