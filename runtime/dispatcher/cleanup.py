"""Reconcilers of finished jobs: one cleans jobs that have a result, the other one forgets jobs that ended long ago.

Neither is on the path of a submit or of an end. Many jobs share one archive object and one transaction. An archive that
the storage does not have is looked for twice, 10 s apart, before its job is cleaned without it (R20).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from runtime.common.errors import PermanentError
from runtime.common.ids import JobId
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.retention import RememberedIds, RememberedJob
from runtime.dispatcher.services import ArchivePointer, DispatcherServices
from runtime.dispatcher.settings import DispatcherSettings
from runtime.dispatcher.stored_jobs import decode_summary, encode_summary
from runtime.highavailability.jobs.job_store import Cleaning
from runtime.highavailability.records import DoneRecord, ResultRecord
from runtime.history.pack import EndedJob

logger = logging.getLogger(__name__)

NO_ARCHIVE = ArchivePointer("", 0, 0, "")
NO_SOURCE = ev.JobSource(JobId(""), "", "", b"", "", 0, "")
FORGET_JOBS_MAX = 100
SECOND_LOOK_SECONDS = 10.0


class JobCleaner:
    """The clean-up of one term. Its only state between two runs: which archives it looks for again, and when."""

    def __init__(
        self,
        settings: DispatcherSettings,
        services: DispatcherServices,
        registry: JobRegistry,
        post: Callable[[ev.DispatcherEvent], None],
    ) -> None:
        self._settings = settings
        self._services = services
        self._registry = registry
        self._post = post
        self._remembered = RememberedIds(settings.remembered)
        self._is_loaded = False
        self._second_looks: dict[JobId, float] = {}

    async def clean(self) -> int:
        """Clean the jobs that have a result now. Returns how many."""
        cleaned = 0
        while jobs := self._registry.dirty(self._settings.clean_jobs_max, self._put_off()):
            cleaned += await self._clean_some(jobs)
        return cleaned

    def _put_off(self) -> set[JobId]:
        now = self._services.clock.monotonic()
        return {job_id for job_id, due in self._second_looks.items() if now < due}

    async def _clean_some(self, jobs: Sequence[JobId]) -> int:
        results = await self._services.store.results(jobs)
        pointers: dict[JobId, ArchivePointer] = {}
        pack: dict[JobId, bytes] = {}
        room = self._settings.pack_bytes_max
        found: list[JobId] = []
        for job_id in jobs:
            result = results[job_id].record if job_id in results else None
            data = await self._archive(job_id, result)
            if data is None:
                continue
            found.append(job_id)
            size = len(data)
            if size > self._settings.pack_bytes_max and result is not None and result.archive.object_key:
                # The archive has an object of its own already.
                await self._keep({job_id: data})
                pointers[job_id] = ArchivePointer(result.archive.object_key, 0, size, result.archive.sha256)
                continue
            if size > room:
                pointers |= await self._pack(pack)
                pack, room = {}, self._settings.pack_bytes_max
            if data:
                pack[job_id] = data
                room -= size
            elif result is not None:
                await self._keep({job_id: data})
        pointers |= await self._pack(pack)
        if found:
            revisions = {job_id: results[job_id].revision for job_id in found if job_id in results}
            await self._store(found, pointers, revisions)
        return len(found)

    async def _pack(self, archives: dict[JobId, bytes]) -> dict[JobId, ArchivePointer]:
        try:
            pointers = await self._services.archives.pack(list(archives.values()))
        except PermanentError:
            logger.exception("%d archives cannot be stored, their jobs keep none: %s", len(archives), list(archives))
            pointers = []
        await self._keep(archives)
        return dict(zip(archives, pointers, strict=bool(pointers)))

    async def _keep(self, archives: dict[JobId, bytes]) -> None:
        """D-115. Before the job is cleaned: who follows repeats it, and readers take the latest of two."""
        entries = ((self._registry.entry(job_id), data) for job_id, data in archives.items())
        ended = [EndedJob(entry.summary, data) for entry, data in entries if entry is not None]
        await self._services.history.write(ended)

    async def _store(
        self, jobs: Sequence[JobId], pointers: dict[JobId, ArchivePointer], results: dict[JobId, int]
    ) -> None:
        cleaned = await self._services.store.clean(
            [
                Cleaning(job_id, self._done(job_id, pointers.get(job_id, NO_ARCHIVE)), results.get(job_id, 0))
                for job_id in jobs
            ]
        )
        if missing := [job_id for job_id in jobs if job_id not in cleaned]:
            # The leader saw a result of each of these jobs: the store was edited by hand since.
            logger.warning("jobs are taken for cleaned although their results were deleted: %s", ", ".join(missing))
        for job_id in jobs:
            entry = self._registry.entry(job_id)
            assert entry is not None, job_id
            size = pointers.get(job_id, NO_ARCHIVE).size_bytes
            self._remembered.add(job_id, RememberedJob(entry.summary.end_millis, size, cleaned.get(job_id, 0)))
        self._post(ev.JobsCleaned(tuple(jobs)))

    async def _archive(self, job_id: JobId, result: ResultRecord | None) -> bytes | None:
        """The archive of a job, b"" if it has none; None: the archive is to be looked for again."""
        is_second_look = self._second_looks.pop(job_id, None) is not None
        if result is None:
            return b""
        try:
            return await self._services.payloads.load(result.archive)
        except PermanentError as error:
            if not is_second_look:
                logger.warning("archive of job %s is looked for again in %g s: %s", job_id, SECOND_LOOK_SECONDS, error)
                self._second_looks[job_id] = self._services.clock.monotonic() + SECOND_LOOK_SECONDS
                return None
            logger.warning("job %s keeps no archive: %s", job_id, error)
            return b""

    def _done(self, job_id: JobId, pointer: ArchivePointer) -> DoneRecord:
        entry = self._registry.entry(job_id)
        assert entry is not None, job_id
        return DoneRecord(
            graph_digest=entry.source.digest,
            status=entry.summary.status,
            summary=encode_summary(entry.summary),
            archive_key=pointer.key,
            archive_offset=pointer.offset,
            archive_size_bytes=pointer.size_bytes,
            archive_sha256=pointer.sha256,
        )

    async def forget(self) -> int:
        """Apply retention to the jobs that are shown and to ids that are taken. Returns how many ids were forgotten."""
        now = self._services.clock.epoch_millis()
        self._registry.shown.expire(now)
        if not self._is_loaded:
            await self._load()
        forgotten = 0
        while due := self._remembered.due(now, FORGET_JOBS_MAX):
            await self._services.store.forget_done([(job_id, self._remembered.revision(job_id)) for job_id in due])
            self._remembered.forget(due)
            forgotten += len(due)
        return forgotten

    async def _load(self) -> None:
        """Read, once in a term, when each cleaned job ended and how large its archive is."""
        ended: dict[JobId, RememberedJob] = {}
        async for record, revision in self._services.store.all_done(skip_unreadable=True):
            summary = decode_summary(record.summary, NO_SOURCE, record.status)
            ended[summary.job_id] = RememberedJob(summary.end_millis, record.archive_size_bytes, revision)
        ended.pop(NO_SOURCE.job_id, None)
        self._remembered.load(ended)
        self._is_loaded = True
