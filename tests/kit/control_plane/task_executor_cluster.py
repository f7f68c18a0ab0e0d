"""A TaskExecutor with a scripted leader and a scripted JobMaster process at the other ends of its streams."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from runtime.aio.clock import BootClock, LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.retry import RetryPolicy
from runtime.aio.watch import Watch
from runtime.common.errors import NotFoundError, UnavailableError
from runtime.common.ids import ClusterUuid, Incarnation
from runtime.gateways.delegation_tokens import DelegationToken
from runtime.gateways.job_master import Heartbeat, OfferSlots, TaskReports
from runtime.gateways.resource_manager import (
    RegisterTaskManager,
    RegistrationRefused,
    RequestSlot,
    SlotReport,
    TaskManagerRegistered,
)
from runtime.gateways.task import DEFAULT_PROFILE, TaskExecutionReport
from runtime.heartbeat.core.monitor import HeartbeatTiming
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.local import LocalNetwork, LocalRpcService
from runtime.rpc.service import MessageStream, StreamKind
from runtime.rpc.settings import RpcSettings
from runtime.taskexecutor.connections.resource_manager_connection import LeaderRetrieval, StaticLeader
from runtime.taskexecutor.directories.exchange_directory import ExchangeDirectory
from runtime.taskexecutor.endpoint import TaskExecutor
from runtime.taskexecutor.settings import ConnectionSettings, TaskExecutorSettings
from runtime.taskexecutor.slot_pool import SlotPool
from tests.kit.control_plane.task_messages import answer_offers, incarnation, register_job, request_slot
from tests.kit.control_plane.testing_slot_pool import TestingSlotPool

MessageT = TypeVar("MessageT")

CLUSTER = ClusterUuid("ab" * 16)
WAIT = 10.0


class ScriptedPeer:
    """One process that a TaskManager dials: keeps what arrives, sends what it is told."""

    def __init__(self, rpc: LocalRpcService | GrpcRpcService, name: Incarnation, kind: StreamKind) -> None:
        self.incarnation = name
        self.received: list[Any] = []
        self.batches: list[Sequence[Any]] = []
        self.streams: list[MessageStream] = []
        self.arrivals: Watch[int] = Watch(0)
        self.is_silent = False
        self.answer_registration: Callable[[RegisterTaskManager], Any] = lambda _: registered()
        self._kind = kind
        self.rpc = rpc

    @property
    def address(self) -> str:
        return self.rpc.server.address

    @property
    def stream(self) -> MessageStream:
        return self.streams[-1]

    async def start(self) -> None:
        self.rpc.server.add_stream_handler(self._kind, self._serve, check=lambda *_: None)
        await self.rpc.start()

    async def _serve(self, stream: MessageStream) -> None:
        self.streams.append(stream)
        self.arrivals.set(self.arrivals.value + 1)
        while True:
            try:
                messages = await stream.receive()
            except UnavailableError:
                return
            for message in messages:
                if isinstance(message, RegisterTaskManager):
                    stream.send(self.answer_registration(message))
            news = [message for message in messages if not isinstance(message, Heartbeat)]
            if len(news) < len(messages) and not self.is_silent:
                with suppress(UnavailableError):
                    stream.send(Heartbeat(0))
            if news:
                self.received += news
                self.batches.append(news)
            self.arrivals.set(self.arrivals.value + 1)

    def send(self, *messages: Any) -> None:
        for message in messages:
            self.stream.send(message)

    def of(self, kind: type[MessageT]) -> list[MessageT]:
        return [message for message in self.received if isinstance(message, kind)]

    @property
    def reports(self) -> list[TaskExecutionReport]:
        return [report for message in self.of(TaskReports) for report in message.reports]

    async def wait(self, predicate: Callable[[], bool], *, timeout: float = WAIT) -> None:
        async with asyncio.timeout(timeout):
            await self.arrivals.wait_until(lambda _: predicate())

    async def wait_for(self, kind: type[MessageT], count: int = 1, *, timeout: float = WAIT) -> MessageT:
        await self.wait(lambda: len(self.of(kind)) >= count, timeout=timeout)
        return self.of(kind)[count - 1]

    async def wait_reports(self, count: int, *, timeout: float = WAIT) -> list[TaskExecutionReport]:
        await self.wait(lambda: len(self.reports) >= count, timeout=timeout)
        return self.reports

    async def wait_streams(self, count: int) -> None:
        await self.wait(lambda: len(self.streams) >= count)


def registered(*, epoch: int = 1, cluster: ClusterUuid = CLUSTER) -> TaskManagerRegistered:
    return TaskManagerRegistered(cluster, epoch, "blob:1", 2.0, 10.0)


def refused(reason: str) -> RegistrationRefused:
    return RegistrationRefused(reason)


async def until_gone(path: Path, *, timeout: float = WAIT) -> None:
    """Wait until a file or directory is deleted."""
    async with asyncio.timeout(timeout):
        while os.path.lexists(path):  # noqa: ASYNC240 - there is no event for it
            await asyncio.sleep(0.001)


class NoBlobs:
    """A blob store that has nothing."""

    @asynccontextmanager
    async def file(self, key: str, /) -> AsyncIterator[Path]:
        if key:
            message = f"no blob {key}"
            raise NotFoundError(message)
        yield Path()


@dataclass
class TaskExecutorCluster:
    """All of it, started."""

    executor: TaskExecutor
    pool: TestingSlotPool
    leader: ScriptedPeer
    job_master: ScriptedPeer
    network: LocalNetwork
    rpc: LocalRpcService
    work: Path

    def request(self, allocation: int, *, slot: int = 0, job: int = 1, epoch: int = 1) -> RequestSlot:
        request = request_slot(allocation, slot=slot, job=job, epoch=epoch, owner=2, address=self.job_master.address)
        self.leader.send(request)
        return request

    async def activate(self, allocation: int = 1, *, slot: int = 0, job: int = 1) -> None:
        """A slot that the job has taken, with the job registered."""
        self.request(allocation, slot=slot, job=job)
        await self.job_master.wait(lambda: allocation in self.offered())
        self.job_master.send(answer_offers(allocation, job=job), register_job(job))

    def offered(self) -> list[int]:
        offers = [offer for message in self.job_master.of(OfferSlots) for offer in message.offers]
        return [int(offer.allocation_id[1:], 16) for offer in offers]


def registration(*, slots: int = 2, address: str = "") -> RegisterTaskManager:
    return RegisterTaskManager(
        incarnation=incarnation(3),
        task_manager_id="tm-test",
        address=address,
        guard_address="127.0.0.1:1",
        boot_id="boot",
        version="0",
        protocol_version=1,
        slots=slots,
        slot_profile=DEFAULT_PROFILE,
        has_spark=False,
        spark_conf=b"{}",
        cpu_cores=2,
        memory_bytes=0,
    )


def executor_settings(
    log_directory: Path, *, heartbeat: HeartbeatTiming | None = None, **overrides: Any
) -> TaskExecutorSettings:
    connections = ConnectionSettings(
        connect_timeout=5.0,
        heartbeat=heartbeat or HeartbeatTiming(interval=0.5, timeout=5.0),
        retry=RetryPolicy(delay_initial=0.01, delay_max=0.05),
    )
    return TaskExecutorSettings(log_directory=log_directory, connections=connections, **overrides)


@asynccontextmanager
async def task_executor_cluster(
    tmp_path: Path,
    *,
    pool: SlotPool | None = None,
    blobs: Any = None,
    retrieval: LeaderRetrieval | None = None,
    waits: bool = True,
    prepare: Callable[[ScriptedPeer, ScriptedPeer], None] = lambda *_: None,
    contact: Any = None,
    take_tokens: Callable[[Sequence[DelegationToken]], None] = lambda _: None,
    **overrides: Any,
) -> AsyncIterator[TaskExecutorCluster]:
    network = LocalNetwork()
    clock = LoopClock()
    leader_rpc, job_master_rpc, rpc = (
        LocalRpcService(network, RpcSettings(incarnation(number), None), clock) for number in (1, 2, 3)
    )
    leader = ScriptedPeer(leader_rpc, incarnation(1), StreamKind.TASK_MANAGER_TO_RESOURCE_MANAGER)
    job_master = ScriptedPeer(job_master_rpc, incarnation(2), StreamKind.TASK_MANAGER_TO_JOB_MASTER)
    prepare(leader, job_master)
    for service in (leader, job_master, rpc):
        await service.start()
    used = pool or TestingSlotPool()
    executor = TaskExecutor(
        executor_settings(tmp_path / "log", **overrides),
        registration(address=rpc.server.address),
        rpc,
        retrieval or StaticLeader(leader.address),
        used,
        blobs=blobs or NoBlobs(),
        exchange=ExchangeDirectory(str(tmp_path / "exchange"), incarnation(3)),
        job_root=tmp_path / "jobs",
        spark=None,
        clock=clock,
        boot_clock=BootClock(),
        entropy=SeededEntropy(1),
        contact=contact,
        take_tokens=take_tokens,
    )
    await executor.start()
    cluster = TaskExecutorCluster(executor, used, leader, job_master, network, rpc, tmp_path)  # type: ignore[arg-type]
    try:
        if waits:
            await leader.wait_for(SlotReport)
        yield cluster
    finally:
        if waits:
            await executor.stop()
        for stopping in (rpc, job_master_rpc, leader_rpc):
            await stopping.stop(grace=0.0)
