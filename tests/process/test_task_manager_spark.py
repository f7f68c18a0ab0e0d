"""A real TaskManager with Spark: ready when a slot can count, back by itself when the JVM is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from runtime.gateways.job_master import TaskProgresses
from runtime.gateways.resource_manager import SlotReport
from tests.kit.cluster.task_manager_process import TaskManager, ended, exists, is_alive, task_manager
from tests.kit.control_plane.task_messages import acknowledge, end_job, free_slots
from tests.kit.spark.class_archive import share
from tests.kit.spark.spark_box import QUICK_JVM

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.slow, pytest.mark.asyncio, pytest.mark.timeout(400)]

OPTIONS = (
    "taskmanager.spark.enabled=true",
    "taskmanager.memory.spark.size=768 mb",
    "taskmanager.spark.warm-up.count=2",
    *(f"{key}={value}" for key, value in QUICK_JVM.items()),
)


@asynccontextmanager
async def spark_task_manager(directory: Path, archive: Path | None) -> AsyncIterator[TaskManager]:
    shared = [f"{key}={value}" for key, value in share(archive, directory / "run").items()]
    async with task_manager(directory, *OPTIONS, *shared) as manager:
        yield manager


def count(ctx: Any) -> int:
    rows: int = ctx.spark.range(1000).count()
    return rows


def count_for_ever(ctx: Any) -> None:
    while True:
        ctx.report_progress(ctx.spark.range(1000).count() / 1000, "counted")


def nothing(_ctx: Any) -> None:
    """Never touches Spark."""


def is_counting(manager: TaskManager) -> bool:
    news = [entry for message in manager.job_master.of(TaskProgresses) for entry in message.progresses]
    return any(entry.text == "counted" for entry in news)


def jvm_of(manager: TaskManager) -> int:
    java = [pid for pid in manager.descendants() if "java" in name_of(pid)]
    assert len(java) == 1, java
    return java[0]


def name_of(pid: int) -> str:
    """Slot processes come and go meanwhile."""
    try:
        return psutil.Process(pid).name()
    except psutil.NoSuchProcess:
        return ""


async def test_spark_is_ready_used_lost_and_back(tmp_path: Path, class_archive: Path | None) -> None:
    async with spark_task_manager(tmp_path, class_archive) as manager:
        begun = time.monotonic()
        await manager.leader.wait_for(SlotReport, timeout=120)
        assert manager.leader.of(SlotReport)[0].slots == (), "no slot before Spark is ready"
        assert not manager.ready_file.exists()
        await manager.wait_slots(2)
        print(f"ready after {time.monotonic() - begun:.1f} s")
        assert manager.registration.has_spark

        for job in (1, 2):
            print(f"count: {await manager.run_job(count, job=job) * 1000:.0f} ms")
            assert manager.job_master.reports[-1].value == b"1000", manager.job_master.reports[-1].failure
            await manager.end_job(job)

        await manager.run_job(count_for_ever, job=3, waits=False)
        reports, heard = len(manager.leader.of(SlotReport)), len(manager.job_master.reports)
        await manager.job_master.wait(lambda: is_counting(manager), timeout=120)
        os.kill(jvm_of(manager), signal.SIGKILL)
        report = (await manager.job_master.wait_reports(heard + 1, timeout=60))[-1]
        assert report.failure is not None
        assert "Spark of this TaskManager was lost" in report.failure.message
        away = await manager.wait_slots(1, after=reports)
        assert away.slots[0].allocation_id is not None, "only the slot that its job still holds"
        reports = len(manager.leader.of(SlotReport))
        manager.job_master.send(*end(3))
        begun = time.monotonic()
        await manager.wait_slots(2, after=reports)
        print(f"back after {time.monotonic() - begun:.1f} s")
        await manager.run_job(count, job=4)
        assert manager.job_master.reports[-1].value == b"1000", manager.job_master.reports[-2:]

        pids = manager.descendants()
        begun = time.monotonic()
        manager.process.send_signal(signal.SIGTERM)
        assert (await ended(manager))[0] == 0
        print(f"stopped after {time.monotonic() - begun:.1f} s")
        assert not any(map(exists, pids))


def end(job: int) -> tuple[Any, ...]:
    return acknowledge(0, job=job), free_slots(job, job=job), end_job(job)


def starting_jvms(manager: TaskManager, *, has_gateway: bool) -> list[int]:
    """Driver JVMs, not those that are asked for their version."""
    found = []
    for pid in manager.descendants():
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            is_driver = process.name() == "java" and any(one.endswith(".SparkSubmit") for one in process.cmdline())
            if is_driver and (not has_gateway or process.net_connections()):
                found.append(pid)
    return found


@pytest.mark.parametrize("has_gateway", [False, True])
async def test_a_jvm_that_is_killed_while_it_starts_is_started_once_more(
    tmp_path: Path, class_archive: Path | None, has_gateway: bool
) -> None:
    """At once, and when it has begun to talk to the Spark host."""
    async with spark_task_manager(tmp_path, class_archive) as manager:
        while not (java := starting_jvms(manager, has_gateway=has_gateway)):
            await asyncio.sleep(0.01)
        os.kill(java[0], signal.SIGKILL)
        await manager.wait_slots(2)
        assert jvm_of(manager) != java[0]
        await manager.run_job(count, job=1)
        assert manager.job_master.reports[-1].value == b"1000"


async def test_a_killed_main_process_takes_the_jvm_along(tmp_path: Path, class_archive: Path | None) -> None:
    async with spark_task_manager(tmp_path, class_archive) as manager:
        await manager.wait_slots(2)
        await manager.run_job(count_for_ever, waits=False)
        await manager.job_master.wait(lambda: is_counting(manager), timeout=120)
        pids = manager.descendants()
        assert jvm_of(manager) in pids
        os.kill(manager.main_pid(), signal.SIGKILL)
        assert (await ended(manager))[0] == 128 + signal.SIGKILL
        assert not any(map(exists, pids))


async def test_a_killed_guard_takes_the_jvm_along(tmp_path: Path, class_archive: Path | None) -> None:
    async with spark_task_manager(tmp_path, class_archive) as manager:
        await manager.wait_slots(2)
        pids = manager.descendants()
        assert jvm_of(manager) in pids
        manager.process.kill()
        begun = time.monotonic()
        while any(map(is_alive, pids)):
            assert time.monotonic() - begun < 3, [psutil.Process(pid).cmdline() for pid in pids if exists(pid)]
            await asyncio.sleep(0.01)
        print(f"everything gone {time.monotonic() - begun:.2f} s after the guard's death")
