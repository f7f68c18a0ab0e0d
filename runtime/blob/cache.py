"""The local cache of objects: one file per key, bounded in bytes, least recently used goes first, pinned ones stay.

The client runs the blocking methods in its threads, and the bookkeeping on its loop. Files that a former process has
left in the directory are taken over; half-written ones are removed.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from runtime.blob.directory import translated
from runtime.blob.retention import parse_blob_key
from runtime.common.errors import InvalidInputError

_PARTIAL = ".part"


class BlobCache:
    """The cached objects, their sizes, and how many users pin each."""

    def __init__(self, directory: Path, *, size_bytes_max: int) -> None:
        self._directory = directory.absolute()
        self._size_bytes_max = size_bytes_max
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._pins: dict[str, int] = {}
        self.size_bytes = 0

    def scan(self) -> None:
        """Take over the files in the directory, oldest first. Blocking; called at start."""
        with translated(f"blob cache {self._directory}"):
            self._directory.mkdir(parents=True, exist_ok=True)
            found = sorted(self._scanned())
        for _, key, size in found:
            self._sizes[key] = size
            self.size_bytes += size

    def _scanned(self) -> Iterator[tuple[float, str, int]]:
        for entry in os.scandir(self._directory):
            try:
                parse_blob_key(entry.name)
            except InvalidInputError:
                if entry.name.endswith(_PARTIAL):
                    Path(entry.path).unlink(missing_ok=True)
                continue
            with suppress(FileNotFoundError):
                status = entry.stat()
                yield status.st_mtime, entry.name, status.st_size

    def path(self, key: str) -> Path:
        """The file of the object, whether it is cached or not."""
        return self._directory / key

    def partial(self, key: str) -> Path:
        """The file to which the object is written until it is complete."""
        return self._directory / f"{key}{_PARTIAL}"

    def __contains__(self, key: str) -> bool:
        return key in self._sizes

    def pin(self, key: str) -> None:
        """Keep the object until it is unpinned. Pins are counted."""
        self._pins[key] = self._pins.get(key, 0) + 1
        if key in self._sizes:
            self._sizes.move_to_end(key)

    def unpin(self, key: str) -> None:
        """Take back one pin."""
        left = self._pins[key] - 1
        if left:
            self._pins[key] = left
        else:
            del self._pins[key]

    def add(self, key: str, size_bytes: int) -> None:
        """A complete file lies at `path(key)`."""
        assert key not in self._sizes, key
        self._sizes[key] = size_bytes
        self.size_bytes += size_bytes

    def forget(self, key: str) -> None:
        """Forget an object whose file does not exist."""
        self.size_bytes -= self._sizes.pop(key, 0)

    def evict(self) -> list[Path]:
        """Forget objects until the cache is within its bound, but no pinned ones. Returns the files to delete."""
        evicted = []
        for key in list(self._sizes):
            if self.size_bytes <= self._size_bytes_max:
                break
            if key not in self._pins:
                self.forget(key)
                evicted.append(self.path(key))
        return evicted
