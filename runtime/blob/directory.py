"""StorageDirectory: a local path or any fsspec URL. Its calls block; the store runs them in its threads.

Invariant: a file that can be seen under its name is complete and, on a local path, synced: it is written under
`tmp/`, synced, renamed into place, and then the directory is synced (R20).
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, Any, Protocol

import fsspec
from fsspec.core import url_to_fs

from runtime.common.errors import NotFoundError, StorageExhaustedError, UnavailableError
from runtime.common.masking import without_login

TMP = "tmp"

_TAKES_NOTHING = {
    errno.ENOSPC: "the storage is full",
    errno.EDQUOT: "the storage is full, its quota is used up",
    errno.EFBIG: "the storage takes no file of this size",
    errno.EROFS: "the storage is read-only",
}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a folder."""

    name: str
    size_bytes: int


class StagedFile(Protocol):
    """A file that is not published yet: no reader sees it."""

    def write(self, data: bytes) -> None:
        """Append."""

    def publish(self, name: str) -> None:
        """Sync it and give it its name, relative to the directory's root. At most once."""

    def discard(self) -> None:
        """Delete the file. Idempotent, without effect after `publish`. Never raises: leftovers are swept later."""


class StorageDirectory(Protocol):
    """Files below a root. Names are relative, with `/`."""

    @property
    def url(self) -> str:
        """As configured, for messages."""

    def stage(self, name: str) -> StagedFile:
        """Begin a new file; `name` makes its temporary name unique."""

    def open(self, name: str) -> IO[bytes]:
        """Read a file. Raises NotFoundError."""

    def files(self, folder: str) -> Sequence[StoredFile]:
        """The files in a folder; none when it does not exist."""

    def folders(self, folder: str) -> Sequence[str]:
        """Names of the folders in a folder; none when it does not exist."""

    def delete(self, name: str) -> None:
        """Delete a file. Idempotent."""


def open_directory(url: str, *, is_read_only: bool = False) -> StorageDirectory:
    """The directory at a local path or URL; made if it does not exist, unless it `is_read_only`.

    Raises UnavailableError.
    """
    if "://" not in url or url.startswith("file://"):
        return LocalDirectory(Path(url.removeprefix("file://")), is_read_only=is_read_only)
    return RemoteDirectory(url, is_read_only=is_read_only)


