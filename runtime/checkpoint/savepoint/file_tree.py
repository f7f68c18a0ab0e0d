"""Reads directories that users' processes write, and places their files elsewhere, without following any link.

A file is linked where the file system allows it: Spark writes each file of a checkpoint once, under another name first,
and never changes it afterwards. Elsewhere it is copied, with its time of change, by which Spark tells old files from
new ones.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from runtime.checkpoint.savepoint.savepoint_form import SavepointFile
from runtime.common.errors import InvalidInputError

PARALLEL_MAX = 8
FILES_MAX = 500_000
"""Of one directory tree."""
_BLOCK = 1024 * 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_LINKS = frozenset(
    {
        errno.EXDEV,
        errno.EPERM,
        errno.EACCES,
        errno.EMLINK,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.ENOSYS,
        errno.EINVAL,
    }
)

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Listing:
    """Names in a directory. Hidden ones are left out: they are being written, or checksums of Hadoop's."""

    files: tuple[str, ...]
    directories: tuple[str, ...]


class FileTree:
    """All files below `root`, with paths relative to it. Raises OSError, also for a link that is met on the way."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def listing(self, path: str = "") -> Listing:
        """What is in a directory now; nothing where there is no directory."""
        files: list[str] = []
        directories: list[str] = []
        try:
            with self._directory(path) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    if not entry.name.startswith(".") and not entry.name.endswith(".crc"):
                        (directories if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
        except FileNotFoundError:
            pass
        return Listing(tuple(sorted(files)), tuple(sorted(directories)))

    def below(self, path: str = "") -> list[str]:
        """All files below a directory, at any depth. Raises InvalidInputError for more than FILES_MAX."""
        found: list[str] = []
        waiting = [path]
        while waiting:
            at = waiting.pop()
            listing = self.listing(at)
            found += [joined(at, name) for name in listing.files]
            waiting += [joined(at, name) for name in listing.directories]
            if len(found) + len(waiting) > FILES_MAX:
                message = f"{self._root} has more than {FILES_MAX:,} files"
                raise InvalidInputError(message)
        return sorted(found)

    def read(self, path: str, bytes_max: int) -> bytes:
        """The content of a file. Raises InvalidInputError for one that is larger than `bytes_max`."""
        with self._file(path) as descriptor:
            if os.fstat(descriptor).st_size > bytes_max:
                message = f"{self._root / path} is larger than {bytes_max:,} bytes"
                raise InvalidInputError(message)
            return b"".join(_blocks(descriptor))

    def digest(self, path: str) -> SavepointFile:
        """Size and digest of a file."""
        with self._file(path) as descriptor:
            return _digested(path, _blocks(descriptor))

    def place(self, path: str, target: Path) -> SavepointFile:
        """Link or copy a file to where nothing is yet, below a directory that exists. Durable, but for its name."""
        parts = PurePosixPath(path)
        with self._directory(str(parts.parent)) as parent, self._file(path) as descriptor:
            if _linked(parts.name, parent, descriptor, target):
                os.fsync(descriptor)
                return _digested(path, _blocks(descriptor))
            return _copied(path, descriptor, target)

    @contextmanager
    def _directory(self, path: str) -> Iterator[int]:
        descriptor = os.open(self._root, _DIRECTORY)
        try:
            for part in PurePosixPath(path).parts:
                inner = os.open(part, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _file(self, path: str) -> Iterator[int]:
        parts = PurePosixPath(path)
        with self._directory(str(parts.parent)) as parent:
            descriptor = os.open(parts.name, _FILE, dir_fd=parent)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                message = f"{self._root / path} is no file"
                raise InvalidInputError(message)
            yield descriptor
        finally:
            os.close(descriptor)


def place_files(tree: FileTree, paths: Sequence[str], target: Path, *, below: str = "") -> tuple[SavepointFile, ...]:
    """Place files of a tree below `target`, several at once; durable with their names when this returns.

    All paths are below the directory `below`, which is left out of their places.
    """
    places = [PurePosixPath(path).relative_to(below) for path in paths]
    folders = {target, *(target / parent for place in places for parent in place.parents)}
    for folder in sorted(folders):
        folder.mkdir(parents=True, exist_ok=True)
    placed = in_parallel(lambda pair: tree.place(pair[0], target / pair[1]), zip(paths, places, strict=True))
    for folder in folders:
        sync_directory(folder)
    return placed


def in_parallel(call: Callable[[_Item], _Value], items: Iterable[_Item]) -> tuple[_Value, ...]:
    """What the call returns for each item. Raises what a call raises, after those that have begun."""
    with ThreadPoolExecutor(PARALLEL_MAX, "savepoint") as executor:
        return tuple(executor.map(call, items))


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def joined(directory: str, name: str) -> str:
    """The path of a name in a directory; "" is the root."""
    return f"{directory}/{name}" if directory else name


def _linked(name: str, parent: int, descriptor: int, target: Path) -> bool:
    """Link a file that is open. False where the file system, or a right, does not allow it."""
    try:
        os.link(name, target, src_dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    if os.path.samestat(os.lstat(target), os.fstat(descriptor)):
        return True
    target.unlink()  # the name is another file's by now
    return False


def _copied(path: str, descriptor: int, target: Path) -> SavepointFile:
    with target.open("xb") as out:
        placed = _digested(path, _written(_blocks(descriptor), out.write))
        out.flush()
        os.fsync(out.fileno())
    seen = os.fstat(descriptor)
    target.chmod(stat.S_IMODE(seen.st_mode) & 0o777)
    os.utime(target, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    return placed


def _written(blocks: Iterable[bytes], write: Callable[[bytes], int]) -> Iterator[bytes]:
    for block in blocks:
        write(block)
        yield block


def _digested(path: str, blocks: Iterable[bytes]) -> SavepointFile:
    digest, size = hashlib.sha256(), 0
    for block in blocks:
        digest.update(block)
        size += len(block)
    return SavepointFile(path=path, size=size, sha256=digest.hexdigest())


def _blocks(descriptor: int) -> Iterator[bytes]:
    at = 0
    while block := os.pread(descriptor, _BLOCK, at):
        at += len(block)
        yield block
