"""The jobs of all histories, in memory: their lines of the lists, newest first, and where each archive lies.

Files are read, and what they tell is sorted in, in a thread for each directory (`DirectoryCalls`); the loop looks at
what is there, and waits for none of it. What threads share they change under a lock, in which nothing is read.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError, NotFoundError
from runtime.common.ids import JobId
from runtime.common.masking import without_login
from runtime.common.printable import printable
from runtime.common.states import JobStatus
from runtime.gateways.dispatcher import JobSummary
from runtime.history.directory_calls import DirectoryCalls
from runtime.history.kept_jobs import KeptJobs
from runtime.history.reader import HistoryReader, PackFile

logger = logging.getLogger(__name__)

FULL_LOOK_EVERY = 60
"""Each 60th look lists the days that are over, too: of those a cluster deletes files only."""
_READ_AT_ONCE = 100
"""Files that are read before what they hold is shown."""
_AGAIN_MAX = 1000
"""Files of one directory that one look reads again, for jobs for which there was no room before."""
_GROWTH = 1.5
"""What is there is sorted when it is so many times as much as was sorted, and at the end of a look."""


class Catalogue:
    """All jobs that the files tell of; of those at most `jobs_max`, shared by the directories (`KeptJobs`).

    Of two with one id the job of the directory that is configured first is shown, then that of the latest file: who may
    write into one directory changes nothing of what others show (R56). When a file goes, or there is more room, what it
    hid or kept out is shown again.
    """

    def __init__(self, readers: Sequence[HistoryReader], clock: Clock, *, jobs_max: int) -> None:
        self._readers = readers
        self._calls = [DirectoryCalls(reader.url) for reader in readers]
        self._lock = threading.Lock()
        self._clock = clock
        self._jobs = KeptJobs(len(readers), jobs_max=jobs_max)
        self._looks = 0
        self._newest_first: Sequence[JobSummary] = ()
        self._counts: Mapping[JobStatus, int] = {}
        self._trouble: dict[int, str] = {}
        self._is_sorted = True
        self.changes = 0
        """How often what is shown has changed."""

    async def refresh(self) -> int:
        """Look at all directories, side by side. Returns how many files were new. A reconciler."""
        is_full = self._looks % FULL_LOOK_EVERY == 0
        self._looks += 1
        now = self._clock.epoch_millis()
        async with asyncio.TaskGroup() as group:
            looks = [
                group.create_task(self._look(number, partial(self._look_at, number, now, is_full=is_full)))
                for number in range(len(self._readers))
            ]
        added = [one.result() for one in looks]
        there = [number for number, found in enumerate(added) if found is not None]
        async with asyncio.TaskGroup() as group:
            for number in there:
                _ = group.create_task(self._look(number, partial(self._read_left, number)))
        if not self._is_sorted:
            await asyncio.to_thread(self._sort)
        return sum(found or 0 for found in added)

    async def _look(self, number: int, work: Callable[[], int]) -> int | None:
        """None where the directory cannot be looked at now."""
        try:
            found = await self._calls[number].look(work)
        except (FlinklikeError, OSError) as error:
            self._tell_trouble(number, f"{without_login(self._readers[number].url)} cannot be listed: {error}")
            return None
        self._tell_trouble(number, "")
        return found

    def _look_at(self, number: int, now_millis: int, *, is_full: bool) -> int:
        """What is new in a directory, and what is gone. In its thread, as all that follows but for the sorting."""
        reader = self._readers[number]
        look = reader.look(now_millis, is_full=is_full)
        with self._lock:
            self._drop(look.gone)
        # Newest first: what people look for is there after the first files.
        files = sorted(look.added, key=lambda one: one.name, reverse=True)
        for start in range(0, len(files), _READ_AT_ONCE):
            self._read(reader, files[start : start + _READ_AT_ONCE])
        return len(files)

    def _read_left(self, number: int) -> int:
        """Read again what was left out, as far as there is room now."""
        read = 0
        while read < _AGAIN_MAX:
            with self._lock:
                some = self._jobs.wanted(number, _READ_AT_ONCE)
            if not some:
                break
            self._read_again(self._readers[number], some)
            read += len(some)
        return read

    def _tell_trouble(self, number: int, sentence: str) -> None:
        """Once until it changes."""
        before = self._trouble.get(number, "")
        if sentence and sentence != before:
            logger.warning("%s; what was read before stays", sentence)
        elif before and not sentence:
            logger.info("%s can be listed again", without_login(self._readers[number].url))
        self._trouble[number] = sentence

    def _drop(self, files: Sequence[PackFile]) -> None:
        for file in files:
            self._is_sorted &= not self._jobs.drop(file)
        self._jobs.bound()

    def _read(self, reader: HistoryReader, files: Sequence[PackFile]) -> None:
        for file in files:
            index = reader.read(file)
            if index is None:
                continue
            with self._lock:
                hidden = self._jobs.put(file, index)
                self._is_sorted = False
                self._jobs.bound()
            for below, jobs in hidden.items():
                text = (
                    "%d jobs of cluster %s (%s) are not shown: other histories have jobs with their ids, such as %s of "
                    "%s"
                )
                logger.warning(text, len(jobs), printable(below.cluster), printable(below.path), *jobs[0])
        if len(self._jobs) > _GROWTH * len(self._newest_first):
            self._sort()

    def _read_again(self, reader: HistoryReader, files: Sequence[PackFile]) -> None:
        for file in files:
            index = reader.read(file)
            with self._lock:
                if index is None:  # it is said why; what the storage does not give now is new to the next look
                    self._jobs.give_up(file)
                    continue
                self._jobs.put(file, index)
                self._is_sorted = False
                self._jobs.bound()

    def _sort(self) -> None:
        """Show what is there now."""
        with self._lock:
            summaries = self._jobs.summaries()
            self._counts = Counter(one.status for one in summaries)
            self._newest_first = sorted(summaries, key=lambda one: (one.start_millis, one.job_id), reverse=True)
            self._is_sorted = True
            self.changes += 1

    def newest_first(self) -> Sequence[JobSummary]:
        """The lines of all jobs, by their start."""
        return self._newest_first

    def counts(self) -> Mapping[JobStatus, int]:
        """How many there are of each status."""
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
        """The archived execution graph of a job. Raises NotFoundError when no history has it, or not any more, and
        UnavailableError when its directory does not give it in time.
        """
        shown = self._jobs.get(job_id)
        if shown is None:
            message = f"job {job_id} is in no history that this server reads"
            raise NotFoundError(message)
        if not shown.job.archive_bytes:
            message = f"job {job_id} is {shown.job.summary.status.name} and has no archive"
            raise NotFoundError(message)
        reader = self._readers[shown.file.source]
        return await self._calls[shown.file.source].read(partial(reader.archive, shown.file, shown.begin, shown.job))
