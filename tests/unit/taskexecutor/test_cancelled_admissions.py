"""An attempt is cancelled while its job is given its group: it is heard of once, and never reaches its slot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.scope import ServiceScope
from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.taskexecutor.attempts import Attempts
from runtime.taskexecutor.containment.users import SlotUsers, TaskUser
from runtime.taskexecutor.core.events import AttemptEnded, AttemptReported, RunAttempt
from runtime.taskexecutor.credentials.secret_files import SecretFiles
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.directories.job_directory import JobDirectories, JobDirectory
from runtime.taskexecutor.directories.job_users import JobUsers
from runtime.taskexecutor.unpacking.limits import UnpackLimits
from tests.kit.control_plane.task_executor_cluster import NoBlobs
from tests.kit.control_plane.task_messages import attempt_id, incarnation, job_information, task
from tests.kit.control_plane.testing_slot_pool import AT_ONCE, TestingSlotPool

pytestmark = pytest.mark.asyncio


class BlockedJobUsers(JobUsers):
    """Stays in `admit` until it is told to go on."""

    def __init__(self, directory: Path) -> None:
        super().__init__(SlotUsers(23000, 23010, 1, 64), directory, (), directory)
        self.entered, self.may_continue = asyncio.Event(), asyncio.Event()

    async def admit(self, job_id: JobId, slot_index: int, directory: JobDirectory, code: Iterable[Path]) -> TaskUser:
        self.entered.set()
        await self.may_continue.wait()
        return TaskUser(os.getuid(), os.getgid(), os.getgid(), str(directory.root), 64)

    def close_logs(self, directory: Path) -> None:
        """They are the test's."""


async def test_it_does_not_run(tmp_path: Path) -> None:
    heard: list[Any] = []
    pool, users = TestingSlotPool(), BlockedJobUsers(tmp_path)
    scope = ServiceScope("test")
    await scope.open()
    attempts = Attempts(
        pool,
        JobDirectories(tmp_path / "jobs", NoBlobs(), scope, UnpackLimits()),
        ExchangeDirectory(str(tmp_path / "exchange"), incarnation(3)),
        log_directory=tmp_path / "logs",
        secrets=SecretFiles("", "tm-1"),
        clock=LoopClock(),
        scope=scope,
        post=heard.append,
        users=users,
    )
    attempts.run(RunAttempt(0, job_information(), task(1, 0, 1, operators=AT_ONCE)))
    await users.entered.wait()
    attempts.cancel(0, attempt_id(1, 0))
    users.may_continue.set()
    while not heard or not isinstance(heard[-1], AttemptEnded):
        await asyncio.sleep(0)
    await scope.close()
    assert [one.report.state for one in heard if isinstance(one, AttemptReported)] == [ExecutionState.CANCELED]
    assert pool.started.value == 0
