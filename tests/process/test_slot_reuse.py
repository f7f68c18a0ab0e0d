"""Which task may follow in which process, and what it finds there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.system.linux import is_alive
from tests.kit.spark.slot_work import SlotBench, slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module")]

ONE, TWO, THREE = (JobId(digit * 32) for digit in "123")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path_factory.mktemp("slots")) as started:
        yield started


def pid(ctx: Any) -> int:
    import os

    return os.getpid()


async def test_tasks_of_one_job_share_a_process(bench: SlotBench) -> None:
    assert await bench.value(bench.work(pid)) == await bench.value(bench.work(pid, subtask=1))


async def test_another_job_gets_a_process_of_its_own(bench: SlotBench) -> None:
    first = await bench.value(bench.work(pid, job_id=ONE))
    assert await bench.value(bench.work(pid, job_id=TWO)) != first


async def test_jobs_with_one_key_share_a_process(bench: SlotBench) -> None:
    first = await bench.value(bench.work(pid, job_id=ONE, reuse_key="k"))
    assert await bench.value(bench.work(pid, job_id=TWO, reuse_key="k")) == first
    assert await bench.value(bench.work(pid, job_id=THREE, reuse_key="other")) != first


async def test_globals_survive_by_design(bench: SlotBench, tmp_path: Path) -> None:
    (tmp_path / "counter_module.py").write_text("n = 0\ndef count(ctx):\n    global n\n    n += 1\n    return n\n")
    work = [
        bench.work("counter_module:count", job_id=job, reuse_key="c", python_path=(tmp_path,)) for job in (ONE, TWO)
    ]
    assert [await bench.value(item) for item in work] == [1, 2]


async def test_a_failure_ends_the_process(bench: SlotBench) -> None:
    first = await bench.value(bench.work(pid))
    assert (await bench.run(lambda ctx: 1 / 0)).state is ExecutionState.FAILED
    assert await bench.value(bench.work(pid)) != first


async def test_reuse_can_be_turned_off(tmp_path: Path) -> None:
    async with slot_bench(tmp_path, is_reuse_enabled=False) as bench:
        assert await bench.value(bench.work(pid)) != await bench.value(bench.work(pid))


async def test_each_job_has_its_own_directory_path_and_environment(bench: SlotBench, tmp_path: Path) -> None:
    def look(ctx: Any) -> Any:
        import os
        import pathlib
        import sys

        return [
            str(pathlib.Path.cwd()),
            os.environ.get("OF_THE_JOB"),
            [entry for entry in sys.path if "brought" in entry],
        ]

    one = bench.work(
        look, job_id=ONE, reuse_key="d", environment={"OF_THE_JOB": "x"}, python_path=(tmp_path / "brought",)
    )
    two = bench.work(look, job_id=TWO, reuse_key="d")
    assert await bench.value(one) == [str(one.job_directory), "x", [str(tmp_path / "brought")]]
    assert await bench.value(two) == [str(two.job_directory), None, []]


async def test_a_package_goes_on_importing_after_its_first_job_is_gone(bench: SlotBench, tmp_path: Path) -> None:
    paths = []
    for name in ("first", "second"):
        package = tmp_path / name / "moving_package"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("def load(ctx):\n    return 'loaded'\n")
        (package / "later.py").write_text("def load(ctx):\n    from moving_package import later\n    return 'late'\n")
        paths.append(package.parent)
    one = bench.work("moving_package:load", job_id=ONE, reuse_key="m", python_path=(paths[0],))
    assert await bench.value(one) == "loaded"
    for file in sorted(paths[0].rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    two = bench.work("moving_package.later:load", job_id=TWO, reuse_key="m", python_path=(paths[1],))
    assert await bench.value(two) == "late"


async def test_a_process_that_nobody_follows_is_ended(tmp_path: Path) -> None:
    async with slot_bench(tmp_path, keep_idle=0.05) as bench:
        first = await bench.value(bench.work(pid))
        for _ in range(500):
            if not is_alive(first):
                break
            await asyncio.sleep(0.01)
        assert not is_alive(first)
        assert await bench.value(bench.work(pid)) != first


async def test_processes_draw_different_numbers(bench: SlotBench) -> None:
    def draw(ctx: Any) -> Any:
        import random

        return random.random()

    assert await bench.value(bench.work(draw, job_id=ONE)) != await bench.value(bench.work(draw, job_id=TWO))


async def test_a_task_is_entered_at_once(bench: SlotBench) -> None:
    """0.4 ms on an idle machine; the bound leaves room for a busy one, and still tells a fork from a hand-over."""

    def now(ctx: Any) -> float:
        import time

        return time.monotonic()

    await bench.value(now)
    delays = []
    for _ in range(50):
        work = bench.work(now)
        begun = time.monotonic()
        delays.append(await bench.value(work) - begun)
    assert min(delays) < 0.005, sorted(delays)[:5]
