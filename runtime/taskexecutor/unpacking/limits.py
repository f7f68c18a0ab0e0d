"""The limits of unpacked archives, and the rest of them that is left while archives are unpacked (R42). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.common.errors import InvalidInputError

MAX_SIZE = "taskmanager.archives.max-size"
MAX_ENTRIES = "taskmanager.archives.max-entries"
MAX_MEMORY = "taskmanager.archives.max-memory"
MAX_CPU_TIME = "taskmanager.archives.max-cpu-time"
TIMEOUT = "taskmanager.archives.timeout"

HEADER_BYTES_MAX = 1 << 20
"""Bytes of one header, pax records included: a path has 4 KiB, an extended attribute 64."""
_STREAM_BYTES_PER_ENTRY = 4096
_NAME_LENGTH_MAX = 120


@dataclass(frozen=True, slots=True)
class UnpackLimits:
    """Limits of all archives and wheels of one job together. Times in seconds.

    `cpu_seconds_max` bounds the work that archives can cause; `timeout` also bounds a slow disk.
    """

    bytes_max: int = 16 << 30
    entries_max: int = 500_000
    memory_bytes_max: int = 512 << 20
    cpu_seconds_max: int = 300
    timeout: float = 900.0


class Budget:
    """The rest of the limits for the archives of one job. Each step is counted before it is taken."""

    __slots__ = ("_bytes", "_entries", "_limits", "_members", "_stream")

    def __init__(self, limits: UnpackLimits) -> None:
        self._limits = limits
        self._bytes = limits.bytes_max
        self._entries = self._members = limits.entries_max
        self._stream = limits.bytes_max + _STREAM_BYTES_PER_ENTRY * limits.entries_max

    def take_entry(self, archive: str) -> None:
        """Count a file, directory or link. Raises InvalidInputError."""
        self._entries -= 1
        if self._entries < 0:
            raise self._too_many(archive)

    def take_member(self, archive: str) -> None:
        """Count a member, also one that was there before. Raises InvalidInputError."""
        self._members -= 1
        if self._members < 0:
            raise self._too_many(archive)

    def take_bytes(self, archive: str, count: int) -> None:
        """Count bytes of a file. Raises InvalidInputError."""
        self._bytes -= count
        if self._bytes < 0:
            raise self._too_large(archive)

    def take_stream(self, archive: str, count: int) -> None:
        """Count bytes behind the compression: headers cost time too. Raises InvalidInputError."""
        self._stream -= count
        if self._stream < 0:
            raise self._too_large(archive)

    def check(self, archive: str, entries: int, size: int) -> None:
        """Compare the sizes that an archive states with the rest, before anything of it is written. Raises
        InvalidInputError.
        """
        if entries > self._entries:
            raise self._too_many(archive)
        if size > self._bytes:
            raise self._too_large(archive)

    def _too_many(self, archive: str) -> InvalidInputError:
        message = f"archive {archive} has too many members: {_together(self._limits.entries_max, 'entries')}"
        return InvalidInputError(f"{message} ({MAX_ENTRIES})")

    def _too_large(self, archive: str) -> InvalidInputError:
        message = f"archive {archive} is too large: {_together(self._limits.bytes_max, 'bytes')}"
        return InvalidInputError(f"{message} ({MAX_SIZE})")


def _together(limit: int, what: str) -> str:
    return f"the archives of a job may have {limit} {what} together when they are unpacked"


def shown(name: str) -> str:
    """A name from an archive, for a sentence."""
    return repr(name if len(name) <= _NAME_LENGTH_MAX else f"{name[:_NAME_LENGTH_MAX]}...")


def not_within(archive: str, member: str) -> InvalidInputError:
    """A member that would lie, or lead, elsewhere."""
    return InvalidInputError(f"archive {archive} has the member {shown(member)}, which leads out of its directory")
