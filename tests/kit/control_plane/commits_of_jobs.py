"""Several jobs that commit to one base, without TaskManagers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.errors import UnavailableError
from runtime.common.ids import JobId
from runtime.gateways.job_master import CommitOutputs
from runtime.gateways.task import OVERWRITE, OutputDirectory
from runtime.taskexecutor.outputs.commit_records import commit_names
from runtime.taskexecutor.outputs.move_permit import Permit
from runtime.taskexecutor.outputs.output_move import OutputMove
from runtime.taskexecutor.outputs.output_turns import StoredJobs
from runtime.taskexecutor.storage.local_output_files import LocalOutputFiles
from runtime.taskexecutor.storage.remote_output_files import RemoteOutputFiles
from tests.kit.control_plane.task_messages import VERTEX


class Known:
    """One cluster's jobs."""

    cluster = "here"

    def __init__(self, *over: JobId, is_away: bool = False) -> None:
        self.over = set(over)
        self.is_away = is_away
        self.asked = 0

    async def is_over(self, job: JobId, /) -> bool:
        self.asked += 1
        if self.is_away:
            message = "the store is away"
            raise UnavailableError(message)
        return job in self.over


def written(base: Path, job: JobId, mode: str = OVERWRITE, name: str = "") -> OutputDirectory:
    directory = base / f".attempt-{job}_0"
    directory.mkdir(parents=True)
    for number in range(3):
        (directory / f"{name or job[-1]}-{number}").write_text(job)
    return OutputDirectory(str(base), str(directory), mode)


async def moving(
    job: JobId,
    output: OutputDirectory,
    jobs: StoredJobs | None = None,
    permit: Permit | None = None,
    executor: Executor | None = None,
) -> None:
    message, may = CommitOutputs(job, 1, VERTEX, (output,), 1), permit or Permit()
    await OutputMove(message, may, executor, lambda *_: None, LoopClock(), patience=0.0, jobs=jobs).run()


def move(
    job: JobId,
    output: OutputDirectory,
    jobs: StoredJobs | None = None,
    permit: Permit | None = None,
    executor: Executor | None = None,
) -> None:
    asyncio.run(moving(job, output, jobs, permit, executor))


def names(job: JobId) -> dict[str, str]:
    return {f"{job[-1]}-{number}": job for number in range(3)}


def wanted(base: Path, job: JobId, *, cluster: str = "here", mode: str = OVERWRITE) -> Path:
    """Another job's turn."""
    base.mkdir(exist_ok=True)
    path = base / commit_names(job).turn
    path.write_text(f'{{"cluster":"{cluster}","epoch":1,"order":1,"mode":"{mode}"}}\n')
    return path


@contextlib.contextmanager
def room_for(files: int) -> Iterator[None]:
    """So many files get their names, then the storage refuses."""
    real, left = LocalOutputFiles.put, iter(range(files))

    def put(self: LocalOutputFiles, source: str, target: str, size: int, /, **options: Any) -> None:
        if next(left, None) is None:
            raise PermissionError(13, "Permission denied")
        real(self, source, target, size, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalOutputFiles, "put", put)
        yield


@contextlib.contextmanager
def killed_behind(
    name: str, storage: type[LocalOutputFiles | RemoteOutputFiles] = LocalOutputFiles
) -> Iterator[Permit]:
    """For the mover that ends as soon as it has written a file of that name."""
    permit, real = Permit(), storage.write

    def write(self: Any, written: str, data: bytes, /) -> None:
        real(self, written, data)
        if written.endswith(name):
            permit.withdraw("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "write", write)
        yield permit
