"""The secret of a Spark standalone cluster, from a file that its user alone can read (R44)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from runtime.common.errors import InvalidInputError

_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_BYTES_MIN = 16
_BYTES_MAX = 1024


def read_secret(path: Path) -> str:
    """What the file says, without what is blank around it. Raises InvalidInputError, which says what to do."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror or error}") from error
    if status.st_mode & _OF_OTHERS:
        raise _refused(path, f"can be used by others (mode {stat.S_IMODE(status.st_mode):04o}): chmod 600 it")
    secret = content.strip()
    if not _BYTES_MIN <= len(secret) <= _BYTES_MAX or not secret.isascii() or not secret.decode("ascii").isprintable():
        raise _refused(path, f"has to be one line of {_BYTES_MIN} to {_BYTES_MAX} printable ASCII characters")
    return secret.decode("ascii")


def _refused(path: Path, why: str) -> InvalidInputError:
    message = f"taskmanager.spark.secret-file: {path} {why}"
    return InvalidInputError(message)
