"""Unpacking of archives and wheels that jobs bring along: never outside of the target, never without a bound."""

from __future__ import annotations

import errno
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from runtime.common.errors import InvalidInputError

_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_ZIP_SUFFIXES = (".zip", ".jar", ".whl", ".egg")
_PERMISSIONS = 0o777
_OWNER_BITS = 0o600
# RuntimeError: encrypted, or packed in a way that zipfile does not know.
_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, RuntimeError)
# One member in the place of another, or a name that cannot be; None: what decompressors raise. Others are the host's.
_ERRORS_OF_THE_ARCHIVE = frozenset({None, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG})


@dataclass(frozen=True, slots=True)
class UnpackLimits:
    """What one archive may become."""

    bytes_max: int = 16 * 1024**3
    members_max: int = 500_000


def unpack(archive: Path, name: str, target: Path, limits: UnpackLimits) -> None:
    """Unpack `archive`, whose kind `name` tells, into the new directory `target`. Blocking.

    Raises InvalidInputError for a damaged archive, one that leads out of `target`, and one above the limits.
    """
    target.mkdir(parents=True)
    try:
        if name.lower().endswith(_ZIP_SUFFIXES):
            _unpack_zip(archive, name, target, limits)
        elif name.lower().endswith(_TAR_SUFFIXES):
            _unpack_tar(archive, name, target, limits)
        else:
            message = f"{name} is no archive: expected one of {', '.join(_ZIP_SUFFIXES + _TAR_SUFFIXES)}"
            raise InvalidInputError(message)
    except OSError as error:
        if error.errno not in _ERRORS_OF_THE_ARCHIVE:
            raise
        message = f"archive {name} cannot be unpacked: {error}"
        raise InvalidInputError(message) from error
    except _DAMAGED as error:
        message = f"archive {name} cannot be unpacked: {error}"
        raise InvalidInputError(message) from error


def _unpack_zip(archive: Path, name: str, target: Path, limits: UnpackLimits) -> None:
    with zipfile.ZipFile(archive) as opened:
        members = opened.infolist()
        _check_size(name, ((member.filename, member.file_size) for member in members), limits)
        for member in members:
            mode = member.external_attr >> 16
            if stat.S_ISLNK(mode):
                message = f"archive {name} has the symbolic link {member.filename}: use a tar archive for links"
                raise InvalidInputError(message)
            path = target / _inside(name, member.filename)
            if member.is_dir():
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with opened.open(member) as source, path.open("xb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            if mode & _PERMISSIONS:
                path.chmod(mode & _PERMISSIONS | _OWNER_BITS)


def _unpack_tar(archive: Path, name: str, target: Path, limits: UnpackLimits) -> None:
    with tarfile.open(archive) as opened:
        members = opened.getmembers()
        _check_size(name, ((member.name, member.size) for member in members), limits)
        # The data filter refuses absolute paths, links that lead out, and devices; it keeps executable bits.
        opened.extractall(target, members, filter="data")


def _check_size(name: str, members: Iterable[tuple[str, int]], limits: UnpackLimits) -> None:
    count = total = 0
    for _, size in members:
        count, total = count + 1, total + size
    if count > limits.members_max:
        message = f"archive {name} has {count} members, more than {limits.members_max}"
        raise InvalidInputError(message)
    if total > limits.bytes_max:
        message = f"archive {name} would take {total} bytes, more than {limits.bytes_max}"
        raise InvalidInputError(message)


def _inside(name: str, member: str) -> PurePosixPath:
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or "\\" in member:
        message = f"archive {name} has the member {member!r}, which leads out of its directory"
        raise InvalidInputError(message)
    return path


def unpack_wheel(archive: Path, name: str, target: Path, limits: UnpackLimits) -> None:
    """Unpack a wheel so that `target` can stand in sys.path: purelib and platlib of its data move to the top."""
    unpack(archive, name, target, limits)
    for library in (*target.glob("*.data/purelib"), *target.glob("*.data/platlib")):
        shutil.copytree(library, target, dirs_exist_ok=True, symlinks=True)
        shutil.rmtree(library)
