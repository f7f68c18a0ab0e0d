"""Scripts that were read out of archives, by the digest of the archive: it is parsed at the first run, not at each."""

from __future__ import annotations

from collections import OrderedDict

KNOWN_BYTES_MAX = 16 << 20
_OVERHEAD = 1024
"""What an entry takes beside its script."""


class KnownScripts:
    """Those that were asked for last. The same digest is the same bytes, so nothing in here gets old."""

    def __init__(self, *, bytes_max: int = KNOWN_BYTES_MAX) -> None:
        self._scripts: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._room = bytes_max

    def get(self, sha256: str, entry: str) -> bytes | None:
        """The script of that name in the archive of that digest, None if it is not known (any more)."""
        found = self._scripts.get((sha256, entry))
        if found is not None:
            self._scripts.move_to_end((sha256, entry))
        return found

    def add(self, sha256: str, entry: str, script: bytes) -> None:
        """Remember one, and forget others."""
        if (sha256, entry) in self._scripts:
            return
        self._scripts[sha256, entry] = script
        self._room -= len(script) + _OVERHEAD
        while self._room < 0:
            _, oldest = self._scripts.popitem(last=False)
            self._room += len(oldest) + _OVERHEAD
