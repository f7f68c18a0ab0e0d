"""Outputs of sinks: what accepted attempts wrote becomes visible, what others wrote disappears.

`ctx.output_path(base)` is a hidden directory of one attempt below `base`. CommitOutputs moves the files of the accepted
attempts of a sink into `base` and then writes `_SUCCESS`. Invariants: nothing moves while a name is taken; repeating a
commit is harmless, also after a crash half way.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runtime.aio.scope import ServiceScope
from runtime.common.errors import FlinklikeError, InvalidInputError
from runtime.common.ids import JobId, VertexId
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import OutputDirectory, TaskExecutionReport
from runtime.taskexecutor.partitions import driver_errors, local_path, remote_files, tree_of
from runtime.taskexecutor.shared_work import SharedWork

logger = logging.getLogger(__name__)

SUCCESS = "_SUCCESS"


class _Mover(Protocol):
    """Moves files below one base. Blocking."""

    def files(self, directory: str, /) -> Sequence[str]:
        """Paths of all output files below a directory, relative to it; empty when it is gone."""

    def is_taken(self, source: str, target: str, /) -> bool:
        """True if the target exists and is not the source."""

    def move(self, source: str, target: str, /) -> None:
        """Rename. Raises FileExistsError when the target exists."""

    def finish(self, base: str, directories: Sequence[str], /) -> None:
        """Delete the emptied directories and write _SUCCESS."""


_MARKERS = frozenset({SUCCESS, f".{SUCCESS}.crc"})
_TEMPORARY = "_temporary"
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS})


def is_output(relative: str) -> bool:
    """False for the markers and the scratch of Spark's committer, which mean nothing outside of their directory."""
    parts = relative.split("/")
    return parts[-1] not in _MARKERS and _TEMPORARY not in parts


class _LocalMover:
    def files(self, directory: str, /) -> Sequence[str]:
        root = Path(directory)
        found = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        return sorted(filter(is_output, found))

    def is_taken(self, source: str, target: str, /) -> bool:
        # The same file: a commit that ended between link and unlink.
        path = Path(target)
        return os.path.lexists(target) and not (path.exists() and path.samefile(source))

    def move(self, source: str, target: str, /) -> None:
        path = Path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # A link fails where a rename would replace what another attempt has written.
            path.hardlink_to(source)
        except FileExistsError:
            if self.is_taken(source, target):
                raise
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if path.exists():
                raise FileExistsError(target) from None
            shutil.move(source, target)
            return
        Path(source).unlink()

    def finish(self, base: str, directories: Sequence[str], /) -> None:
        for directory in directories:
            _delete(directory)
        Path(base).mkdir(parents=True, exist_ok=True)
        (Path(base) / SUCCESS).touch()


class _RemoteMover:
    def __init__(self, base: str) -> None:
        self._files = remote_files(base)

    def files(self, directory: str, /) -> Sequence[str]:
        root = str(self._files._strip_protocol(directory)).rstrip("/")  # noqa: SLF001 (fsspec has no public name)
        found = (str(path)[len(root) + 1 :] for path in self._files.find(directory))
        return sorted(filter(is_output, found))

    def is_taken(self, source: str, target: str, /) -> bool:
        return bool(self._files.exists(target))

    def move(self, source: str, target: str, /) -> None:
        if self.is_taken(source, target):
            raise FileExistsError(target)
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._files.mv(source, target)

    def finish(self, base: str, directories: Sequence[str], /) -> None:
        for directory in directories:
            _delete(directory)
        self._files.touch(f"{base}/{SUCCESS}")


def commit(outputs: Sequence[OutputDirectory]) -> None:
    """Make the outputs visible. Blocking.

    Raises OSError, RemoteFilesError, and InvalidInputError when a name is taken: then nothing has become visible.
    """
    bases = [_base_of(base, outputs) for base in dict.fromkeys(output.base for output in outputs)]
    for base in bases:
        with driver_errors(base.path):
            base.check()
    for base in bases:
        with driver_errors(base.path):
            base.move()


def _base_of(path: str, outputs: Sequence[OutputDirectory]) -> _Base:
    directories = [output.directory for output in outputs if output.base == path]
    local = local_path(path)
    if local is None:
        return _Base(_RemoteMover(path), path.rstrip("/"), directories)
    return _Base(_LocalMover(), local, [local_path(directory) or directory for directory in directories])


@dataclass(frozen=True, slots=True)
class _Base:
    """One directory in which files become visible, and the attempts' directories that they come from."""

    mover: _Mover
    path: str
    directories: Sequence[str]

    def check(self) -> None:
        targets: set[str] = set()
        for source, target in self._moves():
            if target in targets or self.mover.is_taken(source, target):
                raise _taken(target)
            targets.add(target)

    def move(self) -> None:
        for source, target in list(self._moves()):
            try:
                self.mover.move(source, target)
            except FileExistsError:  # since the check
                raise _taken(target) from None
        self.mover.finish(self.path, self.directories)

    def _moves(self) -> Iterator[tuple[str, str]]:
        for directory in self.directories:
            for relative in self.mover.files(directory):
                yield f"{directory}/{relative}", f"{self.path}/{relative}"


def _taken(target: str) -> InvalidInputError:
    return InvalidInputError(f"{target} exists already: another subtask, or an earlier job, wrote a file of that name")


class OutputCommitter:
    """Commits on threads, one at a time per vertex, and deletes what was never committed when a job leaves."""

    def __init__(self, scope: ServiceScope) -> None:
        self._committing: SharedWork[tuple[JobId, VertexId], None] = SharedWork("commit", scope)
        self._directories: dict[JobId, set[str]] = {}

    def note(self, report: TaskExecutionReport) -> None:
        """Remember where an attempt has written."""
        if report.outputs:
            directories = self._directories.setdefault(report.attempt_id.job_id, set())
            directories.update(output.directory for output in report.outputs)

    async def commit(self, message: CommitOutputs) -> None:
        """Do what the message asks for. Raises OSError, FlinklikeError."""
        key = message.job_id, message.vertex_id
        await self._committing.run(key, lambda: asyncio.to_thread(commit, message.outputs))

    async def end_job(self, job_id: JobId) -> None:
        """Delete the outputs of attempts that were not accepted: nothing of them is ever visible."""
        for directory in sorted(self._directories.pop(job_id, ())):
            try:
                await asyncio.to_thread(_delete, directory)
            except (OSError, FlinklikeError) as error:
                logger.warning("output %s of job %s cannot be deleted: %s", directory, job_id, error)


def _delete(directory: str) -> None:
    tree, path = tree_of(directory)
    tree.delete(path)
