"""What user code starts through the JVM ends before the loss of the JVM is reported (R29)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.system.linux import is_alive
from tests.process.test_task_manager_spark import jvm_of, spark_task_manager

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.asyncio]


def starts_a_program(path: str) -> Callable[[Any], None]:
    """A script of a query: what Spark itself starts from the JVM for user code."""

    def run(ctx: Any) -> None:
        script = f"echo $$ > {path}; exec sleep 1000"
        ctx.spark.sql(f"SELECT TRANSFORM(id) USING '{script}' FROM range(1)").collect()

    return run


async def test_a_program_of_a_lost_jvm_ends_before_the_report(tmp_path: Path, class_archive: Path | None) -> None:
    told = tmp_path / "pid"
    async with spark_task_manager(tmp_path, class_archive) as manager:
        await manager.wait_slots(2)
        await manager.run_job(starts_a_program(str(told)), waits=False)
        async with asyncio.timeout(200):
            while not told.exists() or not told.read_text().strip():
                await asyncio.sleep(0.05)
        program = int(told.read_text())
        assert is_alive(program)
        heard = len(manager.job_master.reports)
        os.kill(jvm_of(manager), signal.SIGKILL)
        report = (await manager.job_master.wait_reports(heard + 1, timeout=200))[-1]
        alive = is_alive(program)
        assert report.failure is not None
        assert "Spark of this TaskManager was lost" in report.failure.message
        assert not alive, "its report was there before its end"
