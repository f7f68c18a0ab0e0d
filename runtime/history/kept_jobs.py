"""Which jobs of the histories are kept in memory, of all that their files tell of. No I/O.

At most `jobs_max` are kept, of which each directory has its share: as many as it has, or as all others have that want
more. So whoever writes into one directory pushes out jobs of that one only (R56). Within a share the jobs that ended
last are kept. Of what is left out it is known which files have it, so that it can be read again when there is room.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runtime.common.ids import JobId
from runtime.gateways.dispatcher import JobSummary
from runtime.history.pack import IndexedJob, PackIndex
from runtime.history.reader import PackFile

_STALE_MAX = 1000


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job of a history."""

    file: PackFile
    begin: int
    job: IndexedJob


class HiddenJob(NamedTuple):
    """`cluster`: whose job of the same id is shown in its place."""

    job_id: JobId
    cluster: str


@dataclass(slots=True)
class _File:
    """The kept jobs of a file; how many are left out, and when the last of those ended."""

    kept: list[JobId] = field(default_factory=list)
    left: int = 0
    left_end: int = -1


@dataclass(slots=True)
class _Source:
    """A directory. `oldest`: a heap of (end, number, job), with jobs too that are not kept any more."""

    files: dict[PackFile, _File] = field(default_factory=dict)
    oldest: list[tuple[int, int, ShownJob]] = field(default_factory=list)
    kept: int = 0
    left: int = 0
    share: int = 0


class KeptJobs:
    """Changed by one thread at a time. `get` may be called by another one meanwhile."""

    def __init__(self, sources: int, *, jobs_max: int) -> None:
        self._sources = [_Source() for _ in range(sources)]
        self._jobs_max = jobs_max
        self._by_id: dict[JobId, tuple[ShownJob, ...]] = {}
        """All that are kept under an id, that which is shown first. What hides another may go."""
        self._number = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, job_id: JobId) -> ShownJob | None:
        """The one that is shown."""
        found = self._by_id.get(job_id)
        return None if found is None else found[0]

    def summaries(self) -> list[JobSummary]:
        """Those of all that are shown."""
        return [found[0].job.summary for found in self._by_id.values()]

    def put(self, file: PackFile, index: PackIndex) -> Mapping[PackFile, Sequence[HiddenJob]]:
        """Keep the jobs of a file, in place of what was kept of it.

        Returns jobs that are hidden from now on, by their files: those of this one that others hide, and those that it
        hides, as directories are read side by side.
        """
        self.drop(file)
        source = self._sources[file.source]
        there = source.files[file] = _File()
        hidden: dict[PackFile, list[HiddenJob]] = {}
        for job_id, job in {one.summary.job_id: one for one in index.jobs}.items():
            made = ShownJob(file, index.begin, job)
            same = sorted((*self._by_id.get(job_id, ()), made), key=_rank, reverse=True)
            self._by_id[job_id] = tuple(same)
            there.kept.append(job_id)
            self._number += 1
            heapq.heappush(source.oldest, (job.summary.end_millis, self._number, made))
            shown, below = same[0].file, (same[1] if same[0] is made and len(same) > 1 else made).file
            if (shown.source, shown.cluster) != (below.source, below.cluster):
                hidden.setdefault(below, []).append(HiddenJob(job_id, shown.cluster))
        source.kept += len(there.kept)
        return hidden

    def drop(self, file: PackFile) -> bool:
        """Forget what a file had. True if it was known."""
        source = self._sources[file.source]
        there = source.files.pop(file, None)
        if there is None:
            return False
        for job_id in there.kept:
            self._remove(job_id, file)
        source.kept -= len(there.kept)
        source.left -= there.left
        return True

    def give_up(self, file: PackFile) -> None:
        """What is left out of a file cannot be read: it is asked for no more."""
        source = self._sources[file.source]
        there = source.files[file]
        source.left -= there.left
        there.left, there.left_end = 0, -1

    def bound(self) -> None:
        """Leave out what is above the shares."""
        self._share()
        for source in self._sources:
            while source.kept > source.share:
                _, _, oldest = heapq.heappop(source.oldest)
                if self._is_kept(oldest):
                    self._leave_out(source, oldest)
            if len(source.oldest) > 2 * source.kept + _STALE_MAX:
                source.oldest = [one for one in source.oldest if self._is_kept(one[2])]
                heapq.heapify(source.oldest)

    def wanted(self, number: int, files_max: int) -> Sequence[PackFile]:
        """Files of a directory to be read again: there is room for jobs of theirs that were left out."""
        source = self._sources[number]
        room = source.share - source.kept
        if not source.left or room < 0:
            return ()
        ended = -1 if room else self._end_of_oldest(source)
        some = ((one.left_end, file) for file, one in source.files.items() if one.left and one.left_end > ended)
        return [file for _, file in heapq.nlargest(min(max(room, 1), files_max), some, key=lambda one: one[0])]

    def _share(self) -> None:
        """Who has the least is served first, and all others share what is left."""
        room = self._jobs_max
        sources = sorted(self._sources, key=lambda one: one.kept + one.left)
        for number, source in enumerate(sources):
            source.share = min(source.kept + source.left, room // (len(sources) - number))
            room -= source.share

    def _end_of_oldest(self, source: _Source) -> int:
        while source.oldest and not self._is_kept(source.oldest[0][2]):
            heapq.heappop(source.oldest)
        return source.oldest[0][0] if source.oldest else -1

    def _is_kept(self, job: ShownJob) -> bool:
        return any(one is job for one in self._by_id.get(job.job.summary.job_id, ()))

    def _leave_out(self, source: _Source, oldest: ShownJob) -> None:
        summary = oldest.job.summary
        self._remove(summary.job_id, oldest.file)
        there = source.files[oldest.file]
        there.kept.remove(summary.job_id)
        there.left += 1
        there.left_end = max(there.left_end, summary.end_millis)
        source.kept -= 1
        source.left += 1

    def _remove(self, job_id: JobId, file: PackFile) -> None:
        rest = tuple(one for one in self._by_id[job_id] if one.file != file)
        if rest:
            self._by_id[job_id] = rest
        else:
            del self._by_id[job_id]


def _rank(job: ShownJob) -> tuple[int, str]:
    return -job.file.source, job.file.name
