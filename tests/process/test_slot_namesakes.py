"""R50: a task waits for the end of what had the user of its slot before; what happens meanwhile is heard."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.taskexecutor.containment.users import TaskUser
from runtime.taskexecutor.slots.work import SlotWork
from tests.kit.host.process_tree import freeze
from tests.kit.spark.slot_work import RecordingListener, SlotBench, slot_bench

pytestmark = [
    pytest.mark.process,
    pytest.mark.asyncio,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a slot process a user"),
]

ONE, TWO = (JobId(digit * 32) for digit in "12")


def pid(ctx: Any) -> int:
    return os.getpid()


def of_slot(bench: SlotBench, job_id: JobId) -> SlotWork:
    """Work of a slot's user. It is root again, so that it may read the directories of a test."""
    user = TaskUser(0, 0, 0, str(bench.directory), processes_max=64)
    return replace(bench.work(pid, job_id=job_id), user=user)


class Waiting:
    """An attempt that waits for the end of the one before it: its template is stopped, so no end is seen."""

    def __init__(self, bench: SlotBench) -> None:
        self.listener = RecordingListener()
        self.work = of_slot(bench, TWO)
        self.run = asyncio.get_running_loop().create_task(bench.pool.run(0, self.work, self.listener))

    @property
    def states(self) -> tuple[ExecutionState, ...]:
        return self.listener.states.value


@asynccontextmanager
async def waiting(bench: SlotBench) -> AsyncIterator[Waiting]:
    """From here to the end of the block; then the attempt goes on to its end."""
    before = await bench.value(of_slot(bench, ONE))
    slot = bench.pool._slots[0]
    while slot.fresh is None or not slot.fresh.is_idle:
        await asyncio.sleep(0.01)
    freeze(bench.pool.template_pid)
    try:
        found = Waiting(bench)
        await asyncio.sleep(0)
        assert slot.attempt is not None
        assert [process.pid for process in slot.used] == [before]
        yield found
    finally:
        os.kill(bench.pool.template_pid, signal.SIGCONT)
    await found.run


async def test_who_is_cancelled_meanwhile_does_not_run(tmp_path: Path) -> None:
    async with slot_bench(tmp_path) as bench:
        async with waiting(bench) as found:
            await bench.pool.cancel(0, found.work.task.attempt_id)
            assert not found.states
        assert found.states == (ExecutionState.CANCELED,)


async def test_who_loses_its_process_meanwhile_runs_in_another_one(tmp_path: Path) -> None:
    async with slot_bench(tmp_path) as bench:
        async with waiting(bench) as found:
            mine = [child for child in bench.pool._slots[0].processes() if child.is_idle]
            running = bench.pool._slots[0].attempt
            assert running is not None
            mine += [running.process] if running.process is not None else []
            assert len(mine) == 1
            mine[0].kill()
        assert found.states == (ExecutionState.RUNNING, ExecutionState.FINISHED)
