"""Absences: TaskManagers whose census a job awaits, and when they count as lost (R18).

Invariants: the end of a stream says nothing about the attempts behind it: a TaskManager is lost for a job only when it
was silent for heartbeat.timeout, or is back for that long and its census for the job is not complete (R11). A process
that ran late itself gives every TaskManager the whole timeout again (R4).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from runtime.common.ids import Incarnation, JobId
from runtime.heartbeat.core.monitor import HeartbeatTiming


@dataclass(slots=True)
class Absence:
    """One TaskManager whose census `jobs` await, since the monotonic time `since`.

    `lost`: jobs for which it counts as lost already. They cannot use it before its census, either.
    """

    incarnation: Incarnation
    address: str
    reason: str
    since: float
    jobs: dict[JobId, None] = field(default_factory=dict)
    lost: dict[JobId, None] = field(default_factory=dict)


class Absences:
    """The absences that the JobMasters of one process know."""

    def __init__(self, timing: HeartbeatTiming) -> None:
        self._timing = timing
        self._absences: dict[Incarnation, Absence] = {}
        self._armed_at = 0.0

    def begin(
        self, incarnation: Incarnation, address: str, reason: str, jobs: Iterable[JobId], last_heard: float
    ) -> None:
        """These jobs await a census of the TaskManager, which was heard last at `last_heard`."""
        absence = self._absences.get(incarnation)
        fresh = dict.fromkeys(jobs)
        if absence is None:
            if not fresh:
                return
            absence = self._absences[incarnation] = Absence(incarnation, address, reason, last_heard)
        absence.reason = reason
        absence.since = max(absence.since, last_heard)
        absence.jobs.update((job_id, None) for job_id in fresh if job_id not in absence.lost)

    def heard(self, incarnation: Incarnation, now: float) -> None:
        """The TaskManager is back: it has the timeout from now on to send its censuses."""
        if absence := self._absences.get(incarnation):
            absence.since = now

    def counted(self, incarnation: Incarnation, job_id: JobId) -> None:
        """The census for that job is complete."""
        absence = self._absences.get(incarnation)
        if absence is None:
            return
        absence.jobs.pop(job_id, None)
        absence.lost.pop(job_id, None)
        if not (absence.jobs or absence.lost):
            del self._absences[incarnation]

    def forget(self, incarnation: Incarnation) -> None:
        """The TaskManager is dead."""
        self._absences.pop(incarnation, None)

    def forget_job(self, job_id: JobId) -> None:
        """The job has ended here."""
        for incarnation in list(self._absences):
            self.counted(incarnation, job_id)

    def rearm(self, now: float) -> None:
        """All timeouts start again (R4)."""
        self._armed_at = now

    def overdue(self, now: float) -> list[tuple[Absence, tuple[JobId, ...]]]:
        """TaskManagers that are lost now, each with the jobs for which it is; told once."""
        lost = []
        for absence in self._absences.values():
            if absence.jobs and now - max(absence.since, self._armed_at) >= self._timing.timeout:
                lost.append((absence, tuple(absence.jobs)))
                absence.lost.update(absence.jobs)
                absence.jobs.clear()
        return lost

    def unanswered(self, now: float) -> list[Absence]:
        """TaskManagers to be asked for a census: one with a new stream would have sent it by itself."""
        return [one for one in self._absences.values() if now - one.since >= self._timing.interval / 2]
