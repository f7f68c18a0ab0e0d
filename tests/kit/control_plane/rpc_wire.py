"""Processes on a wire, for the suites that run against every transport: the local one, and gRPC behind a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Protocol

from runtime.aio.clock import LoopClock
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.local import LocalNetwork, LocalRpcService
from runtime.rpc.service import MessageStream, RpcService, StreamHello, StreamKind
from runtime.rpc.settings import RpcLimits, RpcSettings
from runtime.security.tokens import ClusterToken
from tests.kit.host.tcp_proxy import TcpProxy

LISTENER, DIALER = Incarnation("1" * 32), Incarnation("2" * 32)
LIMITS = RpcLimits(message_size_max=256 * 1024, frame_size_max=64 * 1024, outbox_messages_max=5000)


class Wire(Protocol):
    """How a test makes processes and kills them."""

    async def service(
        self, incarnation: Incarnation, *, token: ClusterToken | None = None, limits: RpcLimits = LIMITS
    ) -> RpcService:
        """A started service."""

    def address(self, service: RpcService) -> str:
        """Where to dial it."""

    async def kill(self, service: RpcService) -> None:
        """End its connections without a word, and refuse new ones."""

    async def close(self) -> None:
        """Stop everything."""


class LocalWire:
    def __init__(self) -> None:
        self.network = LocalNetwork()
        self.services: list[LocalRpcService] = []

    async def service(
        self, incarnation: Incarnation, *, token: ClusterToken | None = None, limits: RpcLimits = LIMITS
    ) -> RpcService:
        service = LocalRpcService(self.network, RpcSettings(incarnation, token, limits=limits), LoopClock())
        await service.start()
        self.services.append(service)
        return service

    def address(self, service: RpcService) -> str:
        return service.server.address

    async def kill(self, service: RpcService) -> None:
        await self.network.kill(service.server.address)

    async def close(self) -> None:
        for service in self.services:
            await service.stop(grace=0)


class GrpcWire:
    def __init__(self) -> None:
        self.services: dict[int, tuple[GrpcRpcService, TcpProxy, str]] = {}

    async def service(
        self, incarnation: Incarnation, *, token: ClusterToken | None = None, limits: RpcLimits = LIMITS
    ) -> RpcService:
        service = GrpcRpcService(RpcSettings(incarnation, token, limits=limits), LoopClock())
        await service.start()
        proxy = TcpProxy(int(service.server.address.rpartition(":")[2]))
        self.services[id(service)] = (service, proxy, await proxy.start())
        return service

    def address(self, service: RpcService) -> str:
        return self.services[id(service)][2]

    async def kill(self, service: RpcService) -> None:
        await self.services[id(service)][1].kill()

    async def close(self) -> None:
        for service, proxy, _ in self.services.values():
            await service.stop(grace=0)
            await proxy.kill()


WIRES: dict[str, type[LocalWire | GrpcWire]] = {"local": LocalWire, "grpc": GrpcWire}


def accept_all(_target: FencingToken | None, _sender: FencingToken | None) -> None:
    """A TokenCheck that lets everything pass."""


KIND = StreamKind.TASK_MANAGER_TO_JOB_MASTER


def hello(number: int = 1, **changes: Any) -> StreamHello:
    """An introduction, with what the test wants different."""
    return replace(StreamHello(KIND, DIALER, "127.0.0.1:1", number, None, ""), **changes)


async def drain(stream: MessageStream) -> None:
    """A handler that takes everything."""
    while True:
        await stream.receive()


async def no_chunks(_key: str) -> AsyncIterator[bytes]:
    """A chunk source of empty objects."""
    nothing: tuple[bytes, ...] = ()
    for chunk in nothing:
        yield chunk
