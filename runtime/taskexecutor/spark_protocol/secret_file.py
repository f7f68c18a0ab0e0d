"""The secret of a Spark standalone cluster, from a file that its user alone can read (R44)."""

from __future__ import annotations

from pathlib import Path

from runtime.common.errors import InvalidInputError
from runtime.security.private_files import read_private

_OPTION = "taskmanager.spark.secret-file"
_BYTES_MIN = 16
_BYTES_MAX = 1024


def read_secret(path: Path) -> str:
    """The content of the file without blanks around it. Raises InvalidInputError, which says what to do."""
    secret = read_private(path, _OPTION, size_max=_BYTES_MAX).strip()
    if not _BYTES_MIN <= len(secret) <= _BYTES_MAX or not secret.isascii() or not secret.decode("ascii").isprintable():
        raise _refused(path, f"has to be one line of {_BYTES_MIN} to {_BYTES_MAX} printable ASCII characters")
    return secret.decode("ascii")


def _refused(path: Path, why: str) -> InvalidInputError:
    message = f"{_OPTION}: {path} {why}"
    return InvalidInputError(message)
