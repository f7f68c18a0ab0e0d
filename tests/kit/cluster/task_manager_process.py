"""A real TaskManager process (guard, main, slots) between a scripted leader and JobMaster process over gRPC."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtime.aio.clock import LoopClock
from runtime.gateways.job_master import OfferSlots, RegisterJob
from runtime.gateways.resource_manager import RegisterTaskManager, SlotReport, SlotsFreed
from runtime.jobgraph.graph import dump_operators
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.service import StreamKind
from runtime.rpc.settings import RpcSettings
from runtime.system.linux import children_of
from tests.kit.control_plane.task_executor_cluster import ScriptedPeer
from tests.kit.control_plane.task_messages import (
    acknowledge,
    answer_offers,
    deploy,
    end_job,
    free_slots,
    incarnation,
    register_job,
    request_slot,
)
from tests.kit.spark.slot_work import operator

ROOT = Path(__file__).resolve().parents[3]
START_TIMEOUT = 150.0
"""Spark on two cores that others use too."""


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

    async def wait_slots(self, count: int, *, after: int = 0) -> SlotReport:
        """The first slot report of `count` slots, of those behind the first `after` ones."""

        def found() -> list[SlotReport]:
            return [report for report in self.leader.of(SlotReport)[after:] if len(report.slots) == count]

        await self.leader.wait(lambda: bool(found()), timeout=START_TIMEOUT)
        return found()[0]

    async def wait_ready(self) -> None:
        await self.wait_slots(2)

    async def run_job(
        self, function: Callable[..., Any], *, job: int = 1, waits: bool = True, secrets: tuple[str, ...] = ()
    ) -> float:
        """Seconds from the slot request to the terminal report, for everything that can be in one write."""
        operators = dump_operators((operator(function),))
        offers, reports = len(self.job_master.of(OfferSlots)), len(self.job_master.reports)
        begun = time.perf_counter()
        self.leader.send(request_slot(job, job=job, owner=2, address=self.job_master.address))
        await self.job_master.wait_for(OfferSlots, offers + 1, timeout=START_TIMEOUT)
        register = RegisterJob(replace(register_job(job).job, secrets=secrets))
        self.job_master.send(answer_offers(job, job=job), register, deploy(job, 0, job=job, operators=operators))
        await self.job_master.wait_reports(reports + (2 if waits else 1), timeout=START_TIMEOUT)
        return time.perf_counter() - begun

    async def end_job(self, job: int) -> None:
        freed = len(self.leader.of(SlotsFreed))
        self.job_master.send(acknowledge(0, job=job), free_slots(job, job=job), end_job(job))
        await self.leader.wait_for(SlotsFreed, freed + 1, timeout=START_TIMEOUT)

    def descendants(self) -> list[int]:
        found = [self.process.pid]
        for pid in found:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    found += map(int, children.read_text().split())
                except OSError:
                    continue
        return found[1:]

    def guard_pid(self) -> int:
        """The watcher's child."""
        (guard,) = children_of(self.process.pid)
        return guard

    def main_pid(self) -> int:
        (main,) = children_of(self.guard_pid())
        return main

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
        **dict(option.split("=", 1) for option in options),
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


def is_alive(pid: int) -> bool:
    """False for a zombie too: it runs nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def ended(manager: TaskManager, *, timeout: float = 100.0) -> tuple[int | None, str]:
    async with asyncio.timeout(timeout):
        _, errors = await manager.process.communicate()
    return manager.process.returncode, errors.decode()
