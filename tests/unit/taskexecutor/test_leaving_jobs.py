"""R50: a job's numbers on a TaskManager go to another job only after all of its files are deleted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import Incarnation, JobId
from runtime.taskexecutor.containment.users import SlotUsers
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.directories.job_directory import JobDirectories
from runtime.taskexecutor.directories.job_users import JobUsers

ONE, TWO = (JobId(digit * 32) for digit in "12")


@pytest.fixture
def stubborn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories that cannot be removed: a mount, or an immutable file."""

    def refuse(*_args: Any, **_options: Any) -> None:
        raise OSError(16, "busy")

    monkeypatch.setattr(os, "rmdir", refuse)
    monkeypatch.setattr(Path, "rmdir", refuse)


def job_users(tmp_path: Path) -> JobUsers:
    return JobUsers(SlotUsers(20000, 20003, slots=2, processes_max=10), tmp_path, (), tmp_path)


def test_a_group_is_free_when_all_of_its_job_is_removed(tmp_path: Path) -> None:
    users = job_users(tmp_path)
    assert users._gid_of(ONE) == 20003
    users.leave(ONE, is_removed=True)
    assert users._gid_of(TWO) == 20003


def test_a_group_stays_while_something_of_its_job_is_left(tmp_path: Path) -> None:
    users = job_users(tmp_path)
    users._gid_of(ONE)
    users.leave(ONE, is_removed=False)
    with pytest.raises(Exception, match="no group for one more"):
        users._gid_of(TWO)
    assert users._gid_of(ONE) == 20003, "and is its own when it comes back"


@pytest.mark.asyncio
async def test_a_directory_that_stays_is_told(tmp_path: Path, stubborn: None) -> None:
    nothing: Any = None
    directories = JobDirectories(tmp_path, nothing, nothing, nothing)
    assert await directories.delete(ONE)
    (tmp_path / ONE / "work").mkdir(parents=True)
    assert not await directories.delete(ONE)


@pytest.mark.asyncio
async def test_partitions_that_stay_are_told(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    exchange = ExchangeDirectory(str(tmp_path), Incarnation("3" * 32))
    assert await exchange.end_job(ONE)
    exchange.expect(ONE)
    assert await exchange.end_job(ONE)
    (tmp_path / ("3" * 32) / ONE / "p").mkdir(parents=True)
    request.getfixturevalue("stubborn")
    exchange.expect(ONE)
    assert not await exchange.end_job(ONE)
