"""Finds the files of all clusters below a directory, and reads them. It writes nothing. Its calls block."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runtime.blob.directory import StorageDirectory, StoredFile
from runtime.common.errors import FlinklikeError, InvalidInputError, NotFoundError, UnavailableError
from runtime.common.masking import without_login
from runtime.common.printable import printable
from runtime.history.pack import IndexedJob, PackIndex, read_archive, read_index
from runtime.history.writer import CLUSTER_PREFIX, DAY, FILE_NAME, day_of

logger = logging.getLogger(__name__)

CLUSTERS_MAX = 1000
"""Of one directory."""
DAYS_MAX = 4000
"""Of one cluster, the latest."""
FILES_OF_DAY_MAX = 100_000
_OPEN_MILLIS = 2 * 24 * 60 * 60 * 1000
"""Days so young get files, whatever the clocks of the clusters say. Older days only lose some."""
_COMPLAINTS_MAX = 20
"""That are logged of one look, each with its file; of further ones the next look logs the number."""


@dataclass(frozen=True, slots=True)
class PackFile:
    """A file of a history: the directory's place in the configuration, the cluster, the day, the name and the size."""

    source: int
    cluster: str
    day: str
    name: str
    size_bytes: int

    @property
    def path(self) -> str:
        """Below the directory."""
        return f"{CLUSTER_PREFIX}{self.cluster}/{self.day}/{self.name}"


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a directory has found: new files, and files that are gone."""

    added: tuple[PackFile, ...]
    gone: tuple[PackFile, ...]


class HistoryReader:
    """One directory: that of histories, or a storage directory, which has them in the folder `inner`.

    Remembers which files it has told of. Whoever it reads from is believed nothing (R52).
    """

    def __init__(self, source: int, directory: StorageDirectory, *, inner: str = "") -> None:
        self._source = source
        self._directory = directory
        self._inner = inner
        self._prefix = ""
        self._known: dict[tuple[str, str], dict[str, PackFile]] = {}
        self._unread: dict[tuple[str, str], set[str]] = {}
        """By day the names that the storage did not give, each told once: such a day is listed again."""
        self._complaints = 0

    @property
    def url(self) -> str:
        """As configured."""
        return self._directory.url

    def look(self, now_millis: int, *, is_full: bool) -> Look:
        """What is new since the look before. A look that is not full lists no day that is over and was listed.

        Raises UnavailableError when the directory cannot be listed: what is known stays.
        """
        added: list[PackFile] = []
        gone: list[PackFile] = []
        if self._complaints > _COMPLAINTS_MAX:
            logger.warning("and %d more files or folders of %s", self._complaints - _COMPLAINTS_MAX, self.url)
        self._complaints = 0
        seen = set()
        for place in list(self._days()):
            seen.add(place)
            if is_full or self._may_have_news(place, now_millis):
                new, lost = self._look_at_day(place)
                added += new
                gone += lost
        for place in self._known.keys() - seen:
            self._unread.pop(place, None)
            gone += self._known.pop(place).values()
        return Look(tuple(added), tuple(gone))

    def _may_have_news(self, place: tuple[str, str], now_millis: int) -> bool:
        return place not in self._known or place in self._unread or place[1] >= day_of(now_millis - _OPEN_MILLIS)

    def _days(self) -> Iterator[tuple[str, str]]:
        outside = self._directory.folders("")
        self._check_there(outside, "")
        if self._prefix:  # also where the folder is gone, and others of the storage directory are not
            self._check_there(self._directory.folders(self._inner), f"/{self._inner}")
        self._prefix = f"{self._inner}/" if self._inner in outside else ""
        listed = self._directory.folders(self._inner) if self._prefix else outside
        folders = [one for one in listed if one.startswith(CLUSTER_PREFIX)]
        if len(folders) > CLUSTERS_MAX:
            self._complain(f"{self.url} has {len(folders)} clusters: only {CLUSTERS_MAX} of them are shown")
        for folder in folders[:CLUSTERS_MAX]:
            days = [day for day in self._directory.folders(f"{self._prefix}{folder}") if DAY.fullmatch(day)]
            for day in days[-DAYS_MAX:]:
                yield folder.removeprefix(CLUSTER_PREFIX), day

    def _check_there(self, folders: Sequence[str], where: str) -> None:
        if not folders and self._known:  # a mount point without its volume looks like that
            message = f"{without_login(self.url)}{where} is empty, and was not before"
            raise UnavailableError(message)

    def _look_at_day(self, place: tuple[str, str]) -> tuple[list[PackFile], list[PackFile]]:
        cluster, day = place
        known = self._known.get(place, {})
        try:
            listed: list[StoredFile] = list(self._directory.files(f"{self._prefix}{CLUSTER_PREFIX}{cluster}/{day}"))
        except (FlinklikeError, OSError) as error:
            self._complain(f"{cluster}/{day} in {self.url} cannot be listed: {error}")
            return [], []
        if len(listed) > FILES_OF_DAY_MAX:
            self._complain(f"{cluster}/{day} in {self.url} has {len(listed)} files: {FILES_OF_DAY_MAX} are read")
            listed = listed[-FILES_OF_DAY_MAX:]
        found = {
            one.name: PackFile(self._source, cluster, day, one.name, one.size_bytes)
            for one in listed
            if FILE_NAME.fullmatch(one.name)
        }
        # A file of another size is another one: somebody was copying it when it was read.
        added = [file for name, file in found.items() if known.get(name) != file]
        gone = [file for name, file in known.items() if found.get(name) != file]
        self._known[place] = found
        if place in self._unread:
            self._unread[place] &= found.keys()
            if not self._unread[place]:
                del self._unread[place]
        return added, gone

    def read(self, file: PackFile) -> PackIndex | None:
        """The index of a file; None, and a line of the log, for a damaged one and for one that is gone.

        One that the storage does not give now is new to the next look.
        """
        place = file.cluster, file.day
        try:
            with self._directory.open(f"{self._prefix}{file.path}") as opened:
                index = read_index(opened, file.size_bytes)
        except (InvalidInputError, NotFoundError) as error:
            self._complain(f"{file.path} in {self.url} is left out: {error}")
            return None
        except (FlinklikeError, OSError) as error:
            told = self._unread.setdefault(place, set())
            if file.name not in told:
                self._complain(f"{file.path} in {self.url} is left out until it can be read: {error}")
            told.add(file.name)
            self._known.get(place, {}).pop(file.name, None)
            return None
        self._unread.get(place, set()).discard(file.name)
        return index

    def archive(self, file: PackFile, begin: int, job: IndexedJob) -> bytes:
        """The archive of one job. Raises NotFoundError with a sentence when it is gone or damaged."""
        try:
            with self._directory.open(f"{self._prefix}{file.path}") as opened:
                return read_archive(opened, begin, job)
        except (InvalidInputError, NotFoundError, OSError) as error:
            message = f"the archive of job {job.summary.job_id} cannot be read: {file.path} in {self.url}: {error}"
            logger.warning("%s", printable(message))
            raise NotFoundError(message) from error

    def _complain(self, sentence: str) -> None:
        self._complaints += 1
        if self._complaints <= _COMPLAINTS_MAX:
            logger.warning("%s", printable(sentence))
