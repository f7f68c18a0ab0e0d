"""Writes ended jobs into the history of a cluster, and bounds its size. The leading JobManager does both.

The files of a cluster lie in `cluster-<its id>/<day>/<milliseconds>-<hex>.jobs`. Each is complete when it can be seen.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from runtime.blob.blocking import BlockingIo
from runtime.blob.directory import TMP, StorageDirectory
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import FlinklikeError
from runtime.history.pack import EndedJob, make_pack

logger = logging.getLogger(__name__)

FILE_NAME = re.compile(r"(?P<millis>[0-9]{13})-[0-9a-f]{32}\.jobs")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
CLUSTER_PREFIX = "cluster-"
"""In front of a cluster's id, which may be `tmp` or `..`."""
_STAGED_MILLIS_MAX = 60 * 60 * 1000
"""A file that is written for longer was left by a process that has died."""


def day_of(millis: int) -> str:
    """The folder of what is written at that time."""
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d")


class HistoryWriter:
    """The history of one cluster below `directory`. `bytes_max` 0: none is written."""

    def __init__(
        self,
        directory: StorageDirectory,
        cluster_id: str,
        io: BlockingIo,
        clock: Clock,
        entropy: Entropy,
        *,
        bytes_max: int,
    ) -> None:
        self._directory = directory
        self._folder = f"{CLUSTER_PREFIX}{cluster_id}"
        self._io = io
        self._clock = clock
        self._entropy = entropy
        self._bytes_max = bytes_max

    async def write(self, jobs: Sequence[EndedJob], /) -> None:
        """Write these jobs into one file. What cannot be written is logged: a history keeps no job from ending."""
        if not self._bytes_max or not jobs:
            return
        millis = self._clock.epoch_millis()
        name = f"{millis:013d}-{self._entropy.hex_id()}.jobs"
        try:
            await self._io.run(self._write, name, f"{self._folder}/{day_of(millis)}/{name}", jobs)
        except FlinklikeError as error:
            ids = ", ".join(job.summary.job_id for job in jobs[:10])
            logger.warning("%d ended jobs are missing in the history (%s): %s", len(jobs), ids, error)

    def _write(self, staged: str, name: str, jobs: Sequence[EndedJob]) -> None:
        data = make_pack(jobs)
        file = self._directory.stage(staged)
        try:
            file.write(data)
            file.publish(name)
        finally:
            file.discard()

    async def bound(self) -> int:
        """Delete the oldest files above the size, and what was never finished. Returns how many. A reconciler."""
        return await self._io.run(self._bound, self._clock.epoch_millis())

    def _bound(self, now: int) -> int:
        deleted = 0
        for staged in self._directory.files(TMP):
            found = FILE_NAME.fullmatch(staged.name)
            if found is not None and int(found["millis"]) < now - _STAGED_MILLIS_MAX:
                self._directory.delete(f"{TMP}/{staged.name}")
                deleted += 1
        room = self._bytes_max
        for day in sorted(filter(DAY.fullmatch, self._directory.folders(self._folder)), reverse=True):
            folder = f"{self._folder}/{day}"
            for file in reversed(self._directory.files(folder)):
                room -= file.size_bytes
                if room < 0 and FILE_NAME.fullmatch(file.name):
                    self._directory.delete(f"{folder}/{file.name}")
                    deleted += 1
        return deleted
