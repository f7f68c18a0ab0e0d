"""The jobs of all histories, in memory: their lines of the lists, newest first, and where each archive lies."""

from __future__ import annotations

import heapq
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.blob.blocking import BlockingIo
from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError, NotFoundError
from runtime.common.ids import JobId
from runtime.common.masking import without_login
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import JobSummary
from runtime.history.pack import IndexedJob, PackIndex
from runtime.history.reader import HistoryReader, PackFile

logger = logging.getLogger(__name__)

FULL_LOOK_EVERY = 60
"""Each 60th look lists the days that are over, too: of those a cluster deletes files only."""
_READ_AT_ONCE = 100
"""Files that are read before what they hold is shown."""


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job of a history."""

    file: PackFile
    begin: int
    job: IndexedJob


class Catalogue:
    """All jobs that the files tell of; of those at most `jobs_max`, the ones that ended last.

    Of two with one id the job of the directory that is configured first is shown, then that of the latest file: who may
    write into one directory changes nothing of what others show (R56).
    """

    def __init__(self, readers: Sequence[HistoryReader], io: BlockingIo, clock: Clock, *, jobs_max: int) -> None:
        self._readers = readers
        self._io = io
        self._clock = clock
        self._jobs_max = jobs_max
        self._jobs: dict[JobId, ShownJob] = {}
        self._looks = 0
        self._newest_first: list[JobSummary] | None = None
        self._counts: Counter[JobStatus] = Counter()
        self._trouble: dict[int, str] = {}
        self.changes = 0
        """How often what is shown has changed."""

    async def refresh(self) -> int:
        """Look at all directories. Returns how many files were new. A reconciler."""
        is_full = self._looks % FULL_LOOK_EVERY == 0
        self._looks += 1
        added = 0
        for number, reader in enumerate(self._readers):
            try:
                look = await self._io.run(reader.look, self._clock.epoch_millis(), is_full=is_full)
            except (FlinklikeError, OSError) as error:
                self._tell_trouble(number, f"{without_login(reader.url)} cannot be listed: {error}")
                continue
            self._tell_trouble(number, "")
            self._drop(look.gone)
            # Newest first: what people look for is there after the first files.
            files = sorted(look.added, key=lambda one: one.name, reverse=True)
            for start in range(0, len(files), _READ_AT_ONCE):
                some = files[start : start + _READ_AT_ONCE]
                for file, index in await self._io.run(_read_all, reader, some):
                    self._take(file, index)
                self._bound()
            added += len(files)
        return added

    def _tell_trouble(self, number: int, sentence: str) -> None:
        """Once until it changes."""
        before = self._trouble.get(number, "")
        if sentence and sentence != before:
            logger.warning("%s; what was read before stays", sentence)
        elif before and not sentence:
            logger.info("%s can be listed again", without_login(self._readers[number].url))
        self._trouble[number] = sentence

    def _take(self, file: PackFile, index: PackIndex) -> None:
        hidden = []
        for job in index.jobs:
            before = self._jobs.get(job.summary.job_id)
            if before is None or _rank(before.file) < _rank(file):
                self._jobs[job.summary.job_id] = ShownJob(file, index.begin, job)
                self._changed()
            elif (before.file.source, before.file.cluster) != (file.source, file.cluster):
                hidden.append((job.summary.job_id, before.file.cluster))
        if hidden:
            text = (
                "%d jobs of cluster %s (%s) are not shown: other histories have jobs with their ids, such as %s of %s"
            )
            logger.warning(text, len(hidden), file.cluster, file.path, *hidden[0])

    def _drop(self, files: Sequence[PackFile]) -> None:
        if not files:
            return
        gone = frozenset(files)
        kept = {job_id: shown for job_id, shown in self._jobs.items() if shown.file not in gone}
        if len(kept) < len(self._jobs):
            self._jobs = kept
            self._changed()

    def _bound(self) -> None:
        excess = len(self._jobs) - self._jobs_max
        if excess <= 0:
            return
        oldest = heapq.nsmallest(excess, self._jobs, key=lambda job_id: self._jobs[job_id].job.summary.end_millis)
        for job_id in oldest:
            del self._jobs[job_id]
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._newest_first = None

    def newest_first(self) -> Sequence[JobSummary]:
        """The lines of all jobs, by their start."""
        if self._newest_first is None:
            summaries = [one.job.summary for one in self._jobs.values()]
            self._newest_first = sorted(summaries, key=lambda one: (one.start_millis, one.job_id), reverse=True)
            self._counts = Counter(one.status for one in summaries)
        return self._newest_first

    def counts(self) -> Mapping[JobStatus, int]:
        """How many there are of each status."""
        self.newest_first()
        return self._counts

    def summary(self, job_id: JobId) -> JobSummary | None:
        """The line of a job, None for one that no history has."""
        shown = self._jobs.get(job_id)
        return None if shown is None else shown.job.summary

    def cluster(self, job_id: JobId) -> str:
        """The id of the cluster that has run a job; "" for one that no history has."""
        shown = self._jobs.get(job_id)
        return "" if shown is None else shown.file.cluster

    async def archive(self, job_id: JobId) -> bytes:
        """The archived execution graph of a job. Raises NotFoundError when no history has it, or not any more."""
        shown = self._jobs.get(job_id)
        if shown is None:
            message = f"job {job_id} is in no history that this server reads"
            raise NotFoundError(message)
        if not shown.job.archive_bytes:
            message = f"job {job_id} is {shown.job.summary.status.name} and has no archive"
            raise NotFoundError(message)
        reader = self._readers[shown.file.source]
        return await self._io.run(reader.archive, shown.file, shown.begin, shown.job)


def _rank(file: PackFile) -> tuple[int, str]:
    return -file.source, file.name


def _read_all(reader: HistoryReader, files: Sequence[PackFile]) -> list[tuple[PackFile, PackIndex]]:
    found = ((file, reader.read(file)) for file in files)
    return [(file, index) for file, index in found if index is not None]
