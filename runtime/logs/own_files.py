"""The log files of one process, read while it writes. Other processes of its host log into the same directory.

A file belongs to a process when its name is the process's own: the log, what it has printed, what its Spark has
printed, and older ones of them (`runtime.config.log_files`). No name leads anywhere else, and no link is followed
(R48).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from runtime.common.errors import InvalidInputError, NotFoundError

NAME_LENGTH_MAX = 255
FILES_MAX = 1000
_SPARK = r"-spark(?:-[0-9a-f]{8})?-[a-z]{1,16}(?:-[a-z]{1,16})?\.log"
_OLD = r"(?:\.[0-9]{1,3})?"
_AT_ONCE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
"""Of a pipe nobody waits for the other end. A link is refused, wherever it leads."""
_NOT_THERE = frozenset({errno.ENOENT, errno.ELOOP, errno.ENXIO, errno.EACCES, errno.EISDIR})


@dataclass(frozen=True, slots=True)
class OwnFile:
    """One log file. `modified_millis`: since 1970."""

    name: str
    size_bytes: int
    modified_millis: int


@dataclass(frozen=True, slots=True)
class OwnPiece:
    """Bytes of a file, the offset behind them, the size of the file, and whether the read began anew."""

    data: bytes
    next_offset: int
    size_bytes: int
    is_restarted: bool


class OwnLogFiles:
    """The log files of the process that logs to `log_file`; None: it has none. All methods block."""

    def __init__(self, log_file: Path | None) -> None:
        self._directory = None if log_file is None else log_file.parent
        self.log = "" if log_file is None else log_file.name
        self.stdout = "" if log_file is None else log_file.with_suffix(".out").name
        stem = "" if log_file is None else re.escape(log_file.stem)
        self._own = re.compile(rf"{stem}(?:\.log|\.out|{_SPARK}){_OLD}")

    def list(self) -> list[OwnFile]:
        """All of them, at most FILES_MAX; the last changed first."""
        found: list[OwnFile] = []
        if self._directory is None:
            return found
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if self._own.fullmatch(entry.name) is None:
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # it was moved aside just now
                    continue
                if stat.S_ISREG(status.st_mode):
                    found.append(OwnFile(entry.name, status.st_size, status.st_mtime_ns // 1_000_000))
        return sorted(found, key=lambda one: (-one.modified_millis, one.name))[:FILES_MAX]

    def read(self, name: str, offset: int, limit: int) -> OwnPiece:
        """At most `limit` bytes from `offset`; a negative one counts from the end.

        Beyond the end the file was moved aside or cut since: reading begins anew. Raises NotFoundError for a name that
        is none of this process's files.
        """
        if limit < 1:
            message = f"limit must be at least 1, not {limit}"
            raise InvalidInputError(message)
        descriptor = self._open(name)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _no_such_file(name)
            size = status.st_size
            is_restarted = offset > size
            begin = max(0, size + offset) if offset < 0 else 0 if is_restarted else offset
            data = os.pread(descriptor, min(limit, max(0, size - begin)), begin)
        finally:
            os.close(descriptor)
        return OwnPiece(data, begin + len(data), size, is_restarted)

    def _open(self, name: str) -> int:
        if self._directory is None:
            message = "this process writes no log files: it was started in the foreground, or by a program of its own"
            raise NotFoundError(message)
        if len(name) > NAME_LENGTH_MAX or self._own.fullmatch(name) is None:
            raise _no_such_file(name)
        try:
            return os.open(self._directory / name, _AT_ONCE)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            raise _no_such_file(name) from None


def _no_such_file(name: str) -> NotFoundError:
    return NotFoundError(f"this process has no log file {name[:NAME_LENGTH_MAX]!r}: ask for the list of its log files")
