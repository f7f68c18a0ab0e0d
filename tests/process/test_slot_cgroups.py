"""R50: the kernel's limits of a slot, where it has control groups to give."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from runtime.common.ids import JobId
from runtime.common.states import ExecutionState
from runtime.taskexecutor.containment.cgroups import SlotCgroups, SlotLimits
from tests.kit.cluster.script_cluster import ROOT
from tests.kit.spark.slot_work import SlotBench, slot_bench

MEMORY = 256 << 20
LIMITS = SlotLimits(memory_bytes=MEMORY, cpu_cores=0.5, processes=40)
SMALL_SHARE = SlotLimits(memory_bytes=MEMORY, cpu_cores=0.05, processes=40)
"""Less than a group has of a machine with twenty programs for each processor."""


pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def there_are_groups() -> None:
    made = SlotCgroups.make(1, LIMITS)
    made.remove()
    if made.refused:
        pytest.skip(f"no control groups here: {made.refused}")


needs_groups = pytest.mark.usefixtures("there_are_groups")


@pytest_asyncio.fixture
async def groups() -> AsyncIterator[SlotCgroups]:
    made = SlotCgroups.make(2, LIMITS)
    yield made
    made.remove()


@pytest_asyncio.fixture
async def bench(tmp_path: Path, groups: SlotCgroups) -> AsyncIterator[SlotBench]:
    async with slot_bench(tmp_path, slots=2, cgroups=groups) as started:
        yield started


def members_of(group: str) -> set[int]:
    return {int(pid) for path in Path(group).rglob("cgroup.procs") for pid in path.read_text().split()}


@needs_groups
@pytest.mark.asyncio
async def test_what_a_slot_starts_is_in_its_groups(bench: SlotBench, groups: SlotCgroups) -> None:
    def own(ctx: Any) -> list[int]:
        import os
        import subprocess

        child = subprocess.run(
            ["sh", "-c", "echo $$; cat /proc/self/cgroup >&2"], capture_output=True, text=True, check=True
        )
        return [os.getpid(), child.stderr.count("/flinklike-slots-")]

    for slot in (0, 1):
        pid, named = await bench.value(own, slot=slot)
        assert named == len(groups.controllers) == 3
        for group in groups.of(slot):
            assert pid in members_of(group)


@needs_groups
@pytest.mark.asyncio
async def test_a_fork_bomb_stops_at_the_limit_of_its_slot(bench: SlotBench) -> None:
    def bomb(ctx: Any) -> int:
        import os
        import time

        count = 0
        while count < 1000:
            try:
                if os.fork() == 0:
                    time.sleep(1000)
                    os._exit(0)
            except OSError:
                break
            count += 1
        return count

    assert await bench.value(bomb) < LIMITS.processes
    assert await bench.value(lambda ctx: 1, slot=1) == 1
    assert await bench.value(lambda ctx: 2) == 2


@needs_groups
@pytest.mark.asyncio
async def test_memory_that_grows_at_once_ends_its_task_only(bench: SlotBench) -> None:
    def grow(ctx: Any) -> int:
        return len(bytearray(2 << 30))

    report = await bench.run(grow)
    assert report.state is ExecutionState.FAILED
    assert report.failure is not None
    assert "by the out-of-memory killer of its slot" in report.failure.message
    assert "taskmanager.slots.cgroups" in report.failure.message
    assert await bench.value(lambda ctx: 1) == 1


@needs_groups
@pytest.mark.asyncio
async def test_what_a_job_leaves_in_memory_is_charged_to_no_later_one(
    bench: SlotBench, groups: SlotCgroups, tmp_path: Path
) -> None:
    """Neither to a process that was there meanwhile, nor to the ones after it."""

    def leave(ctx: Any) -> str:
        import tempfile

        with tempfile.NamedTemporaryFile(dir="/dev/shm", delete=False) as file:
            for _ in range(200):
                file.write(bytes(1 << 20))
        return file.name

    def use(ctx: Any) -> int:
        return len(bytearray(b"x") * (150 << 20))

    left: list[str] = []
    try:
        for number in range(3):
            left.append(await bench.value(bench.work(leave, job_id=JobId(f"{number:032}"))))
            assert await bench.value(bench.work(use, job_id=JobId(f"{number + 10:032}"))) == 150 << 20
    finally:
        for name in left:
            os.unlink(name)  # noqa: PTH108 - in memory, which takes no time


@needs_groups
@pytest.mark.asyncio
async def test_a_process_takes_its_own_group_along(bench: SlotBench, groups: SlotCgroups) -> None:
    """Else they would be as many as jobs."""

    def own_groups() -> int:
        return sum(len([child for child in Path(group).iterdir() if child.is_dir()]) for group in groups.of(0))

    for number in range(5):
        assert await bench.value(bench.work(lambda ctx: 1, job_id=JobId(f"{number:032}"))) == 1
    async with asyncio.timeout(60):
        while own_groups() > 2:
            await asyncio.sleep(0.05)


@needs_groups
@pytest.mark.asyncio
async def test_a_slot_is_held_to_its_share_of_the_processor(tmp_path: Path) -> None:
    groups = SlotCgroups.make(1, SMALL_SHARE)
    stats = [str(path) for group in groups.of(0) if (path := Path(group) / "cpu.stat").exists()]

    def burn(ctx: Any) -> None:
        """Until the kernel has held it up."""

        def throttled() -> int:
            lines = [line.split() for stat in stats for line in Path(stat).read_text().splitlines()]
            return sum(int(value) for key, value in lines if key == "nr_throttled")

        before = throttled()
        while throttled() == before:
            sum(range(1000))

    try:
        async with slot_bench(tmp_path, cgroups=groups) as bench:
            await bench.value(burn)
    finally:
        groups.remove()


@needs_groups
@pytest.mark.asyncio
async def test_nothing_is_left_of_them(tmp_path: Path) -> None:
    groups = SlotCgroups.make(1, LIMITS)
    async with slot_bench(tmp_path, cgroups=groups) as bench:
        assert await bench.value(lambda ctx: 1) == 1
        there = [Path(path) for path in groups.of(0)]
        assert all(map(os.path.isdir, there))
    assert not any(map(os.path.exists, (path.parent for path in there)))


@needs_groups
def test_what_a_killed_one_has_left_goes_at_the_next_start() -> None:
    made = "print(*SlotCgroups.make(1, LIMITS).of(0), flush=True)"
    code = f"from tests.process.test_slot_cgroups import *; {made}; os._exit(9)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    left = done.stdout.split()
    assert len(left) == 3, done.stderr
    SlotCgroups.make(1, LIMITS).remove()
    assert not any(Path(path).exists() for path in left)


@needs_groups
@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of process numbers needs root")
def test_groups_of_another_namespace_of_process_numbers_stay() -> None:
    """A container that shares the tree: its process numbers mean nothing here."""
    made = SlotCgroups.make(1, LIMITS)
    left = [Path(path) for path in made.of(0)]
    code = "from tests.process.test_slot_cgroups import *; SlotCgroups.make(1, LIMITS).remove()"
    command = ["unshare", "-p", "-f", "--mount-proc", sys.executable, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if "unshare" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        assert all(path.is_dir() for path in left)
    finally:
        made.remove()


@pytest.mark.skipif(os.geteuid() != 0, reason="hiding the groups needs root")
def test_what_cannot_be_had_is_told() -> None:
    code = "from tests.process.test_slot_cgroups import *; print(SlotCgroups.make(1, LIMITS).refused)"
    hide = 'mount --make-rprivate / && mount -t tmpfs tmpfs /sys/fs/cgroup && exec "$@"'
    command = ["unshare", "-m", "bash", "-c", hide, "hide", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert all(name in done.stdout for name in ("memory", "cpu", "pids")), done.stdout + done.stderr
