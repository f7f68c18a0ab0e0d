"""Directories of jobs on this TaskManager: the files each job brought along, prepared once for all its tasks.

Layout below `<root>/<job id>/`: `work/` is the tasks' working directory with `files` and unpacked `archives`, as in
spark-submit's cluster mode; `python/` holds py-files; `wheels/<n>/` unpacked wheels; `code/<sha256>/` code blobs.
Invariants: a directory is complete before a task sees it; it is deleted when the job leaves.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from runtime.aio.scope import ServiceScope
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId
from runtime.gateways.task import BlobReference, JobInformation, TaskInformation
from runtime.taskexecutor.archives import UnpackLimits, unpack, unpack_wheel
from runtime.taskexecutor.shared_work import SharedWork

logger = logging.getLogger(__name__)

_IN_SYS_PATH_AS_THEY_ARE = (".zip", ".egg", ".whl", ".jar")


class BlobFiles(Protocol):
    """Local files of stored objects: `runtime.blob.client.BlobSharedClient`."""

    def file(self, key: str, /) -> AbstractAsyncContextManager[Path]:
        """A verified local copy that stays within the block; never written to. Raises NotFoundError."""


@dataclass(frozen=True, slots=True)
class JobDirectory:
    """What the tasks of one job start from. `brought`: what lies at the top of `work` then, by name."""

    root: Path
    work: Path
    python_path: tuple[Path, ...]
    brought: tuple[str, ...] = ()


class JobDirectories:
    """All of them. One instance per TaskManager; `root` is its own."""

    def __init__(self, root: Path, blobs: BlobFiles, scope: ServiceScope, limits: UnpackLimits) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = root
        self._blobs = blobs
        self._limits = limits
        self._prepared: dict[JobId, JobDirectory] = {}
        self._preparing: SharedWork[JobId, JobDirectory] = SharedWork("job directory", scope)
        self._fetching: SharedWork[tuple[JobId, str], Path] = SharedWork("code", scope)

    async def prepare(self, job: JobInformation) -> JobDirectory:
        """The job's directory, complete. Concurrent tasks share one preparation.

        Raises InvalidInputError for names or archives that cannot be used, NotFoundError and RetryableError of the
        blob store.
        """
        prepared = self._prepared.get(job.job_id)
        if prepared is None:
            if _has_files(job):
                prepared = await self._preparing.run(job.job_id, lambda: self._prepare(job))
            else:
                prepared = self._empty(job.job_id)
            self._prepared[job.job_id] = prepared
        return prepared

    async def code_files(self, job_id: JobId, task: TaskInformation) -> Mapping[str, Path]:
        """The local file of each code blob, by its sha256."""
        files: dict[str, Path] = {}
        for blob in task.code_blobs:
            path = self._code_path(job_id, blob)
            if not path.exists():
                path = await self._fetching.run((job_id, blob.sha256), partial(self._fetch_code, job_id, blob))
            files[blob.sha256] = path
        return files

    async def delete(self, job_id: JobId) -> None:
        """Delete a job's directory. Idempotent. What an abandoned preparation still writes is awaited first."""
        await self._preparing.settle(lambda key: key == job_id)
        await self._fetching.settle(lambda key: key[0] == job_id)
        self._prepared.pop(job_id, None)
        root = self._root / job_id
        try:
            # Most small jobs leave an empty directory: two system calls, no thread.
            (root / "work").rmdir()
            root.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)

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
            return await asyncio.to_thread(_lay_out, root, job, sources, self._limits)

    def _code_path(self, job_id: JobId, blob: BlobReference) -> Path:
        return self._root / job_id / "code" / _plain_name(blob.sha256) / _plain_name(blob.name)

    async def _fetch_code(self, job_id: JobId, blob: BlobReference) -> Path:
        path = self._code_path(job_id, blob)
        async with self._local(blob) as source:
            await asyncio.to_thread(_place, source, path)
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


def _has_files(job: JobInformation) -> bool:
    return bool(job.py_files or job.files or job.archives or job.wheels)


def _lay_out(
    root: Path, job: JobInformation, sources: Mapping[str, Path | bytes], limits: UnpackLimits
) -> JobDirectory:
    """Place everything below a new directory and move it to `root` at the end. Blocking."""
    building = root.with_name(f"{root.name}.building")
    try:
        python_path = _fill(building, job, sources, limits)
        shutil.rmtree(root, ignore_errors=True)
        building.rename(root)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    brought = tuple(_name_in_work(blob) for blob in (*job.files, *job.archives))
    return JobDirectory(root, root / "work", tuple(root / path for path in python_path), brought)


def _fill(building: Path, job: JobInformation, sources: Mapping[str, Path | bytes], limits: UnpackLimits) -> list[Path]:
    (building / "work").mkdir(parents=True)
    for blob in job.files:
        _place(sources[blob.sha256], building / "work" / _name_in_work(blob))
    for blob in job.archives:
        source_name, _ = _name_and_alias(blob.name)
        with _as_file(sources[blob.sha256], building / "unpacking") as archive:
            unpack(archive, source_name, _vacant(building / "work" / _name_in_work(blob)), limits)
    return _lay_out_python(building, job, sources, limits)


def _lay_out_python(
    building: Path, job: JobInformation, sources: Mapping[str, Path | bytes], limits: UnpackLimits
) -> list[Path]:
    """py-files in their order, then wheels; paths relative to the job's directory."""
    python_path: list[Path] = []
    for blob in job.py_files:
        name = _plain_name(blob.name)
        relative = Path("python") / name
        _place(sources[blob.sha256], building / relative)
        entry = relative if name.lower().endswith(_IN_SYS_PATH_AS_THEY_ARE) else relative.parent
        if entry not in python_path:
            python_path.append(entry)
    for number, blob in enumerate(job.wheels):
        relative = Path("wheels") / str(number)
        with _as_file(sources[blob.sha256], building / "unpacking") as wheel:
            unpack_wheel(wheel, _plain_name(blob.name), building / relative, limits)
        python_path.append(relative)
    return python_path


@contextmanager
def _as_file(source: Path | bytes, temporary: Path) -> Iterator[Path]:
    """The path of a source; inline bytes are written to a temporary file."""
    if isinstance(source, Path):
        yield source
        return
    temporary.write_bytes(source)
    yield temporary
    temporary.unlink()


def _place(source: Path | bytes, target: Path) -> None:
    """Copy: user code may change its files, and the cache may lose its own."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(source, bytes):
        _vacant(target).write_bytes(source)
        return
    building = target.with_name(f".{target.name}.building")
    shutil.copyfile(source, building)
    building.rename(_vacant(target))


def _vacant(target: Path) -> Path:
    if target.exists():
        message = f"the job brings two files named {target.name}"
        raise InvalidInputError(message)
    return target


def _name_in_work(blob: BlobReference) -> str:
    name, alias = _name_and_alias(blob.name)
    return alias or name


def _name_and_alias(text: str) -> tuple[str, str]:
    """`x.zip#alias` -> (x.zip, alias); the alias is "" when there is none."""
    name, _, alias = text.partition("#")
    return _plain_name(name), _plain_name(alias) if alias else ""


def _plain_name(name: str) -> str:
    if not name or name in {".", ".."} or "/" in name or "\\" in name or "\0" in name:
        message = f"{name[:200]!r} is no plain file name"
        raise InvalidInputError(message)
    return name
