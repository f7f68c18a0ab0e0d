"""R50: nothing that a slot process inherits from the start of the TaskManager is a door for user code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.spark.slot_work import slot_bench

pytestmark = [pytest.mark.process, pytest.mark.asyncio]


def regular_files(ctx: Any) -> list[str]:
    """That this process has open."""
    import os
    import stat

    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            if stat.S_ISREG(os.fstat(int(name)).st_mode):
                found.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
        except OSError:  # the listing's own
            continue
    return sorted(found)


async def test_a_task_has_no_file_of_the_task_manager(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`capfd`: descriptors 1 and 2 are regular files here, as the TaskManager's are.

    The memory file is the slot process's own, for its stacks (D-111).
    """
    async with slot_bench(tmp_path) as bench:
        for _ in range(2):  # also a task in a process that is kept
            work = bench.work(regular_files)
            logs = work.log_directory / str(work.task.attempt_id)
            own = ["/memfd:stacks (deleted)", str(logs / "stderr"), str(logs / "stdout")]
            assert await bench.value(work) == own
