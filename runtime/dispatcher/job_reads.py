"""Jobs that no owner can be asked about: waiting, ended, cleaned, unknown. All are read when asked for.

That a job is not known is said only after a read that shows that the term goes on (R4): a successor, which another
process may have put in our place without our knowledge, may have accepted it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from runtime.common.errors import ConflictError, NotFoundError, PermanentError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.core.events import JobSource
from runtime.dispatcher.services import ArchivePointer, DispatcherServices, PayloadStore
from runtime.dispatcher.stored_jobs import empty_archive, finished_job, unowned_archive
from runtime.gateways.dispatcher import JobSummary
from runtime.highavailability.records import Payload

logger = logging.getLogger(__name__)


class JobReads:
    """The reads of one term."""

    def __init__(self, services: DispatcherServices) -> None:
        self._services = services

    async def unowned(self, source: JobSource, summary: JobSummary, *, can_have_begun: bool) -> bytes:
        """A job that waits for its owner. If it can have begun, what runs is not known: it is shown without tasks."""
        if can_have_begun:
            return empty_archive(source, summary).to_json()
        graph = await load_graph(self._services.payloads, source)
        return unowned_archive(source, graph, summary).to_json()

    async def ended(self, job_id: JobId, summary: JobSummary) -> bytes:
        """A job whose result is stored and not cleaned, or was cleaned just now."""
        stored = await self._services.store.job(job_id)
        if stored is None:
            return await self.cleaned(job_id)
        if stored.result is None:
            source = JobSource(job_id, stored.graph.graph.sha256, summary.name, b"", "", summary.start_millis, "")
            return unowned_archive(source, stored.graph.graph.inline, summary).to_json()
        return await self._services.payloads.load(stored.result.archive)

    async def cleaned(self, job_id: JobId) -> bytes:
        """A cleaned job, from its archive. Raises NotFoundError when there is none."""
        done = await self._services.store.done(job_id)
        if done is None:
            raise await self.unknown(job_id)
        if not done.archive_key:
            message = f"job {job_id} is {done.status.name} and has no archive"
            raise NotFoundError(message)
        pointer = ArchivePointer(done.archive_key, done.archive_offset, done.archive_size_bytes, done.archive_sha256)
        return await self._services.archives.unpack(pointer)

    async def cleaned_summary(self, job_id: JobId) -> JobSummary | None:
        """The summary of a cleaned job; None when the cluster does not know the job."""
        done = await self._services.store.done(job_id)
        if done is None:
            await self._services.store.check_term()
            return None
        return finished_job(job_id, done).summary

    async def cleaned_summaries(self, jobs: Sequence[JobId]) -> Mapping[JobId, JobSummary]:
        """The summaries of cleaned jobs; jobs that are not known are left out."""
        found = await self._services.store.dones(jobs)
        if len(found) < len(jobs):
            await self._services.store.check_term()
        return {job_id: finished_job(job_id, done).summary for job_id, done in found.items()}

    async def check_cancel_of_cleaned(self, job_id: JobId) -> None:
        """Check the cancel of a cleaned job. Raises NotFoundError, and ConflictError unless the job was cancelled."""
        done = await self._services.store.done(job_id)
        if done is None:
            raise await self.unknown(job_id)
        if done.status is not JobStatus.CANCELED:
            message = f"job {job_id} cannot be cancelled: it is {done.status.name}"
            raise ConflictError(message)

    async def unknown(self, job_id: JobId) -> NotFoundError:
        """The error that says that a job is not known. Raises StaleTokenError when the term is over (R4)."""
        await self._services.store.check_term()
        return NotFoundError(f"job {job_id} is not known")


async def load_graph(payloads: PayloadStore, source: JobSource) -> bytes:
    """The bytes of a job graph, b"" when the storage does not have them."""
    if source.graph or not source.graph_key:
        return source.graph
    try:
        return await payloads.load(Payload(source.digest, b"", source.graph_key))
    except PermanentError as error:
        logger.warning("graph of job %s cannot be read: %s", source.job_id, error)
        return b""
