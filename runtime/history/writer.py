"""Writes ended jobs into the history of a cluster, and bounds its size. The leading JobManager does both.

The files of a cluster lie in `cluster-<its id>/<day>/<milliseconds>-<hex>.jobs`. Each is complete when it can be seen.
While the directory of the history cannot be written they lie in the folder `history-waiting` of the storage directory.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from runtime.aio.blocking import BlockingIo
from runtime.blob.directory import TMP, StorageDirectory
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import FlinklikeError
from runtime.common.masking import without_login
from runtime.common.printable import printable
from runtime.history.pack import EndedJob, make_pack

logger = logging.getLogger(__name__)

FILE_NAME = re.compile(r"(?P<millis>[0-9]{13})-[0-9a-f]{32}\.jobs")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
CLUSTER_PREFIX = "cluster-"
"""In front of a cluster's id, which may be `tmp` or `..`."""
_STAGED_MILLIS_MAX = 60 * 60 * 1000
"""A file that is written for longer was left by a process that has died."""
WAITING = "history-waiting"
_PIECE = 1 << 20


def day_of(millis: int) -> str:
    """The folder of what is written at that time."""
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d")


class HistoryWriter:
    """The history of one cluster. `open_history` opens its directory, or raises FlinklikeError. `bytes_max` 0: none.

    What that directory does not take now waits in `storage`, within `bytes_max` too, and is carried over later. A
    process that dies while it does so has carried a file or not: who follows carries it again, under its name.
    """

    def __init__(
        self,
        open_history: Callable[[], StorageDirectory],
        storage: StorageDirectory,
        cluster_id: str,
        io: BlockingIo,
        clock: Clock,
        entropy: Entropy,
        *,
        bytes_max: int,
    ) -> None:
        self._open_history = open_history
        self._opened: StorageDirectory | None = None
        self._storage = storage
        self._folder = f"{CLUSTER_PREFIX}{cluster_id}"
        self._io = io
        self._clock = clock
        self._entropy = entropy
        self._bytes_max = bytes_max
        self.trouble = ""
        """Why ended jobs wait in the storage directory, "" while nothing is wrong."""

    async def write(self, jobs: Sequence[EndedJob], /) -> None:
        """Write these jobs into one file. What nobody takes is logged: a history keeps no job from ending."""
        if not self._bytes_max or not jobs:
            return
        millis = self._clock.epoch_millis()
        name = f"{self._folder}/{day_of(millis)}/{millis:013d}-{self._entropy.hex_id()}.jobs"
        try:
            await self._io.run(self._write, name, jobs)
        except FlinklikeError as error:
            ids = ", ".join(job.summary.job_id for job in jobs[:10])
            logger.warning("%d ended jobs are missing in the history (%s): %s", len(jobs), ids, error)

    def _write(self, name: str, jobs: Sequence[EndedJob]) -> None:
        data = make_pack(jobs)
        try:
            _put(self._history(), name, [data])
        except FlinklikeError as error:
            self._opened = None  # its mount may be another one next time
            self._note(str(error))
            _put(self._storage, f"{WAITING}/{name}", [data])

    async def carry(self) -> int:
        """Carry over what waits. Returns how many files. A reconciler."""
        return await self._io.run(self._carry) if self._bytes_max else 0

    def _carry(self) -> int:
        carried = 0
        try:
            history = self._history()
            for name in list(self._waiting()):
                with self._storage.open(f"{WAITING}/{name}") as file:
                    _put(history, name, iter(lambda: file.read(_PIECE), b""))
                self._storage.delete(f"{WAITING}/{name}")
                carried += 1
        except (FlinklikeError, OSError) as error:
            self._opened = None
            self._note(str(error))
        else:
            self._note("")
        return carried

    def _waiting(self) -> Iterator[str]:
        for day in filter(DAY.fullmatch, self._storage.folders(f"{WAITING}/{self._folder}")):
            for file in self._storage.files(f"{WAITING}/{self._folder}/{day}"):
                if FILE_NAME.fullmatch(file.name):
                    yield f"{self._folder}/{day}/{file.name}"

    def _history(self) -> StorageDirectory:
        if self._opened is None:
            self._opened = self._open_history()
        return self._opened

    def _note(self, error: str) -> None:
        """Say it once, until it changes."""
        where = f"{without_login(self._storage.url)}/{WAITING}"
        sentence = f"the history cannot be written ({error}): ended jobs wait in {where} until it can" if error else ""
        if sentence and sentence != self.trouble:
            logger.error("%s", printable(sentence))
        elif self.trouble and not sentence:
            logger.warning("the history can be written again, and has what waited")
        self.trouble = sentence

    async def bound(self) -> int:
        """Delete the oldest files above the size, and what was never finished. Returns how many. A reconciler."""
        return await self._io.run(self._bound, self._clock.epoch_millis())

    def _bound(self, now: int) -> int:
        deleted = _bound_below(self._storage, f"{WAITING}/{self._folder}", self._bytes_max, now)
        try:
            deleted += _bound_below(self._history(), self._folder, self._bytes_max, now)
        except FlinklikeError as error:
            self._opened = None
            if self._bytes_max:
                self._note(str(error))
            else:
                logger.warning("what is left of the history cannot be deleted: %s", error)
        return deleted


def _put(directory: StorageDirectory, name: str, pieces: Iterable[bytes]) -> None:
    file = directory.stage(name.rpartition("/")[2])
    try:
        for piece in pieces:
            file.write(piece)
        file.publish(name)
    finally:
        file.discard()


def _bound_below(directory: StorageDirectory, folder: str, bytes_max: int, now: int) -> int:
    deleted = 0
    for staged in directory.files(TMP):
        found = FILE_NAME.fullmatch(staged.name)
        if found is not None and int(found["millis"]) < now - _STAGED_MILLIS_MAX:
            directory.delete(f"{TMP}/{staged.name}")
            deleted += 1
    room = bytes_max
    for day in sorted(filter(DAY.fullmatch, directory.folders(folder)), reverse=True):
        for file in reversed(directory.files(f"{folder}/{day}")):
            room -= file.size_bytes
            if room < 0 and FILE_NAME.fullmatch(file.name):
                directory.delete(f"{folder}/{day}/{file.name}")
                deleted += 1
    return deleted
