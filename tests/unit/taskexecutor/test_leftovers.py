"""What dead TaskManagers left is deleted; what living ones or unfinished jobs need is not."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import fsspec
import pytest

from runtime.common.ids import JobId, PartitionId
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.directories.working_directory import LeftoverCollector, WorkingDirectory
from runtime.taskexecutor.storage.directory_tree import local_path
from tests.kit.control_plane.task_messages import attempt_id, incarnation, job_id
from tests.kit.strangers.deep_directories import deep_directories

pytestmark = pytest.mark.asyncio

LIVE_JOB = job_id(7)
LEVELS = 1010


async def is_over(job: JobId) -> bool:
    return job != LIVE_JOB


def task_manager(root: Path, number: int, *jobs: JobId) -> WorkingDirectory:
    directory = WorkingDirectory(root / "work", incarnation(number))
    directory.acquire()
    (directory.jobs / job_id(1)).mkdir()
    for job in jobs:
        (root / "exchange" / incarnation(number) / job / "p").mkdir(parents=True)
    return directory


def kill(directory: WorkingDirectory) -> None:
    os.close(directory._lock)


def collector(root: Path, own: WorkingDirectory, number: int) -> LeftoverCollector:
    return LeftoverCollector(own, ExchangeDirectory(str(root / "exchange"), incarnation(number)), is_over)


async def test_everything_of_a_dead_task_manager_is_deleted(tmp_path: Path) -> None:
    dead = task_manager(tmp_path, 1, job_id(1), job_id(2))
    kill(dead)
    own = task_manager(tmp_path, 2, job_id(3))
    assert await collector(tmp_path, own, 2).activate() == 0
    assert not dead.path.exists()
    assert [path.name for path in (tmp_path / "exchange").iterdir()] == [incarnation(2)]
    own.remove()


async def test_a_living_task_manager_beside_us_keeps_its_files(tmp_path: Path) -> None:
    neighbour, own = task_manager(tmp_path, 1, job_id(1)), task_manager(tmp_path, 2)
    await collector(tmp_path, own, 2).activate()
    assert (neighbour.jobs / job_id(1)).exists()
    assert (tmp_path / "exchange" / incarnation(1) / job_id(1)).exists()
    neighbour.remove()
    own.remove()


async def test_partitions_of_a_job_that_is_not_over_are_kept_until_it_is(tmp_path: Path) -> None:
    dead = task_manager(tmp_path, 1, job_id(1), LIVE_JOB)
    kill(dead)
    own = task_manager(tmp_path, 2)
    assert await collector(tmp_path, own, 2).activate() == 1
    exchange = tmp_path / "exchange" / incarnation(1)
    assert [path.name for path in exchange.iterdir()] == [LIVE_JOB]
    assert not dead.jobs.exists(), "job directories are of no use to other TaskManagers"

    async def everything_is_over(_: JobId) -> bool:
        return True

    mine = ExchangeDirectory(str(tmp_path / "exchange"), incarnation(2))
    assert await LeftoverCollector(own, mine, everything_is_over).activate() == 0
    assert not exchange.exists()
    assert not dead.path.exists()
    own.remove()


async def test_files_that_cannot_be_deleted_are_not_called_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dead = task_manager(tmp_path, 1, job_id(1))
    kill(dead)
    own = task_manager(tmp_path, 2)

    def refuse(path: str, *_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "not permitted", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rmdir", refuse)  # root may delete everything
        assert await collector(tmp_path, own, 2).activate() == 1
    assert "cannot be deleted: [Errno 1] not permitted" in caplog.text
    assert await collector(tmp_path, own, 2).activate() == 0
    assert not dead.path.exists()
    own.remove()


async def test_what_cannot_be_deleted_is_found_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = task_manager(tmp_path, 1, job_id(1))
    held = dead.jobs / job_id(1) / "held"
    held.parent.mkdir(parents=True, exist_ok=True)
    held.touch()
    kill(dead)
    own = task_manager(tmp_path, 2)
    unlink = os.unlink

    def refuse(path: str, *arguments: Any, **options: Any) -> None:
        if path == held.name:
            raise PermissionError(errno.EPERM, "not permitted", path)
        unlink(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refuse)  # root may delete everything
        assert await collector(tmp_path, own, 2).activate() == 1
        assert await collector(tmp_path, own, 2).activate() == 1, "without its lock no collector would look at it again"
    assert await collector(tmp_path, own, 2).activate() == 0
    assert not dead.path.exists()
    own.remove()


async def test_a_clean_stop_leaves_nothing(tmp_path: Path) -> None:
    own = task_manager(tmp_path, 1)
    own.remove()
    own.remove()
    assert not own.path.exists()


async def test_partitions_that_jobs_may_still_read_outlive_a_clean_stop(tmp_path: Path) -> None:
    stopped = task_manager(tmp_path, 1, LIVE_JOB)
    exchange = ExchangeDirectory(str(tmp_path / "exchange"), incarnation(1))
    exchange.expect(LIVE_JOB)
    assert not await exchange.remove()
    stopped.leave()
    stopped.leave()
    assert not stopped.jobs.exists()
    own = task_manager(tmp_path, 2)
    assert await collector(tmp_path, own, 2).activate() == 1, "others know that it was there"
    assert (tmp_path / "exchange" / incarnation(1) / LIVE_JOB).is_dir()
    own.remove()


async def test_released_partitions_and_ended_jobs_are_deleted(tmp_path: Path) -> None:
    exchange = ExchangeDirectory(str(tmp_path), incarnation(1))
    mine = tmp_path / incarnation(1)
    exchange.expect(job_id(1))
    partitions = [PartitionId(attempt_id(1, subtask), 0) for subtask in range(2)]
    for partition in partitions:
        (mine / job_id(1) / str(partition)).mkdir(parents=True)
    await exchange.release(partitions[:1])
    await exchange.release(partitions[:1])
    assert [path.name for path in (mine / job_id(1)).iterdir()] == [str(partitions[1])]
    await exchange.remove()
    assert mine.exists(), "a job may still read from it"
    await exchange.end_job(job_id(1))
    assert not (mine / job_id(1)).exists()
    await exchange.remove()
    assert not mine.exists()


async def test_an_exchange_directory_may_be_any_fsspec_url() -> None:
    files = fsspec.filesystem("memory")
    files.pipe(f"/exchange/{incarnation(1)}/{job_id(1)}/p/file", b"x")
    files.pipe(f"/exchange/{incarnation(1)}/strange/file", b"x")
    exchange = ExchangeDirectory("memory://exchange", incarnation(2))
    assert list(exchange.jobs_of(incarnation(1))) == [job_id(1)]
    await exchange.delete_of(incarnation(1), job_id(1))
    assert not list(exchange.jobs_of(incarnation(1)))
    assert list(exchange.jobs_of(incarnation(9))) == []
    files.rm("/exchange", recursive=True)


@pytest.mark.parametrize(
    ("url", "path"),
    [("/a/b", "/a/b"), ("file:///a", "/a"), ("file:/a", "/a"), ("s3://b/k", None), ("hdfs://h/p", None)],
)
async def test_local_urls_are_recognised(url: str, path: str | None) -> None:
    assert local_path(url) == path


async def test_a_deep_directory_ends_no_later_task_manager(tmp_path: Path) -> None:
    dead = task_manager(tmp_path, 1, job_id(1))
    with deep_directories(tmp_path) as make_deep:
        make_deep(dead.jobs / job_id(1) / "work", LEVELS)
        make_deep(tmp_path / "exchange" / incarnation(1) / job_id(1), LEVELS)
        kill(dead)
        own = task_manager(tmp_path, 2)
        assert await collector(tmp_path, own, 2).activate() == 0
        assert not dead.path.exists()


async def test_what_one_has_left_keeps_nobody_from_the_rest(tmp_path: Path) -> None:
    for number in (1, 2):
        kill(task_manager(tmp_path, number, job_id(number)))
    own = task_manager(tmp_path, 3)

    async def fails_for_one(job: JobId) -> bool:
        if job == job_id(1):
            raise RecursionError
        return True

    exchange = ExchangeDirectory(str(tmp_path / "exchange"), incarnation(3))
    assert await LeftoverCollector(own, exchange, fails_for_one).activate() == 1
    assert [path.name for path in sorted((tmp_path / "work").iterdir())] == [f"tm-{incarnation(n)}" for n in (1, 3)]
    own.remove()
