"""Directories of jobs on this TaskManager: the files each job brought along, prepared once for all its tasks.

Layout below `<root>/<job id>/`: `work/` is the tasks' working directory with `files` and unpacked `archives`, as in
spark-submit's cluster mode; `python/` holds py-files; `wheels/<n>/` unpacked wheels; `code/<sha256>/` code blobs.
Invariants: a directory is complete before a task sees it; it is deleted when the job leaves.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from runtime.aio.scope import ServiceScope
from runtime.common.deletion import delete_tree
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.gateways.task import BlobReference, JobInformation, TaskInformation
from runtime.taskexecutor.directories.jar_files import JarFiles
from runtime.taskexecutor.directories.placing import place, plain_name, twice, vacant
from runtime.taskexecutor.directories.shared_work import SharedWork
from runtime.taskexecutor.slot_protocol.wire import RemoteFile
from runtime.taskexecutor.unpacking.limits import UnpackLimits
from runtime.taskexecutor.unpacking.messages import ArchiveToUnpack
from runtime.taskexecutor.unpacking.process import unpack_archives, unpack_archives_as

logger = logging.getLogger(__name__)

_IN_SYS_PATH_AS_THEY_ARE = (".zip", ".egg", ".whl", ".jar")
_INLINE = "unpacking"


class BlobFiles(Protocol):
    """Local files of stored objects: `runtime.blob.client.BlobSharedClient`."""

    def file(self, key: str, /) -> AbstractAsyncContextManager[Path]:
        """A verified local copy that stays within the block; never written to. Raises NotFoundError."""


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """What the tasks of one job start from. `brought`: what lies at the top of `work` then, by name.

    `jars` are beside it, since jobs share them.
    """

    root: Path
    work: Path
    python_path: tuple[Path, ...]
    brought: tuple[str, ...] = ()
    jars: tuple[Path, ...] = ()
    remote: tuple[RemoteFile, ...] = ()


class JobDirectories:
    """The directories of all jobs. One instance per TaskManager; `root` is its own.

    `unpacker_of`: the number of the user that unpacks a job's archives; without it that is the TaskManager's user.
    """

    def __init__(
        self,
        root: Path,
        blobs: BlobFiles,
        scope: ServiceScope,
        limits: UnpackLimits,
        unpacker_of: Callable[[JobId], int] | None = None,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._unpacker_of = unpacker_of
        self._root = root
        self._blobs = blobs
        self._limits = limits
        self._prepared: dict[JobId, JobDirectory] = {}
        self._preparing: SharedWork[JobId, JobDirectory] = SharedWork("job directory", scope)
        self._fetching: SharedWork[tuple[JobId, str], Path] = SharedWork("code", scope)
        self._jars = JarFiles(root.with_name("jars"), self._local, scope)

    async def prepare(self, job: JobInformation) -> JobDirectory:
        """The job's directory, complete. Concurrent tasks share one preparation.

        Raises InvalidInputError for names or archives that cannot be used, NotFoundError and RetryableError of the
        blob store.
        """
        prepared = self._prepared.get(job.job_id)
        if prepared is None:
            local = _without_remote(job)
            if _has_files(local):
                prepared = await self._preparing.run(job.job_id, lambda: self._prepare(local))
            else:
                prepared = self._empty(job.job_id)
            prepared = _with_remote(prepared, job)
            if job.jars:
                prepared = replace(prepared, jars=await self._jars.prepare(job.job_id, job.jars))
            self._prepared[job.job_id] = prepared
        return prepared

    async def code_files(self, job_id: JobId, task: TaskInformation) -> Mapping[str, Path]:
        """The local file of each code blob, by its sha256."""
        files: dict[str, Path] = {}
        for blob in (blob for blob in task.code_blobs if not blob.url):
            path = self._code_path(job_id, blob)
            if not path.exists():
                path = await self._fetching.run((job_id, blob.sha256), partial(self._fetch_code, job_id, blob))
            files[blob.sha256] = path
        return files

    async def delete(self, job_id: JobId) -> bool:
        """Delete a job's directory; True when it is deleted. Idempotent. What an abandoned preparation still writes is
        awaited first.
        """
        await self._preparing.settle(lambda key: key == job_id)
        await self._fetching.settle(lambda key: key[0] == job_id)
        self._prepared.pop(job_id, None)
        root = self._root / job_id
        try:
            # Most small jobs leave an empty directory: two system calls, no thread.
            (root / "work").rmdir()
            root.rmdir()
        except FileNotFoundError:
            return not root.exists() or await asyncio.to_thread(_remove, root)
        except OSError:
            return await asyncio.to_thread(_remove, root)
        return True

    async def delete_jars(self, job_id: JobId, in_use: Collection[str]) -> None:
        """The job has left: its jars go, but those of other jobs and, by sha256, of Spark environments (`in_use`)."""
        await self._jars.delete(job_id, in_use)

    def _empty(self, job_id: JobId) -> JobDirectory:
        root = self._root / job_id
        work = root / "work"
        # Not parents=True: that begins with a call that fails, for every small job.
        root.mkdir(exist_ok=True)
        work.mkdir(exist_ok=True)
        return JobDirectory(root, work, ())

    async def _prepare(self, job: JobInformation) -> JobDirectory:
        blobs = (*job.py_files, *job.files, *job.archives, *job.wheels)
        root = self._root / job.job_id
        async with AsyncExitStack() as held:
            sources = {blob.sha256: await held.enter_async_context(self._local(blob)) for blob in blobs}
            return await self._build(root, job, sources)

    async def _build(self, root: Path, job: JobInformation, sources: Mapping[str, Path | bytes]) -> JobDirectory:
        """Place everything below another directory, which becomes `root` at the end (R42)."""
        building = root.with_name(f"{root.name}.building")
        try:
            laid_out = await asyncio.to_thread(_lay_out, building, job, sources)
            if laid_out.archives:
                await self._unpack(job.job_id, building, laid_out.archives)
            await asyncio.to_thread(_move, building, root)
        except BaseException:
            # Whatever ended it, a cancel too: the process that unpacks is dead, and what it has left means nothing.
            await asyncio.to_thread(delete_tree, building)
            raise
        brought = tuple(_name_in_work(blob) for blob in (*job.files, *job.archives))
        return JobDirectory(root, root / "work", tuple(root / path for path in laid_out.python_path), brought)

    async def _unpack(self, job_id: JobId, building: Path, archives: tuple[ArchiveToUnpack, ...]) -> None:
        if self._unpacker_of is None:
            await unpack_archives(archives, self._limits)
        else:
            await unpack_archives_as(self._unpacker_of(job_id), archives, self._limits, building)

    def _code_path(self, job_id: JobId, blob: BlobReference) -> Path:
        return self._root / job_id / "code" / plain_name(blob.sha256) / plain_name(blob.name)

    async def _fetch_code(self, job_id: JobId, blob: BlobReference) -> Path:
        path = self._code_path(job_id, blob)
        async with self._local(blob) as source:
            await asyncio.to_thread(place, source, path)
        return path

    @asynccontextmanager
    async def _local(self, blob: BlobReference) -> AsyncIterator[Path | bytes]:
        """A local source of a file, for as long as the block lasts."""
        if blob.key:
            async with self._blobs.file(blob.key) as path:
                yield path
            return
        if hashlib.sha256(blob.inline).hexdigest() != blob.sha256:
            message = f"{blob.name} travelled inside the job and does not have the digest {blob.sha256}"
            raise InvalidInputError(message)
        yield blob.inline


def _remove(root: Path) -> bool:
    """Blocking. All that can be deleted, then whether something is left."""
    failures = delete_tree(root)
    if not root.exists():
        return True
    logger.warning("files of a job stay behind: %s", failures[0] if failures else root)
    return False


def _without_remote(job: JobInformation) -> JobInformation:
    """The job with the files alone that travel with it."""
    return replace(
        job,
        py_files=_local(job.py_files),
        files=_local(job.files),
        archives=_local(job.archives),
        wheels=_local(job.wheels),
    )


def _local(blobs: tuple[BlobReference, ...]) -> tuple[BlobReference, ...]:
    return tuple(blob for blob in blobs if not blob.url)


def _with_remote(prepared: JobDirectory, job: JobInformation) -> JobDirectory:
    """What the slot process fetches lies in the working directory; modules and packages are imported from there."""
    remote: list[RemoteFile] = []
    names: list[str] = []
    python_path = [*prepared.python_path]
    for group, is_archive in ((job.files, False), (job.archives, True)):
        for blob in (blob for blob in group if blob.url):
            names.append(_name_in_work(blob))
            remote.append(RemoteFile(blob.url, str(prepared.work / names[-1]), is_archive))
    for blob in (blob for blob in job.py_files if blob.url):
        names.append(plain_name(blob.name))
        path = prepared.work / names[-1]
        remote.append(RemoteFile(blob.url, str(path)))
        if path.name.lower().endswith(_IN_SYS_PATH_AS_THEY_ARE):
            python_path.append(path)
    if not remote:
        return prepared
    for name in names:
        if names.count(name) > 1 or name in prepared.brought:
            raise twice(prepared.work / name)
    brought = (*prepared.brought, *names)
    return replace(prepared, python_path=tuple(python_path), brought=brought, remote=tuple(remote))


def _has_files(job: JobInformation) -> bool:
    return bool(job.py_files or job.files or job.archives or job.wheels)


@dataclass(frozen=True, slots=True)
class _LaidOut:
    """Everything but the `archives` is in its place. `python_path` is relative to the job's directory."""

    archives: tuple[ArchiveToUnpack, ...]
    python_path: tuple[Path, ...]


