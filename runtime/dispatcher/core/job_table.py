"""The jobs of one leadership term that are not cleaned, and those of them that wait for an owner.

Shared by all components that decide on jobs. Invariant: a job waits in the table exactly while it needs an owner and
has no transaction under way.
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime.common.ids import JobId
from runtime.dispatcher.core import effects as ef
from runtime.dispatcher.core.job_entry import JobEntry, JobPhase
from runtime.dispatcher.core.retention import FinishedJob, Retention
from runtime.dispatcher.core.shown_jobs import ShownJobs
from runtime.gateways.dispatcher import JobSummary


class JobTable:
    """Entries by job id. `shown` lists them, and the finished jobs within retention."""

    def __init__(self, retention: Retention) -> None:
        self._entries: dict[JobId, JobEntry] = {}
        self.waiting: dict[JobId, None] = {}
        self.dirty = 0
        self.shown = ShownJobs(self._entries, retention)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[JobEntry]:
        return iter(self._entries.values())

    def __getitem__(self, job_id: JobId) -> JobEntry:
        return self._entries[job_id]

    def get(self, job_id: JobId) -> JobEntry | None:
        """The entry, None for a job that is cleaned or not known."""
        return self._entries.get(job_id)

    def summary(self, job_id: JobId) -> JobSummary | None:
        """The shown summary of a job; a submit that is not stored yet is not shown."""
        return self.shown.summary(job_id)

    def finished(self, job_id: JobId) -> FinishedJob | None:
        """A cleaned job within retention."""
        return self.shown.finished.get(job_id)

    def enter(self, entry: JobEntry) -> None:
        """A job is new, or is another one than the entry of its id says."""
        self._entries[entry.job_id] = entry

    def remove(self, job_id: JobId) -> JobEntry:
        """Remove a job that is cleaned, or was never stored. The caller refreshes the shown summary."""
        return self._entries.pop(job_id)

    def publish(self, entry: JobEntry) -> ef.Effects:
        """Tell that the shown summary of the job has changed."""
        return self.shown.publish(entry.job_id)

    def reload(self, entry: JobEntry) -> ef.Effects:
        """Read the stored state of the job again, unless a transaction that will find it is under way."""
        if entry.phase.state is JobPhase.RELOADING or not entry.phase.can(JobPhase.RELOADING):
            return []
        entry.reload()
        self.waiting.pop(entry.job_id, None)
        return [ef.ReloadJob(entry.job_id)]
