"""The exchange directory of this TaskManager: deletes result partitions when nobody needs them any more.

Every TaskManager writes below `<exchange.dir>/<its incarnation>/<job id>/<partition id>`, so that one directory can be
shared by all of them and each one deletes its own only. Consumers read by the paths in partition descriptors.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import fsspec

from runtime.common.deletion import delete_tree
from runtime.common.errors import FlinklikeError, InvalidInputError, RetryableError
from runtime.common.ids import Incarnation, JobId, PartitionId, is_hex_id

logger = logging.getLogger(__name__)

_NAME_MARK = "-"


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
    """Drivers raise whatever the client below them raises: that becomes a RemoteFilesError. OSError stays."""
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
    """What reads and deletes below `url`, and the form of `url` without a file: scheme. Raises FlinklikeError."""
    path = local_path(url)
    return (RemoteTree(url), url.rstrip("/")) if path is None else (LocalTree(), path.rstrip("/") or "/")


class ExchangeDirectory:
    """What this incarnation has written. Deletions happen on threads; failures are logged and left to the collector."""

    def __init__(self, url: str, incarnation: Incarnation, *, has_secret_names: bool = False) -> None:
        self._has_secret_names = has_secret_names
        self._names: dict[JobId, str] = {}
        self._tree, self._base = tree_of(url)
        self._incarnation = incarnation
        self._jobs: set[JobId] = set()

    @property
    def directory(self) -> str:
        """Below which slots of this TaskManager write."""
        return f"{self._base}/{self._incarnation}"

    def directory_of(self, job_id: JobId) -> str:
        """Where a job's partitions are. With secret names whoever may read there has been told it (R50)."""
        if not self._has_secret_names:
            return f"{self.directory}/{job_id}"
        if job_id not in self._names:
            self._names[job_id] = f"{job_id}{_NAME_MARK}{secrets.token_hex(16)}"
        return f"{self.directory}/{self._names[job_id]}"

    def expect(self, job_id: JobId) -> None:
        """An attempt of this job may write partitions."""
        self._jobs.add(job_id)

    async def release(self, partitions: Sequence[PartitionId]) -> None:
        """Delete the files of partitions. Idempotent."""
        for partition in partitions:
            if self._has_secret_names and partition.producer.job_id not in self._names:
                continue  # the job has ended
            await self._delete(f"{self.directory_of(partition.producer.job_id)}/{partition}")

    async def end_job(self, job_id: JobId) -> bool:
        """Delete everything of a job; True when it is gone. Idempotent; costs nothing for a job that wrote nothing."""
        if job_id not in self._jobs:
            return True
        self._jobs.discard(job_id)
        directory = self.directory_of(job_id)
        self._names.pop(job_id, None)
        return await self._delete(directory)

    async def remove(self) -> bool:
        """The TaskManager ends: delete its directory, unless a job that is not over may still read from it.

        True when it is gone.
        """
        return not self._jobs and await self._delete(self.directory)

    def jobs_of(self, incarnation: str) -> Sequence[JobId]:
        """The jobs that another incarnation has left files of. Blocking."""
        names = [name.partition(_NAME_MARK)[0] for name in self._tree.names(f"{self._base}/{incarnation}")]
        return [JobId(name) for name in names if is_hex_id(name)]

    async def delete_of(self, incarnation: str, job_id: JobId | None) -> bool:
        """Delete what another, dead incarnation has left of a job, or at all. True when it is gone."""
        directory = f"{self._base}/{incarnation}"
        if job_id is None:
            return await self._delete(directory)
        names = await asyncio.to_thread(self._tree.names, directory)
        gone = [await self._delete(f"{directory}/{name}") for name in names if name.partition(_NAME_MARK)[0] == job_id]
        return all(gone)

    async def _delete(self, path: str) -> bool:
        try:
            await asyncio.to_thread(self._tree.delete, path)
        except (OSError, FlinklikeError) as error:
            logger.warning("exchange files %s cannot be deleted: %s", path, error)
            return False
        return True
