"""A real TaskManager (guard, main process, template, slots) between a scripted leader and JobMaster over gRPC."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime.common.fencing import FencingToken
from runtime.gateways.job_master import SlotsDraining
from runtime.gateways.resource_manager import SlotReport
from runtime.gateways.task_executor import AttemptLogRequest, LogStream, TaskExecutorGateway
from tests.kit.cluster.task_manager_process import START_TIMEOUT, ended, exists, task_manager
from tests.kit.control_plane.task_executor_cluster import CLUSTER, refused, until_gone
from tests.kit.control_plane.task_messages import acknowledge, attempt_id, job_id

pytestmark = [pytest.mark.process, pytest.mark.asyncio]


def nothing(_ctx: Any) -> None:
    print("done nothing")


def sleep_for_ever(_ctx: Any) -> None:
    import subprocess

    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print("sleeping")
    time.sleep(1000)


def until_exists(path: str) -> Callable[[Any], None]:
    def wait(_ctx: Any) -> None:
        while not Path(path).exists():
            time.sleep(0.02)

    return wait


async def test_it_registers_runs_jobs_and_stops_in_order(tmp_path: Path) -> None:
    (tmp_path / "KEY").write_text("hush\n")
    async with task_manager(tmp_path, f"taskmanager.secrets.directory={tmp_path}") as manager:
        begun = time.monotonic()
        await manager.wait_ready()
        print(f"ready after {time.monotonic() - begun:.2f} s")
        registration = manager.registration
        assert (registration.task_manager_id, registration.slots, registration.has_spark) == ("tm-of-test", 2, False)
        assert manager.dial_guard() == f"{registration.incarnation} {registration.boot_id}\n"

        times = []
        for job in range(1, 21):
            times.append(await manager.run_job(nothing, job=job))
            await manager.end_job(job)
        print(f"no-op job in the TaskManager: median {sorted(times)[len(times) // 2] * 1000:.1f} ms")
        finished = [report for report in manager.job_master.reports if report.state.name == "FINISHED"]
        assert len(finished) == 20, [report.failure for report in manager.job_master.reports]

        gateway = manager.leader.rpc.connect(
            TaskExecutorGateway, registration.address, target=None, sender=FencingToken(CLUSTER, 1), timeout=5
        )
        log = await gateway.request_attempt_log(AttemptLogRequest(attempt_id(1, 0), LogStream.STDOUT, 0, 100))
        assert log.data == b"done nothing\n"

        await manager.run_job(lambda ctx: len(ctx.secrets["KEY"]), job=30, secrets=("KEY",))
        await manager.end_job(30)
        assert manager.job_master.reports[-1].value == b"4"

        facts = json.loads(manager.ready_file.read_text())
        assert facts["address"] == registration.address
        work = manager.run / "work" / f"tm-{registration.incarnation}"
        assert work.is_dir()
        assert not list((work / "jobs").iterdir())
        pids = manager.descendants()
        assert len(pids) >= 4
        begun = time.monotonic()
        manager.process.send_signal(signal.SIGTERM)
        code, _ = await ended(manager)
        print(f"stopped after {time.monotonic() - begun:.2f} s")
        assert code == 0
        assert not any(map(exists, pids))
        assert not work.exists()


async def test_a_killed_main_process_takes_everything_along(tmp_path: Path) -> None:
    async with task_manager(tmp_path) as manager:
        await manager.wait_ready()
        await manager.run_job(sleep_for_ever, waits=False)
        pids = manager.descendants()
        os.kill(manager.main_pid(), signal.SIGKILL)
        code, _ = await ended(manager)
        assert code == 128 + signal.SIGKILL
        assert not any(map(exists, pids))
        assert manager.dial_guard().endswith(" reaped\n")


async def test_a_drain_lets_tasks_finish_and_its_owner_take_the_report(tmp_path: Path) -> None:
    go = tmp_path / "go"
    async with task_manager(tmp_path) as manager:
        await manager.wait_ready()
        await manager.run_job(until_exists(str(go)), waits=False)
        pids = manager.descendants()
        manager.process.send_signal(signal.SIGTERM)
        drained = await manager.job_master.wait_for(SlotsDraining)
        assert len(drained.allocations) == 1
        await manager.leader.wait(lambda: manager.leader.of(SlotReport)[-1].is_draining)
        go.touch()
        [_, report] = await manager.job_master.wait_reports(2)
        assert report.state.name == "FINISHED"
        manager.job_master.send(acknowledge(0))
        assert (await ended(manager))[0] == 0
        assert not any(map(exists, pids))


async def test_a_drain_releases_what_does_not_end_in_time(tmp_path: Path) -> None:
    async with task_manager(tmp_path, "taskmanager.drain-timeout=200 ms") as manager:
        await manager.wait_ready()
        await manager.run_job(sleep_for_ever, waits=False)
        pids = manager.descendants()
        manager.process.send_signal(signal.SIGTERM)
        [_, report] = await manager.job_master.wait_reports(2)
        assert report.state.name == "FAILED"
        assert report.failure is not None
        assert report.failure.is_isolation
        assert "taskmanager.drain-timeout" in report.failure.message
        manager.job_master.send(acknowledge(0))
        assert (await ended(manager))[0] == 0
        assert not any(map(exists, pids))


@pytest.mark.parametrize("signals", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGINT,)])
async def test_who_insists_does_not_wait_for_tasks(tmp_path: Path, signals: tuple[signal.Signals, ...]) -> None:
    async with task_manager(tmp_path, "taskmanager.drain-timeout=10 min") as manager:
        await manager.wait_ready()
        await manager.run_job(sleep_for_ever, waits=False)
        pids = manager.descendants()
        for number in signals:
            manager.process.send_signal(number)
            await manager.job_master.wait_for(SlotsDraining)
        [_, report] = await manager.job_master.wait_reports(2)
        assert report.failure is not None
        assert report.failure.is_isolation
        assert (await ended(manager))[0] == 128 + signals[0]
        assert not any(map(exists, pids))


async def test_a_refusal_is_one_sentence_and_code_1(tmp_path: Path) -> None:
    async with task_manager(tmp_path, answer=refused("this leader takes no TaskManager of version 0")) as manager:
        code, errors = await ended(manager, timeout=START_TIMEOUT)
        assert code == 1
        assert errors.splitlines()[-1] == "this leader takes no TaskManager of version 0"
        assert not manager.ready_file.exists()


async def test_without_a_leader_it_ends_with_one_sentence_and_code_1(tmp_path: Path) -> None:
    options = ("jobmanager.rpc.port=1", "taskmanager.registration.timeout=500 ms")
    async with task_manager(tmp_path, *options) as manager:
        code, errors = await ended(manager, timeout=START_TIMEOUT)
        assert code == 1
        assert "no JobManager accepted this TaskManager within 0.5 s" in errors.splitlines()[-1]


async def test_a_wrong_option_is_one_sentence_and_code_1(tmp_path: Path) -> None:
    async with task_manager(tmp_path, "taskmanager.numberOfTaskSlots=none") as manager:
        code, errors = await ended(manager, timeout=START_TIMEOUT)
        assert code == 1
        assert "taskmanager.numberOfTaskSlots" in errors


async def test_leftovers_of_a_killed_one_are_deleted_by_the_next(tmp_path: Path) -> None:
    old = tmp_path / f"run/work/tm-{'d' * 32}"
    (old / "jobs" / job_id(1)).mkdir(parents=True)
    (old / "lock").touch()
    partitions = tmp_path / f"run/exchange/{'d' * 32}/{job_id(1)}/p"
    partitions.mkdir(parents=True)
    async with task_manager(tmp_path) as manager:
        await manager.wait_ready()
        await until_gone(old)
        await until_gone(partitions.parent.parent)
