"""The last lines of an audit log, for who may read them over REST. Only the end of the files is read (R41)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.common.errors import UnavailableError
from runtime.common.json_text import parse_json

READ_MAX = 1 << 20
"""Bytes of the end of a file that are looked at, in all files together."""


def last_lines(path: Path, lines_max: int) -> list[dict[str, Any]]:
    """The newest lines, oldest first, of the file and the one that was moved aside last. Blocks.

    What is no line of ours is left out. A file that is not there has no lines. Raises UnavailableError for one that is,
    and cannot be read: nobody is to take it for one in which nothing stands.
    """
    found: list[dict[str, Any]] = []
    room = READ_MAX
    for one in (path, path.with_name(f"{path.name}.1")):
        data = _end_of(one, room)
        room -= len(data)
        for line in reversed(data.split(b"\n")):
            if len(found) == lines_max:
                break
            found += _parsed(line)
    found.reverse()
    return found


def _end_of(path: Path, size_max: int) -> bytes:
    """Whole lines at the end of a regular file."""
    if size_max <= 0:
        return b""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""  # it was never written, or was moved aside just now
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror or str(error)
        message = f"the audit log {path} cannot be read: {why}. Mend that on the host of the JobManager that leads"
        raise UnavailableError(message) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            message = f"the audit log {path} cannot be read: it is no file. Mend that on the host of the JobManager"
            raise UnavailableError(message)
        begin = max(0, status.st_size - size_max)
        data = os.pread(descriptor, size_max, begin)
    finally:
        os.close(descriptor)
    return data.partition(b"\n")[2] if begin else data


def _parsed(line: bytes) -> Iterator[dict[str, Any]]:
    try:
        value = parse_json(line) if line else None
    except ValueError:
        return
    if isinstance(value, dict):
        yield value
