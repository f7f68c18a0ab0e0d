"""The guard knows each process that runs an exclusive task, from before the task begins until nothing is left (R14)."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runtime.common.errors import UnavailableError
from runtime.common.states import ExecutionState
from runtime.system.linux import is_alive
from runtime.taskexecutor.slots.work import SlotWork
from tests.kit.spark.slot_work import SlotBench, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]


class RecordingGuard:
    """Keeps what it is told; takes no orders while it is frozen."""

    def __init__(self) -> None:
        self.marked: set[int] = set()
        self.orders: list[tuple[str, int]] = []
        self.is_frozen = False

    def mark_exclusive(self, pid: int) -> None:
        if self.is_frozen:
            message = "the guard takes no orders"
            raise UnavailableError(message)
        self.marked.add(pid)
        self.orders.append(("mark", pid))

    def unmark(self, pid: int) -> None:
        assert pid in self.marked
        self.marked.discard(pid)
        self.orders.append(("unmark", pid))


GUARD = RecordingGuard()


@pytest.fixture(autouse=True)
def fresh() -> None:
    GUARD.orders.clear()
    GUARD.is_frozen = False


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots"), guard=GUARD) as started:
        yield started


def process_id(_: Any) -> int:
    return os.getpid()


def wait_for_ever(_: Any) -> None:
    signal.pause()


def not_exclusive(work: SlotWork) -> SlotWork:
    return replace(work, task=replace(work.task, task=replace(work.task.task, is_exclusive=False)))


async def test_a_process_is_marked_for_as_long_as_the_task_runs(bench: SlotBench) -> None:
    for _ in range(2):
        pid = await bench.value(process_id)
        assert GUARD.orders[-2:] == [("mark", pid), ("unmark", pid)]


async def test_other_tasks_cost_nothing(bench: SlotBench) -> None:
    await bench.value(not_exclusive(bench.work(process_id)))
    assert GUARD.orders == []


async def test_a_killed_process_is_unmarked_when_it_is_gone(bench: SlotBench) -> None:
    work = bench.work(wait_for_ever)
    listener, running = await bench.started(work)
    [pid] = GUARD.marked
    await bench.pool.cancel(0, work.task.attempt_id)
    await running
    assert listener.terminal.state is ExecutionState.CANCELED
    assert not is_alive(pid)
    assert GUARD.orders == [("mark", pid), ("unmark", pid)]


async def test_what_the_guard_cannot_be_told_of_does_not_run(bench: SlotBench, tmp_path: Path) -> None:
    told = tmp_path / "told"
    GUARD.is_frozen = True
    work = bench.work(lambda _: told.write_text("ran"))
    reports = []

    class Listener:
        def task_state_changed(self, report: Any) -> None:
            reports.append(report)

        def task_progressed(self, progress: Any) -> None:
            raise AssertionError(progress)

        def split_wanted(self, attempt_id: Any, sequence: int) -> None:
            raise AssertionError(attempt_id)

    await bench.pool.run(0, work, Listener())
    [report] = reports
    assert report.state is ExecutionState.FAILED
    assert "the guard takes no orders" in report.failure.message
    assert not told.exists()
    GUARD.is_frozen = False
    assert await bench.value(process_id)
