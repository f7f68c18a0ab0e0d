"""UnpackedTree: files, directories and links of one archive, below one new directory and nowhere else (R42).

No entry is ever replaced, and each directory on the way to a new entry was looked at, and is no link. So nothing is
written through a link, in any order of members and with any names that the file system takes for the same.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Protocol

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.unpacking.limits import Budget, not_within, shown

_CHUNK_BYTES = 256 << 10
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS = 0o755
_OWNER_BITS = 0o600
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS})
_MTIME_MAX = 1 << 33


class Source(Protocol):
    """The data of a member."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; b"" at the end."""


class UnpackedTree:
    """`root` must exist and be empty. Names are the archive's, with `/`."""

    def __init__(self, root: Path, archive: str, budget: Budget) -> None:
        self._root = str(root)
        self._archive = archive
        self._budget = budget
        self._directories = {""}

    def add_directory(self, name: str) -> None:
        """Add a directory with its parents. A directory that was added before may come again."""
        self._make_directory("/".join(self._parts(name)))

    def add_file(self, name: str, source: Source, *, mode: int = 0, mtime: float | None = None) -> None:
        """A regular file with what `source` gives. Nothing may have that name yet."""
        path = self._new(name)
        descriptor = os.open(path, _NEW_FILE, 0o666)
        try:
            while data := source.read(_CHUNK_BYTES):
                self._budget.take_bytes(self._archive, len(data))
                _write(descriptor, data)
            if mode & 0o777:
                os.fchmod(descriptor, mode & _PERMISSIONS | _OWNER_BITS)
            if mtime is not None and 0 <= mtime < _MTIME_MAX:
                os.utime(descriptor, (mtime, mtime))
        finally:
            os.close(descriptor)

    def add_symbolic_link(self, name: str, target: str) -> None:
        """Add a link that stays within the tree, wherever other links lead: `..` stands only at the beginning of its
        target.

        The directory of the link is no link itself, so as many `..` as its depth end at the root at most.
        """
        parts = target.split("/")
        ups = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
        depth = len(self._parts(name)) - 1
        if not target or target.startswith("/") or "\0" in target or ups > depth or ".." in parts[ups:]:
            message = f"archive {self._archive} has the link {shown(name)} to {shown(target)}"
            raise InvalidInputError(f"{message}: links are relative, stay within, and have .. only at the beginning")
        os.symlink(target, self._new(name))  # noqa: PTH211 - as text, like the others

    def add_hard_link(self, name: str, target: str) -> None:
        """Another name of a file that was added before."""
        existing = self._existing_file(name, target)
        path = self._new(name)
        try:
            os.link(existing, path, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            self._copy(existing, name, path)

    def _copy(self, existing: str, name: str, path: str) -> None:
        source = os.open(existing, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(source, "rb") as file:
            status = os.fstat(source)
            assert not os.path.lexists(path), name
            self._budget.take_bytes(self._archive, status.st_size)
            descriptor = os.open(path, _NEW_FILE, 0o666)
            try:
                while data := file.read(_CHUNK_BYTES):
                    _write(descriptor, data)
                os.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            finally:
                os.close(descriptor)

    def _existing_file(self, name: str, target: str) -> str:
        parts = self._parts(target)
        path = f"{self._root}/{'/'.join(parts)}"
        if "/".join(parts[:-1]) in self._directories:
            try:
                if stat.S_ISREG(os.lstat(path).st_mode):
                    return path
            except FileNotFoundError:
                pass  # told below, as what is no file
        message = (
            f"archive {self._archive} has the hard link {shown(name)} to {shown(target)}, which is no file before it"
        )
        raise InvalidInputError(message)

    def _parts(self, name: str) -> list[str]:
        """The parts of a name. Raises InvalidInputError for a name that is not below the root."""
        parts = [part for part in name.split("/") if part not in {"", "."}]
        if name.startswith("/") or ".." in parts or "\0" in name:
            raise not_within(self._archive, name)
        return parts

    def _new(self, name: str) -> str:
        """The path for a new entry, behind its directory."""
        parts = self._parts(name)
        if not parts:
            raise InvalidInputError(f"archive {self._archive} has a file in the place of its directory: {shown(name)}")
        self._budget.take_entry(self._archive)
        self._make_directory("/".join(parts[:-1]))
        return f"{self._root}/{'/'.join(parts)}"

    def _make_directory(self, relative: str) -> None:
        """Make the missing directories, from the deepest known one downwards: names may be a thousand deep."""
        missing: list[str] = []
        while relative not in self._directories:
            missing.append(relative)
            relative = relative.rpartition("/")[0]
        for directory in reversed(missing):
            self._budget.take_entry(self._archive)
            path = f"{self._root}/{directory}"
            try:
                os.mkdir(path)  # noqa: PTH102 - as text: there may be half a million
            except FileExistsError:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    message = f"archive {self._archive} has {shown(directory)} as a directory and as something else"
                    raise InvalidInputError(message) from None
            self._directories.add(directory)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
