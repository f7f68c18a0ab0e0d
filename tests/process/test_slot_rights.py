"""R50: user code gains no rights, whichever user runs the TaskManager."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from runtime.system.linux import is_alive
from runtime.taskexecutor.slots import pool as pool_module
from tests.kit.spark.slot_work import slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio]


async def test_a_renewed_pool_keeps_no_process(tmp_path: Path) -> None:
    """R50: of what one namespace has met, another one meets nothing."""

    def leaves_a_program(ctx: Any) -> list[int]:
        import os
        import subprocess

        left = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        return [os.getpid(), os.getppid(), left.pid]

    async with slot_bench(tmp_path) as bench:
        before = await bench.value(leaves_a_program)
        await bench.pool.renew()
        assert not [pid for pid in before if is_alive(pid)]
        assert not {*before} & {*await bench.value(leaves_a_program)}


class SlowReaper:
    """What it finds left, look by look; None is a fault of ours."""

    def __init__(self, *looks: str | None) -> None:
        self._looks = iter(looks)

    async def sweep(self) -> str:
        found = next(self._looks, "")
        if found is None:
            raise OSError(24, "too many open files")
        return found


async def test_what_does_not_end_is_told_once_each_time_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pool_module, "RESTART_PAUSE", 0.0)
    async with slot_bench(tmp_path, reaper=SlowReaper("sh (5)", "sh (5)", "sh (5)", "sh (5), sleep (7)")) as bench:
        await bench.pool.renew()
    told = [one.getMessage() for one in caplog.records if "does not end" in one.getMessage()]
    assert [one.rpartition(": ")[2] for one in told] == ["sh (5)", "sh (5), sleep (7)"]


async def test_a_pool_that_could_not_be_renewed_loses_templates_aloud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with slot_bench(tmp_path, reaper=SlowReaper(None)) as bench:
        begun = bench.pool._templates.starts.generation
        with pytest.raises(OSError, match="too many open files"):
            await bench.pool.renew()
        async with asyncio.timeout(100):
            await bench.pool._templates.starts.wait_changed(begun)
        caplog.clear()
        again = bench.pool._templates.starts.generation
        os.kill(bench.pool.template_pid, signal.SIGKILL)
        async with asyncio.timeout(100):
            await bench.pool._templates.starts.wait_changed(again)
    lost = [one for one in caplog.records if "all slot processes are replaced" in one.getMessage()]
    assert [one.levelno for one in lost] == [logging.ERROR]


async def test_a_task_gains_no_rights_by_a_program(tmp_path: Path) -> None:
    def rights(ctx: Any) -> list[str]:
        import subprocess

        told = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
        with Path("/proc/self/status").open() as own:
            lines = [*own, *told.splitlines()]
        return [line.strip() for line in lines if line.startswith("NoNewPrivs")]

    async with slot_bench(tmp_path) as bench:
        assert await bench.value(rights) == ["NoNewPrivs:\t1", "NoNewPrivs:\t1"]
