"""Outputs of sinks: what accepted attempts wrote becomes visible, what others wrote disappears.

`ctx.output_path(base)` is a hidden directory of one attempt below `base`. CommitOutputs moves the files of the accepted
attempts of a sink into `base` and then writes `_SUCCESS`. Repeating a commit is harmless, also after a crash half way.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import fsspec

from runtime.aio.scope import ServiceScope
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, VertexId
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import OutputDirectory, TaskExecutionReport
from runtime.taskexecutor.partitions import local_path, tree_of
from runtime.taskexecutor.shared_work import SharedWork

logger = logging.getLogger(__name__)

SUCCESS = "_SUCCESS"


class _Mover(Protocol):
    """Moves files below one base. Blocking."""

    def files(self, directory: str, /) -> Sequence[str]:
        """Paths of all output files below a directory, relative to it; empty when it is gone."""

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

    def move(self, source: str, target: str, /) -> None:
        path = Path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # A link fails where a rename would replace what another attempt has written.
            path.hardlink_to(source)
        except FileExistsError:
            if not path.samefile(source):  # else: a commit that ended between link and unlink
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
            tree_of(directory)[0].delete(directory)
        Path(base).mkdir(parents=True, exist_ok=True)
        (Path(base) / SUCCESS).touch()


class _RemoteMover:
    def __init__(self, base: str) -> None:
        self._files: Any = fsspec.core.url_to_fs(base)[0]

    def files(self, directory: str, /) -> Sequence[str]:
        root = str(self._files._strip_protocol(directory)).rstrip("/")  # noqa: SLF001 (fsspec has no public name)
        found = (str(path)[len(root) + 1 :] for path in self._files.find(directory))
        return sorted(filter(is_output, found))

    def move(self, source: str, target: str, /) -> None:
        if self._files.exists(target):
            raise FileExistsError(target)
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._files.mv(source, target)

    def finish(self, base: str, directories: Sequence[str], /) -> None:
        for directory in directories:
            tree_of(directory)[0].delete(directory)
        self._files.touch(f"{base}/{SUCCESS}")


def commit(outputs: Sequence[OutputDirectory]) -> None:
    """Make the outputs visible. Blocking. Raises OSError, InvalidInputError when two attempts wrote the same name."""
    for base in dict.fromkeys(output.base for output in outputs):
        directories = [output.directory for output in outputs if output.base == base]
        local = local_path(base)
        if local is None:
            _commit_base(_RemoteMover(base), base.rstrip("/"), directories)
        else:
            _commit_base(_LocalMover(), local, [local_path(directory) or directory for directory in directories])


def _commit_base(mover: _Mover, base: str, directories: Sequence[str]) -> None:
    for source, target in list(_moves(mover, base, directories)):
        try:
            mover.move(source, target)
        except FileExistsError:
            message = f"{target} exists already: another subtask, or an earlier job, wrote a file of that name"
            raise InvalidInputError(message) from None
    mover.finish(base, directories)


def _moves(mover: _Mover, base: str, directories: Sequence[str]) -> Iterator[tuple[str, str]]:
    for directory in directories:
        for relative in mover.files(directory):
            yield f"{directory}/{relative}", f"{base}/{relative}"


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
        """Do what the message asks for. Raises OSError, InvalidInputError."""
        key = message.job_id, message.vertex_id
        await self._committing.run(key, lambda: asyncio.to_thread(commit, message.outputs))

    async def end_job(self, job_id: JobId) -> None:
        """Delete the outputs of attempts that were not accepted: nothing of them is ever visible."""
        for directory in sorted(self._directories.pop(job_id, ())):
            tree, path = tree_of(directory)
            try:
                await asyncio.to_thread(tree.delete, path)
            except OSError as error:
                logger.warning("output %s of job %s cannot be deleted: %s", path, job_id, error)
