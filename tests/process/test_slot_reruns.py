"""With executors on other hosts an exclusive task runs once: the end of a lost driver's executors is unknown (R15)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.common.states import ExecutionState
from runtime.gateways.task import TaskExecutionReport
from runtime.taskexecutor.slots.work import SlotWork
from tests.kit.spark.slot_work import SlotBench, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]

MASTER = "spark://master:7077"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots"), spark_cluster=MASTER) as started:
        yield started


def work_of(
    bench: SlotBench, told: Path, *, ordinal: int, is_exclusive: bool, is_first_to_begin: bool = False
) -> SlotWork:
    work = bench.work(lambda _: told.write_text("ran"))
    described = replace(work.task.task, is_exclusive=is_exclusive)
    task = replace(work.task, ordinal=ordinal, task=described, is_first_to_begin=is_first_to_begin)
    return replace(work, task=task)


async def ended(bench: SlotBench, work: SlotWork) -> TaskExecutionReport:
    reports: list[TaskExecutionReport] = []

    class Listener:
        def task_state_changed(self, report: TaskExecutionReport) -> None:
            reports.append(report)

        def task_progressed(self, progress: object) -> None:
            raise AssertionError(progress)

        def split_wanted(self, attempt_id: object, sequence: int) -> None:
            raise AssertionError(attempt_id)

    await bench.pool.run(0, work, Listener())
    return reports[-1]


async def test_a_rerun_of_an_exclusive_task_is_refused_in_words(bench: SlotBench, tmp_path: Path) -> None:
    told = tmp_path / "told"
    report = await ended(bench, work_of(bench, told, ordinal=1, is_exclusive=True))
    assert report.state is ExecutionState.FAILED
    assert report.failure is not None
    assert not report.failure.is_recoverable, "no strategy tries it again"
    assert MASTER in report.failure.message
    assert "one before it may have begun, and its executors may still run on other hosts" in report.failure.message
    assert not told.exists(), "no user code has run"


@pytest.mark.parametrize(
    ("ordinal", "is_exclusive", "is_first_to_begin"),
    [(0, True, True), (0, True, False), (0, False, True), (1, False, False), (2, True, True)],
)
async def test_all_others_run(
    bench: SlotBench, tmp_path: Path, ordinal: int, *, is_exclusive: bool, is_first_to_begin: bool
) -> None:
    told = tmp_path / "told"
    work = work_of(bench, told, ordinal=ordinal, is_exclusive=is_exclusive, is_first_to_begin=is_first_to_begin)
    report = await ended(bench, work)
    assert report.failure is None
    assert told.exists()
