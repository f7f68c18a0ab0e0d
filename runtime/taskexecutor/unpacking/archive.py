"""One archive: which kind it is, and what its reader's errors mean (R42)."""

from __future__ import annotations

import errno
import lzma
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.unpacking.limits import MAX_MEMORY, Budget
from runtime.taskexecutor.unpacking.tar_archive import unpack_tar
from runtime.taskexecutor.unpacking.zip_archive import unpack_wheel, unpack_zip

_TAR_SUFFIXES = (
    ".tar",
    *(".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst"),
)
_ZIP_SUFFIXES = (".zip", ".jar", ".whl", ".egg")
_REASON_LENGTH_MAX = 300
_DAMAGED = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,  # encrypted, packed in a way that zipfile does not know, headers in headers without end
    ValueError,
    ArithmeticError,
    LookupError,
)
"""What readers raise when bytes are not what they should be: they were written for archives of friends."""
_ERRORS_OF_THE_ARCHIVE = frozenset(
    {
        None,  # what decompressors raise
        *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EILSEQ),
    }
)
"""One member in the place of another, or a name that cannot be. Others are the host's."""


def unpack(archive: Path | int, name: str, root: Path, budget: Budget, *, is_wheel: bool = False) -> None:
    """Unpack `archive`, whose kind `name` tells, into `root`, which is new, or empty. Blocking.

    `archive` is a path, or a descriptor, which is closed then.

    Raises InvalidInputError for an archive that is damaged, leads out of `root`, or needs more than is left of
    `budget`, and OSError for what the host denies.
    """
    if not is_wheel and not name.lower().endswith(_ZIP_SUFFIXES + _TAR_SUFFIXES):
        message = f"{name} is no archive: expected one of {', '.join(_ZIP_SUFFIXES + _TAR_SUFFIXES)}"
        raise InvalidInputError(message)
    root.mkdir(parents=True, exist_ok=True)
    try:
        with open(archive, "rb") as source:  # noqa: PTH123 - of a descriptor too
            _unpack(source, name, root, budget, is_wheel=is_wheel)
    except OSError as error:
        if error.errno not in _ERRORS_OF_THE_ARCHIVE:
            raise
        raise _unusable(name, error) from error
    except _DAMAGED as error:
        raise _unusable(name, error) from error
    except MemoryError as error:
        message = f"archive {name} needs more memory to be unpacked than it may have ({MAX_MEMORY})"
        raise InvalidInputError(message) from error


def _unpack(source: IO[bytes], name: str, root: Path, budget: Budget, *, is_wheel: bool) -> None:
    if is_wheel:
        unpack_wheel(source, name, root, budget)
    elif name.lower().endswith(_ZIP_SUFFIXES):
        unpack_zip(source, name, root, budget)
    else:
        unpack_tar(source, name, root, budget)


def _unusable(name: str, error: Exception) -> InvalidInputError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return InvalidInputError(f"archive {name} cannot be unpacked: {reason[:_REASON_LENGTH_MAX]}")
