"""Trees of directories that exchange and outputs lie in: a path of this host, or any URL that fsspec reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import fsspec

from runtime.common.deletion import delete_tree
from runtime.common.errors import InvalidInputError, RetryableError


class RemoteFilesError(RetryableError):
    """The driver of a remote file system failed, in a way of its own."""


def remote_files(url: str) -> Any:
    """fsspec's file system of a URL. Raises InvalidInputError where there is none for it, RemoteFilesError."""
    with driver_errors(url):
        try:
            return fsspec.core.url_to_fs(url)[0]
        except (ImportError, ValueError) as error:
            message = f"{url} cannot be reached from this TaskManager: {error}"
            raise InvalidInputError(message) from error


@contextmanager
def driver_errors(url: str) -> Iterator[None]:
    """Turn an error of a driver into a RemoteFilesError: drivers raise any error of the client below them. OSError
    stays.
    """
    try:
        yield
    except (OSError, InvalidInputError):
        raise
    except Exception as error:
        message = f"{url}: {type(error).__name__}: {error}"
        raise RemoteFilesError(message) from error


class DirectoryTree(Protocol):
    """The few operations on a tree of directories that exchange and outputs need.

    All blocking; they raise OSError and FlinklikeError.
    """

    def delete(self, path: str, /) -> None:
        """Delete a directory with all below it. Idempotent."""

    def names(self, path: str, /) -> Sequence[str]:
        """Names in a directory; empty when there is none."""


class LocalTree:
    """A path of this host."""

    def delete(self, path: str, /) -> None:
        """Delete a directory with all below it, as far as that is possible; raises the first failure."""
        for failure in delete_tree(path):
            raise failure

    def names(self, path: str, /) -> Sequence[str]:
        """Names in a directory."""
        try:
            return sorted(entry.name for entry in Path(path).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return ()


class RemoteTree:
    """Any fsspec URL."""

    def __init__(self, url: str) -> None:
        self._files = remote_files(url)

    def delete(self, path: str, /) -> None:
        """Delete a directory with all below it."""
        with driver_errors(path):
            try:
                self._files.rm(path, recursive=True)
            except FileNotFoundError:
                return

    def names(self, path: str, /) -> Sequence[str]:
        """Names in a directory."""
        with driver_errors(path):
            try:
                return sorted(str(name).rstrip("/").rpartition("/")[2] for name in self._files.ls(path, detail=False))
            except (FileNotFoundError, NotADirectoryError):
                return ()


def local_path(url: str) -> str | None:
    """The local path that a URL or path names; None when it is elsewhere."""
    if url.startswith("file:"):
        return "/" + url.removeprefix("file:").lstrip("/")
    return None if "://" in url else url


def tree_of(url: str) -> tuple[DirectoryTree, str]:
    """The tree that reads and deletes below `url`, and `url` without a file: scheme. Raises FlinklikeError."""
    path = local_path(url)
    return (RemoteTree(url), url.rstrip("/")) if path is None else (LocalTree(), path.rstrip("/") or "/")
