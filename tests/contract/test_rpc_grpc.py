"""What only the gRPC transport has: ports, frozen peers, reconnects, channels that come and go."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from runtime.aio.clock import LoopClock
from runtime.common.errors import OutcomeUnknownError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.gateways.dispatcher import (
    DispatcherGateway,
    Empty,
    JobDetailsResponse,
    JobRequest,
    SubmitJobRequest,
    SubmitJobResponse,
)
from runtime.gateways.resource_manager import JobsEnded
from runtime.rpc import codec, grpc_channels
from runtime.rpc.grpc_channels import HELLO_KEY, STREAM_PATH, Channels
from runtime.rpc.grpc_service import CannotListenError, GrpcRpcService
from runtime.rpc.service import MessageStream, NobodyListensError
from runtime.rpc.settings import RpcSettings
from tests.kit.control_plane.rpc_wire import DIALER, KIND, LIMITS, LISTENER, accept_all, drain, hello
from tests.kit.control_plane.virtual_time import ManualClock
from tests.kit.host.tcp_proxy import TcpProxy

JOB = JobId("a" * 32)
ROOT = str(Path(__file__).resolve().parents[2])
SETTINGS = RpcSettings(LISTENER, None, limits=LIMITS)


class EmptyDispatcher:
    async def submit_job(self, request: SubmitJobRequest, /) -> SubmitJobResponse:
        raise NotImplementedError

    async def cancel_job(self, request: JobRequest, /) -> Empty:
        if request.job_id == "hang":
            await asyncio.Event().wait()
        return Empty()

    async def request_job(self, request: JobRequest, /) -> JobDetailsResponse:
        raise NotImplementedError


@asynccontextmanager
async def running(settings: RpcSettings) -> AsyncIterator[GrpcRpcService]:
    service = GrpcRpcService(settings, LoopClock())
    await service.start()
    try:
        yield service
    finally:
        await service.stop(grace=0)


def gateway(client: GrpcRpcService, address: str, timeout: float = 5.0) -> DispatcherGateway:
    return client.connect(DispatcherGateway, address, target=None, sender=None, timeout=timeout)


@pytest.mark.asyncio
async def test_a_taken_port_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(CannotListenError, match=f"cannot listen on 127.0.0.1:{port}: the port is in use"):
            await GrpcRpcService(replace(SETTINGS, port=port), LoopClock()).start()


@pytest.mark.asyncio
async def test_a_second_server_never_binds_beside_the_first() -> None:
    async with running(SETTINGS) as first:
        port = int(first.server.address.rpartition(":")[2])
        with pytest.raises(CannotListenError):
            await GrpcRpcService(replace(SETTINGS, port=port), LoopClock()).start()


@pytest.mark.asyncio
async def test_calls_go_on_within_seconds_after_the_peer_is_back() -> None:
    async with running(replace(SETTINGS, incarnation=DIALER)) as client:
        async with running(SETTINGS) as server:
            address = server.server.address
            server.server.add_gateway(DispatcherGateway, EmptyDispatcher(), check=accept_all)
            await gateway(client, address).cancel_job(JobRequest(JOB))
        with pytest.raises(UnavailableError):
            await gateway(client, address).cancel_job(JobRequest(JOB))
        async with running(replace(SETTINGS, port=int(address.rpartition(":")[2]))) as server:
            server.server.add_gateway(DispatcherGateway, EmptyDispatcher(), check=accept_all)
            async with asyncio.timeout(100):
                while not await answers(gateway(client, address)):
                    await asyncio.sleep(0.05)


async def answers(dispatcher: DispatcherGateway) -> bool:
    try:
        await dispatcher.cancel_job(JobRequest(JOB))
    except UnavailableError:
        return False
    return True


@pytest.mark.asyncio
async def test_frozen_peer_is_noticed_by_the_transport_itself() -> None:
    quick = replace(SETTINGS, keepalive_interval=0.3, keepalive_timeout=0.5)
    async with running(quick) as server, running(replace(quick, incarnation=DIALER)) as client:
        server.server.add_stream_handler(KIND, drain, check=accept_all)
        proxy = TcpProxy(int(server.server.address.rpartition(":")[2]))
        stream = await client.open_stream(await proxy.start(), hello(), timeout=5)
        proxy.freeze()
        try:
            with pytest.raises(UnavailableError):
                async with asyncio.timeout(100):
                    await stream.receive()
        finally:
            await proxy.kill()


@pytest.mark.asyncio
async def test_abort_and_stop_do_not_wait_for_a_frozen_peer() -> None:
    accepted: asyncio.Future[MessageStream] = asyncio.get_running_loop().create_future()

    async def flood(stream: MessageStream) -> None:
        for _ in range(200):
            stream.send(JobsEnded((JobId("x" * 100_000),)))
        accepted.set_result(stream)
        await stream.receive()

    async with running(SETTINGS) as server, running(replace(SETTINGS, incarnation=DIALER)) as client:
        server.server.add_stream_handler(KIND, flood, check=accept_all)
        proxy = TcpProxy(int(server.server.address.rpartition(":")[2]))
        stream = await client.open_stream(await proxy.start(), hello(), timeout=5)
        proxy.freeze()
        other = await accepted
        other.abort("no sign of life")
        with pytest.raises(UnavailableError, match="no sign of life"):
            await other.receive()
        async with asyncio.timeout(100):
            await server.stop(grace=0)
        async with asyncio.timeout(100):
            await stream.close()
        await proxy.kill()


@pytest.mark.asyncio
async def test_a_call_that_outlives_the_grace_is_ended() -> None:
    async with running(SETTINGS) as server, running(replace(SETTINGS, incarnation=DIALER)) as client:
        server.server.add_gateway(DispatcherGateway, EmptyDispatcher(), check=accept_all)
        dispatcher = gateway(client, server.server.address)
        await dispatcher.cancel_job(JobRequest(JOB))
        async with asyncio.TaskGroup() as group:
            call = group.create_task(outcome(dispatcher, JobRequest(JobId("hang"))))
            await asyncio.sleep(0.05)
            async with asyncio.timeout(100):
                await server.stop(grace=0)
        assert isinstance(call.result(), OutcomeUnknownError)


async def outcome(dispatcher: DispatcherGateway, request: JobRequest) -> Exception | None:
    try:
        await dispatcher.cancel_job(request)
    except (UnavailableError, OutcomeUnknownError) as error:
        return error
    return None


@pytest.mark.asyncio
async def test_unused_channels_are_closed_once_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_channels, "IDLE_CHANNELS_MAX", 2)
    channels = Channels([], LoopClock(), idle_timeout=0)
    with channels.use("127.0.0.1:1"):
        for port in (2, 3, 4):
            with channels.use(f"127.0.0.1:{port}"):
                pass
        await asyncio.sleep(0.001)
        await channels.close_idle()
        assert len(channels) == 1
    await channels.close()


@pytest.mark.asyncio
async def test_calls_close_the_channels_of_peers_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_channels, "IDLE_CHANNELS_MAX", 2)
    clock = ManualClock()
    service = GrpcRpcService(SETTINGS, clock)
    await service.start()
    for port in (1, 2, 3):
        with pytest.raises(UnavailableError):
            await gateway(service, f"127.0.0.1:{port}").cancel_job(JobRequest(JOB))
    assert len(service._channels) == 3
    clock.advance(100)
    with pytest.raises(UnavailableError):
        await gateway(service, "127.0.0.1:4").cancel_job(JobRequest(JOB))
    assert len(service._channels) == 1
    await service.stop(grace=0)


CHILD = """
import asyncio, sys
sys.path.insert(0, {root!r})
from runtime.aio.clock import LoopClock
from runtime.rpc.grpc_service import GrpcRpcService
from tests.kit.control_plane.rpc_wire import KIND, accept_all, drain
from tests.contract.test_rpc_grpc import SETTINGS
async def main():
    service = GrpcRpcService(SETTINGS, LoopClock())
    await service.start()
    service.server.add_stream_handler(KIND, drain, check=accept_all)
    print(service.server.address, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.asyncio
@pytest.mark.process
async def test_a_killed_process_ends_its_streams_at_once() -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD.format(root=ROOT), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    try:
        address = (await child.stdout.readline()).decode().strip()
        async with running(replace(SETTINGS, incarnation=Incarnation("5" * 32))) as client:
            stream = await client.open_stream(address, hello(), timeout=5)
            os.kill(child.pid, signal.SIGKILL)
            with pytest.raises(UnavailableError):
                async with asyncio.timeout(1):
                    await stream.receive()
            with pytest.raises(UnavailableError):
                await client.open_stream(address, hello(2), timeout=5)
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


# --- one stream's failure is no other one's -----------------------------------------------------------------------


async def raw_stream(channel: Any, number: int) -> Any:
    """A stream opened below GrpcRpcService, for frames that it would not write."""
    call = channel.stream_stream(STREAM_PATH)(metadata=((HELLO_KEY, codec.encode(hello(number))),))
    await call.initial_metadata()
    return call


@pytest.mark.asyncio
async def test_a_frame_of_uneven_halves_ends_its_stream_and_no_other() -> None:
    async with running(SETTINGS) as server, running(replace(SETTINGS, incarnation=DIALER)) as client:
        server.server.add_stream_handler(KIND, drain, check=accept_all)
        address = server.server.address
        async with grpc.aio.insecure_channel(address) as channel:
            call = await raw_stream(channel, 1)
            await call.write(codec.proto_class("Frame")(types=[1, 2], bodies=[b""]).SerializeToString())
            async with asyncio.timeout(100):
                assert await call.code() is grpc.StatusCode.ABORTED
        stream = await client.open_stream(address, hello(2), timeout=5)
        stream.send(JobsEnded((JOB,)))
        await stream.close()


@pytest.mark.asyncio
async def test_an_error_nobody_expected_ends_one_stream_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def greet(stream: MessageStream) -> None:
        stream.send(JobsEnded((JOB,)))
        await stream.receive()

    def fail(_frame: bytes) -> Any:
        raise KeyError

    async with running(SETTINGS) as server, running(replace(SETTINGS, incarnation=DIALER)) as client:
        server.server.add_stream_handler(KIND, greet, check=accept_all)
        with monkeypatch.context() as broken:
            broken.setattr("runtime.rpc.stream.decode_frame", fail)
            stream = await client.open_stream(server.server.address, hello(1), timeout=5)
            with pytest.raises(UnavailableError, match="KeyError"):
                await stream.receive()
        stream = await client.open_stream(server.server.address, hello(2), timeout=5)
        assert await stream.receive() == [JobsEnded((JOB,))]


@pytest.mark.asyncio
@pytest.mark.parametrize("address", ["127.0.0.1:none", "", "no-such-host.invalid:1"])
async def test_nobody_is_found_at_an_address_that_is_none(address: str) -> None:
    async with running(SETTINGS) as service:
        with pytest.raises(UnavailableError) as caught:
            await service.identify(address, timeout=5.0)
        assert not isinstance(caught.value, NobodyListensError), "that would be a proof"


@pytest.mark.asyncio
async def test_a_frozen_process_neither_answers_nor_refuses() -> None:
    async with running(SETTINGS) as service:
        with socket.create_server(("127.0.0.1", 0)) as frozen, pytest.raises(UnavailableError) as caught:
            await service.identify(f"127.0.0.1:{frozen.getsockname()[1]}", timeout=0.2)
        assert not isinstance(caught.value, NobodyListensError)
