"""R43: shared memory of System V counts for the slot whose task has made it, and goes with the slot's process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from runtime.taskexecutor.containment.segments import listed_segments
from tests.kit.host.levels import reached
from tests.kit.spark.slot_work import slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio]


def in_detached_segments(ctx: Any) -> None:
    import ctypes
    import time

    library = ctypes.CDLL(None)
    library.shmat.restype = ctypes.c_void_p
    for _ in range(15):
        address = library.shmat(library.shmget(0, 10_000_000, 0o1600), None, 0)
        ctypes.memset(address, 1, 10_000_000)
        library.shmdt(ctypes.c_void_p(address))
    time.sleep(30)


async def test_what_nobody_has_attached_counts(tmp_path: Path) -> None:
    async with slot_bench(tmp_path, memory_bytes_max=100 * 1024 * 1024, sample_interval=0.05) as limited:
        report = await limited.run(limited.work(in_detached_segments))
        assert report.failure is not None, report
        assert report.failure.class_name == "MemoryLimitExceededError", report.failure
        assert await limited.value(lambda ctx: 1) == 1


async def test_segments_that_a_task_leaves_are_removed(tmp_path: Path) -> None:
    """R43: no process shows them, and they would stay until the host is started again."""

    def leaves(ctx: Any) -> list[int]:
        import ctypes
        import pathlib
        import time

        library = ctypes.CDLL(None)
        library.shmat.restype = ctypes.c_void_p
        made = [library.shmget(0, 1 << 20, 0o1600) for _ in range(2)]
        ctypes.memset(library.shmat(made[0], None, 0), 1, 1 << 20)  # attached until this process ends
        pathlib.Path(ctx.params["made"]).touch()
        while not pathlib.Path(ctx.params["seen"]).exists():
            time.sleep(0.01)
        return made

    made, seen = tmp_path / "made", tmp_path / "seen"
    async with slot_bench(tmp_path, memory_bytes_max=1 << 30, sample_interval=0.02) as limited:
        work = limited.work(leaves, params={"made": str(made), "seen": str(seen)})
        running = asyncio.create_task(limited.value(work))
        await asyncio.to_thread(reached, made.exists, "the segments are made")
        monitor = limited.pool._monitor
        await asyncio.to_thread(reached, lambda: len(monitor._segments._slots) == 2, "both are seen")
        seen.touch()
        segments = set(await running)
        await limited.value(lambda ctx: 1)  # of other code, so that the process before ends
        await asyncio.to_thread(reached, lambda: not segments & {one.id for one in listed_segments()}, "they are gone")