@contextmanager
def _written(what: str) -> Iterator[None]:
    """`translated` for writes: a missing permission counts as a full storage."""
    with translated(what):
        try:
            yield
        except PermissionError as error:
            message = f"{what}: the storage does not allow it"
            raise StorageExhaustedError(message) from error


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate OSError: StorageExhaustedError, NotFoundError, or UnavailableError for all others."""
    try:
        yield
    except FileNotFoundError as error:
        message = f"{what}: not found"
        raise NotFoundError(message) from error
    except OSError as error:
        if error.errno in _TAKES_NOTHING:
            message = f"{what}: {_TAKES_NOTHING[error.errno]}"
            raise StorageExhaustedError(message) from error
        message = f"{what}: the storage cannot be used"
        raise UnavailableError(message) from error


class LocalDirectory:
    """A path of this host, or a shared file system mounted on it."""

    def __init__(self, root: Path, *, is_read_only: bool = False) -> None:
        self._root = root.absolute()
        if is_read_only:
            return
        with translated(f"storage directory {root}"):
            (self._root / TMP).mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        """The path."""
        return str(self._root)

    def stage(self, name: str) -> StagedFile:
        """A file in `tmp/`."""
        return _LocalStagedFile(self._root, name)

    def open(self, name: str) -> IO[bytes]:
        """Read."""
        with translated(f"read of {name}"):
            # What was a file when it was listed may be a pipe by now, which would wait for a writer.
            descriptor = os.open(self._root / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            opened = os.fdopen(descriptor, "rb")
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                opened.close()
                message = f"{name} is no file"
                raise NotFoundError(message)
            return opened

    def files(self, folder: str) -> Sequence[StoredFile]:
        """Regular files."""
        found = []
        with (
            translated(f"listing of {folder}"),
            suppress(FileNotFoundError),
            os.scandir(self._root / folder) as entries,
        ):
            for entry in entries:
                # Files may vanish while we look.
                with suppress(FileNotFoundError):
                    if entry.is_file():
                        found.append(StoredFile(entry.name, entry.stat().st_size))
        return sorted(found, key=lambda file: file.name)

    def folders(self, folder: str) -> Sequence[str]:
        """Names of folders. Raises UnavailableError when the directory itself is not there."""
        if not folder and not self._root.is_dir():
            message = f"{self._root} is no directory, or is not there"
            raise UnavailableError(message)
        with (
            translated(f"listing of {folder}"),
            suppress(FileNotFoundError),
            os.scandir(self._root / folder) as entries,
        ):
            return sorted(entry.name for entry in entries if entry.is_dir())
        return []

    def delete(self, name: str) -> None:
        """Remove."""
        with translated(f"deletion of {name}"):
            (self._root / name).unlink(missing_ok=True)


class _LocalStagedFile:
    def __init__(self, root: Path, name: str) -> None:
        self._root = root
        # A cancelled caller discards while its last write may still run in a thread: the descriptor must not be closed,
        # and perhaps reused for another file, meanwhile.
        self._lock = Lock()
        self._path = root / TMP / name
        with _written(f"write of {TMP}/{name}"):
            self._file: io.FileIO = io.FileIO(self._path, "xb")

    def write(self, data: bytes) -> None:
        """Append all of it."""
        with self._lock, _written(f"write of {TMP}/{self._path.name}"):
            view = memoryview(data)
            while view:
                view = view[self._file.write(view) or 0 :]

    def publish(self, name: str) -> None:
        """Sync the content, rename, sync the folder."""
        target = self._root / name
        with self._lock, _written(f"write of {name}"):
            os.fsync(self._file.fileno())
            self._file.close()
            _make_synced(target.parent)
            self._path.rename(target)
            _sync_folder(target.parent)

    def discard(self) -> None:
        """Close and remove."""
        with self._lock:
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


def _make_synced(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class RemoteDirectory:
    """A URL for fsspec. A closed file counts as durable."""

    def __init__(self, url: str, *, is_read_only: bool = False) -> None:
        self._url = url
        try:
            file_system, root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            message = f"storage directory {without_login(url)} cannot be used: {error}"
            raise UnavailableError(message) from error
        self._fs: fsspec.AbstractFileSystem = file_system
        self._root = root.rstrip("/")
        if is_read_only:
            return
        with translated(f"storage directory {without_login(url)}"):
            self._fs.makedirs(f"{self._root}/{TMP}", exist_ok=True)

    @property
    def url(self) -> str:
        """As configured."""
        return self._url

    def stage(self, name: str) -> StagedFile:
        """A file in `tmp/`, moved on publication: some stores show a file while it is written."""
        return _RemoteStagedFile(self._fs, self._root, name)

    def open(self, name: str) -> IO[bytes]:
        """Read."""
        with translated(f"read of {name}"):
            opened: IO[bytes] = self._fs.open(f"{self._root}/{name}", "rb")
            return opened

    def files(self, folder: str) -> Sequence[StoredFile]:
        """Regular files."""
        return [
            StoredFile(str(entry["name"]).rpartition("/")[2], int(entry["size"] or 0))
            for entry in self._list(folder)
            if entry["type"] == "file"
        ]

    def folders(self, folder: str) -> Sequence[str]:
        """Names of folders."""
        return [
            str(entry["name"]).rstrip("/").rpartition("/")[2]
            for entry in self._list(folder)
            if entry["type"] == "directory"
        ]

    def delete(self, name: str) -> None:
        """Remove."""
        with suppress(NotFoundError), translated(f"deletion of {name}"):
            self._fs.rm_file(f"{self._root}/{name}")

    def _list(self, folder: str) -> list[dict[str, Any]]:
        with translated(f"listing of {folder}"), suppress(FileNotFoundError):
            # Without refresh some drivers answer from a cache of their own.
            self._fs.invalidate_cache(f"{self._root}/{folder}".rstrip("/"))
            listed: list[dict[str, Any]] = self._fs.ls(f"{self._root}/{folder}".rstrip("/"), detail=True)
            return sorted(listed, key=lambda entry: str(entry["name"]))
        return []


class _RemoteStagedFile:
    def __init__(self, file_system: fsspec.AbstractFileSystem, root: str, name: str) -> None:
        self._fs = file_system
        self._root = root
        self._path = f"{root}/{TMP}/{name}"
        with _written(f"write of {self._path}"):
            self._file: IO[bytes] = self._fs.open(self._path, "wb")

    def write(self, data: bytes) -> None:
        """Append."""
        with _written(f"write of {self._path}"):
            self._file.write(data)

    def publish(self, name: str) -> None:
        """Close, which makes it durable, and move."""
        with _written(f"write of {name}"):
            self._file.close()
            target = f"{self._root}/{name}"
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._fs.mv(self._path, target)

    def discard(self) -> None:
        """Close and remove."""
        with suppress(OSError):
            # Closing flushes the buffer, even when a flush has failed before.
            self._file.close()
        with suppress(OSError):
            self._fs.rm_file(self._path)
