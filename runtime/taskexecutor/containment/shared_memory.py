"""Memory that no page table of a process tree shows: files in memory that the tree holds open, and segments (R43).

A memfd, or a file of a tmpfs, that is written and not mapped is in no resident set. Descriptors show it. A process that
has closed a file of a tmpfs with a name still keeps the file, so a file that was once seen counts as long as it exists.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice

from runtime.system.linux import descriptors_of, mappings_of

LOOKS_MAX = 4096
"""Descriptors that are looked at each time, and files that were seen; where there are more, they have their turns."""
MAPPINGS_BYTES_MAX = 4 * 1024 * 1024
"""Of the mappings of a tree that are read: some six thousand."""
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs"})
_BLOCK_BYTES = 512
_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)", re.MULTILINE)
_PSS = re.compile(rb"^Pss: +(\d+) kB$", re.MULTILINE)

FileId = tuple[int, int]
"""Device and inode."""


@cache
def _memfd_device() -> int:
    """The device of the file system that no mount shows: memfds and attached segments are files of it."""
    descriptor = os.memfd_create("probe")
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def memory_devices() -> frozenset[int]:
    """The devices of the file systems whose files are memory, and of memfds."""
    found = {_memfd_device()}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:  # noqa: PTH123 - as all here
        for line in mounts:
            left, _, right = line.partition(" - ")
            if right.split(" ")[0] in _MEMORY_FILE_SYSTEMS:
                major, _, minor = left.split(" ")[2].partition(":")
                found.add(os.makedev(int(major), int(minor)))
    return frozenset(found)


def segment_file(segment_id: int) -> FileId:
    """The file that a process shows for a segment of System V that it has attached."""
    return (_memfd_device(), segment_id)


class HeldFiles:
    """The files in memory that one process tree holds, looked for again and again.

    A file without a block is none, so that there are no more than the memory of the tree has pages.
    """

    def __init__(self, devices: frozenset[int]) -> None:
        self._devices = devices
        self._known: dict[FileId, tuple[str, int]] = {}
        self._turns: deque[FileId] = deque()
        self._tree: frozenset[int] = frozenset()
        self._descriptors: Iterator[str] | None = None
        self._bytes_of_files = 0
        self.segments: Mapping[FileId, int] = {}
        """Of System V, with their bytes: SlotSegments knows them."""

    @property
    def bytes_held(self) -> int:
        """The bytes of all files and of all segments; the names of the files, which this process keeps, count too."""
        return self._bytes_of_files + sum(self.segments.values())

    def look(self, tree: Sequence[int]) -> None:
        """Look at files that the tree has open, and at those that it was seen to have: as many as fit into a turn."""
        self._look_at_known(LOOKS_MAX)
        self._tree = frozenset(tree)
        descriptors = self._descriptors or self._open_of(tree)
        looked = 0
        for path in islice(descriptors, LOOKS_MAX):
            looked += 1
            self._note(path)
        self._descriptors = descriptors if looked == LOOKS_MAX else None

    def look_again(self) -> None:
        """Look at all files that were seen. Blocking: there may be any number."""
        self._look_at_known(len(self._turns))

    def size_of(self, identity: FileId) -> int:
        """The bytes of a file; 0 for a file that is not held."""
        return self._known.get(identity, ("", 0))[1] or self.segments.get(identity, 0)

    def _look_at_known(self, count: int) -> None:
        for _ in range(min(count, len(self._turns))):
            identity = self._turns.popleft()
            path, size = self._known.pop(identity)
            self._bytes_of_files -= size
            self._note(path, expected=identity)

    def _open_of(self, tree: Sequence[int]) -> Iterator[str]:
        for pid in tree:
            if pid not in self._tree:  # it has ended since this round began
                continue
            yield from descriptors_of(pid)

    def _note(self, path: str, expected: FileId | None = None) -> None:
        try:
            status = os.stat(path)  # noqa: PTH116 - as text, thousands of times
        except OSError:
            return
        identity = (status.st_dev, status.st_ino)
        if status.st_dev not in self._devices or expected not in {None, identity} or not status.st_blocks:
            return
        known, before = self._known.get(identity, ("", 0))
        if not known:
            known = path if expected is not None else _lasting(path, identity)
            self._turns.append(identity)
        size = status.st_blocks * _BLOCK_BYTES + len(known)
        self._known[identity] = (known, size)
        self._bytes_of_files += size - before


def _lasting(path: str, identity: FileId) -> str:
    """The file's own name, where it has one: it stays when the descriptor is closed."""
    try:
        name = os.readlink(path)  # noqa: PTH115 - as text
        status = os.stat(name)  # noqa: PTH116
    except OSError:
        return path
    return name if (status.st_dev, status.st_ino) == identity else path


def bytes_beside(tree: Sequence[int], held: HeldFiles) -> int | None:
    """The proportional sizes of a tree without the mappings of held files. Blocking.

    Both come from one reading: what a task unmaps between two readings would count twice. None where the mappings are
    too many to be read.
    """
    beside = 0
    mapped: dict[FileId, int] = {}
    room = MAPPINGS_BYTES_MAX
    for pid in tree:
        text = mappings_of(pid, room + 1)
        room -= len(text)
        if room < 0:
            return None
        for identity, size in _sizes(text):
            if held.size_of(identity):
                mapped[identity] = mapped.get(identity, 0) + size
            else:
                beside += size
    # A file that has grown since it was looked at is mapped beyond what counts as held.
    return beside + sum(max(0, size - held.size_of(identity)) for identity, size in mapped.items())


def _sizes(text: bytes) -> Iterator[tuple[FileId, int]]:
    mappings = list(_MAPPING.finditer(text))
    ends = [one.start() for one in mappings[1:]] + [len(text)] * bool(mappings)  # a process that ends has none
    for mapping, following in zip(mappings, ends, strict=True):
        found = _PSS.search(text, mapping.end(), following)
        identity = (os.makedev(int(mapping[1], 16), int(mapping[2], 16)), int(mapping[3]))
        yield identity, int(found[1]) * 1024 if found else 0
