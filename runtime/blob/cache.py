"""The local cache of objects: one file per key, bounded in bytes, least recently used goes first, pinned ones stay.

Blocking parts only; the client runs them in its threads. The bookkeeping lives on the loop. What a former process has
left in the directory is taken over; half-written files are removed.
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
    """Which objects are here, how large they are, and who uses them."""

    def __init__(self, directory: Path, *, size_bytes_max: int) -> None:
        self._directory = directory.absolute()
        self._size_bytes_max = size_bytes_max
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._pins: dict[str, int] = {}
        self.size_bytes = 0

    def scan(self) -> None:
        """Blocking, at start: take over what is there, oldest use first."""
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
        """Where the object lies, or would."""
        return self._directory / key

    def partial(self, key: str) -> Path:
        """Where it is written before it is complete."""
        return self._directory / f"{key}{_PARTIAL}"

    def __contains__(self, key: str) -> bool:
        return key in self._sizes

    def pin(self, key: str) -> None:
        """Somebody uses it: it stays. Counted."""
        self._pins[key] = self._pins.get(key, 0) + 1
        if key in self._sizes:
            self._sizes.move_to_end(key)

    def unpin(self, key: str) -> None:
        """One user less."""
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
        """Its file turned out to be gone."""
        self.size_bytes -= self._sizes.pop(key, 0)

    def evict(self) -> list[Path]:
        """Drop what has to go for the bound; its files are to be deleted. Pinned ones may keep it above the bound."""
        evicted = []
        for key in list(self._sizes):
            if self.size_bytes <= self._size_bytes_max:
                break
            if key not in self._pins:
                self.forget(key)
                evicted.append(self.path(key))
        return evicted
