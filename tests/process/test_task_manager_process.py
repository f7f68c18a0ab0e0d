"""A real TaskManager (guard, main process, template, slots) between a scripted leader and JobMaster over gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runtime.aio.clock import LoopClock
from runtime.gateways.job_master import OfferSlots
from runtime.gateways.resource_manager import RegisterTaskManager, SlotReport, SlotsFreed
from runtime.gateways.task_executor import AttemptLogRequest, LogStream, TaskExecutorGateway
from runtime.jobgraph.graph import dump_operators
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.service import StreamKind
from runtime.rpc.settings import RpcSettings
from tests.kit.slot_work import operator
from tests.kit.task_executor_cluster import ScriptedPeer, refused
from tests.kit.task_messages import (
    acknowledge,
    answer_offers,
    attempt_id,
    deploy,
    end_job,
    free_slots,
    incarnation,
    job_id,
    register_job,
    request_slot,
)

pytestmark = [pytest.mark.process, pytest.mark.asyncio]

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT = 30.0


def nothing(_ctx: Any) -> None:
    print("done nothing")


def sleep_for_ever(_ctx: Any) -> None:
    import subprocess

    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    print("sleeping")
    time.sleep(1000)


@dataclass
class TaskManager:
    process: asyncio.subprocess.Process
    ready_file: Path
    run: Path
    leader: ScriptedPeer
    job_master: ScriptedPeer

    @property
    def registration(self) -> RegisterTaskManager:
        return self.leader.of(RegisterTaskManager)[0]

    async def wait_ready(self) -> None:
        async with asyncio.timeout(START_TIMEOUT):
            await self.leader.wait(lambda: any(len(report.slots) == 2 for report in self.leader.of(SlotReport)))

    async def run_job(self, function: Any, *, job: int = 1, waits: bool = True) -> float:
        """Seconds from the slot request to the terminal report, for everything that can be in one write."""
        operators = dump_operators((operator(function),))
        offers, reports = len(self.job_master.of(OfferSlots)), len(self.job_master.reports)
        begun = time.perf_counter()
        self.leader.send(request_slot(job, job=job, owner=2, address=self.job_master.address))
        await self.job_master.wait_for(OfferSlots, offers + 1)
        self.job_master.send(
            answer_offers(job, job=job), register_job(job), deploy(job, 0, job=job, operators=operators)
        )
        await self.job_master.wait_reports(reports + (2 if waits else 1))
        return time.perf_counter() - begun

    async def end_job(self, job: int) -> None:
        freed = len(self.leader.of(SlotsFreed))
        self.job_master.send(acknowledge(0, job=job), free_slots(job, job=job), end_job(job))
        await self.leader.wait_for(SlotsFreed, freed + 1)

    def descendants(self) -> list[int]:
        found = [self.process.pid]
        for pid in found:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    found += map(int, children.read_text().split())
                except OSError:
                    continue
        return found[1:]

    def main_pid(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def dial_guard(self) -> str:
        host, _, port = self.registration.guard_address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            return connection.makefile().read()


async def peer(number: int, kind: StreamKind) -> ScriptedPeer:
    name = incarnation(number)
    made = ScriptedPeer(GrpcRpcService(RpcSettings(name, None), LoopClock()), name, kind)
    await made.start()
    return made


@asynccontextmanager
async def task_manager(tmp_path: Path, *options: str, **answers: Any) -> AsyncIterator[TaskManager]:
    leader = await peer(1, StreamKind.TASK_MANAGER_TO_RESOURCE_MANAGER)
    job_master = await peer(2, StreamKind.TASK_MANAGER_TO_JOB_MASTER)
    if "answer" in answers:
        leader.answer_registration = lambda _: answers["answer"]
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "config.yaml").touch()
    dynamic = {
        "jobmanager.rpc.port": leader.address.rpartition(":")[2],
        "security.authentication": "none",
        "taskmanager.spark.enabled": "false",
        "taskmanager.numberOfTaskSlots": "2",
        "taskmanager.resource-id": "tm-of-test",
        **dict(option.split("=") for option in options),
    }
    arguments = [text for key, value in dynamic.items() for text in ("-D", f"{key}={value}")]
    environment = {
        **os.environ,
        "FLINKLIKE_CONF_DIR": str(conf),
        "FLINKLIKE_RUN_DIR": str(tmp_path / "run"),
        "FLINKLIKE_READY_FILE": str(tmp_path / "ready"),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "runtime.entrypoint.task_manager", *arguments),
        env=environment,
        cwd=ROOT,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield TaskManager(process, tmp_path / "ready", tmp_path / "run", leader, job_master)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        await leader.rpc.stop(grace=0.0)
        await job_master.rpc.stop(grace=0.0)


def exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def ended(manager: TaskManager, *, timeout: float = 10.0) -> tuple[int | None, str]:
    async with asyncio.timeout(timeout):
        _, errors = await manager.process.communicate()
    return manager.process.returncode, errors.decode()


async def test_it_registers_runs_jobs_and_stops_in_order(tmp_path: Path) -> None:
    async with task_manager(tmp_path) as manager:
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
            TaskExecutorGateway, registration.address, target=None, sender=None, timeout=5
        )
        log = await gateway.request_attempt_log(AttemptLogRequest(attempt_id(1, 0), LogStream.STDOUT, 0, 100))
        assert log.data == b"done nothing\n"

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
        assert code == 143
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
        with pytest.raises(ConnectionRefusedError):
            manager.dial_guard()


async def test_a_stop_ends_running_attempts_with_a_report(tmp_path: Path) -> None:
    async with task_manager(tmp_path) as manager:
        await manager.wait_ready()
        await manager.run_job(sleep_for_ever, waits=False)
        pids = manager.descendants()
        manager.process.send_signal(signal.SIGTERM)
        [_, report] = await manager.job_master.wait_reports(2)
        assert report.state.name == "FAILED"
        assert report.failure is not None
        assert "the TaskManager stops" in report.failure.message
        assert (await ended(manager))[0] == 143
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
        async with asyncio.timeout(5):
            while old.exists() or partitions.parent.parent.exists():
                await asyncio.sleep(0.01)
