"""The savepoints that are durable: whatever takes one away is noticed at that moment."""

from __future__ import annotations

from pathlib import Path


class Shelf:
    """Savepoints by their paths."""

    def __init__(self) -> None:
        self._there: set[str] = set()

    def put(self, directory: str) -> None:
        """One more that has to stay."""
        if Path(directory).exists():
            self._there.add(directory)

    def has(self, directory: str) -> bool:
        """Is it there?"""
        return directory in self._there

    def taken(self) -> list[str]:
        """Those that have disappeared since the last look."""
        gone = [one for one in sorted(self._there) if not Path(one).exists()]
        self._there.difference_update(gone)
        return gone