def _lay_out(building: Path, job: JobInformation, sources: Mapping[str, Path | bytes]) -> _LaidOut:
    """Blocking."""
    delete_tree(building)  # of an attempt whose deletion has failed
    (building / "work").mkdir(parents=True)
    for blob in job.files:
        place(sources[blob.sha256], building / "work" / _name_in_work(blob))
    archives: list[ArchiveToUnpack] = []
    for blob in job.archives:
        name, _ = _name_and_alias(blob.name)
        target = vacant(building / "work" / _name_in_work(blob))
        if any(one.root == str(target) for one in archives):
            raise twice(target)
        archives.append(_to_unpack(building, sources[blob.sha256], name, target))
    python_path: list[Path] = []
    for blob in job.py_files:
        name = plain_name(blob.name)
        relative = Path("python") / name
        place(sources[blob.sha256], building / relative)
        entry = relative if name.lower().endswith(_IN_SYS_PATH_AS_THEY_ARE) else relative.parent
        if entry not in python_path:
            python_path.append(entry)
    for number, blob in enumerate(job.wheels):
        relative = Path("wheels") / str(number)
        name = plain_name(blob.name)
        archives.append(_to_unpack(building, sources[blob.sha256], name, building / relative, is_wheel=True))
        python_path.append(relative)
    return _LaidOut(tuple(archives), tuple(python_path))


def _to_unpack(
    building: Path, source: Path | bytes, name: str, target: Path, *, is_wheel: bool = False
) -> ArchiveToUnpack:
    """What travelled inside the job is a file first: the process that unpacks is given paths."""
    if isinstance(source, bytes):
        inline = building / _INLINE / f"{hashlib.sha256(source).hexdigest()}"
        inline.parent.mkdir(exist_ok=True)
        inline.write_bytes(source)
        source = inline
    return ArchiveToUnpack(str(source), name, str(target), is_wheel)


def _move(building: Path, root: Path) -> None:
    """All is there: it becomes the job's directory. Blocking."""
    delete_tree(building / _INLINE)
    delete_tree(root)
    building.rename(root)


def _name_in_work(blob: BlobReference) -> str:
    name, alias = _name_and_alias(blob.name)
    return alias or name


def _name_and_alias(text: str) -> tuple[str, str]:
    """`x.zip#alias` -> (x.zip, alias); the alias is "" when there is none."""
    name, _, alias = text.partition("#")
    return plain_name(name), plain_name(alias) if alias else ""
