"""R39 on real sockets: strangers are cut off, and nobody who has the token notices."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest

from runtime.aio.clock import LoopClock
from runtime.common.errors import UnauthenticatedError, UnavailableError
from runtime.common.ids import Incarnation
from runtime.gateways.dispatcher import DispatcherGateway, JobRequest
from runtime.rpc.core.strangers import StrangerLimits
from runtime.rpc.grpc_channels import IDENTITY_PATH
from runtime.rpc.grpc_server import _AcceptingServer
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.settings import RpcSettings
from runtime.security.tokens import ClusterToken
from tests.kit.control_plane.rpc_wire import DIALER, KIND, LISTENER, accept_all, drain, hello
from tests.kit.strangers.h2_floods import (
    END_HEADERS,
    PREFACE,
    SETTINGS,
    UNKNOWN,
    frame,
    request_headers,
)
from tests.kit.strangers.h2_floods import HEADERS as HEADERS_FRAME

pytestmark = pytest.mark.asyncio

TOKEN = ClusterToken("the-token-of-this-cluster")
PATIENT = StrangerLimits(seconds_max=60.0)
HASTY = StrangerLimits(seconds_max=0.3)
LIMITS = RpcSettings(LISTENER, TOKEN, strangers=PATIENT)


@asynccontextmanager
async def running(settings: RpcSettings) -> AsyncIterator[GrpcRpcService]:
    service = GrpcRpcService(settings, LoopClock())
    await service.start()
    try:
        yield service
    finally:
        await service.stop(grace=0)


async def hurry(server: GrpcRpcService, limits: StrangerLimits) -> None:
    """Be hasty as soon as all who are there have shown the token: how long that takes them is the machine's affair."""
    strangers = server._strangers._strangers
    async with asyncio.timeout(60):
        while strangers._since or not strangers._known:
            await asyncio.sleep(0.05)
    strangers.limits = limits


@asynccontextmanager
async def two(limits: StrangerLimits) -> AsyncIterator[tuple[GrpcRpcService, GrpcRpcService]]:
    """A server with those limits, and somebody who has the token."""
    settings = replace(LIMITS, strangers=limits)
    async with running(settings) as server, running(replace(settings, incarnation=DIALER)) as friend:
        yield server, friend


def connect(server: GrpcRpcService, first: bytes = b"") -> socket.socket:
    host, _, port = server.server.address.rpartition(":")
    made = socket.create_connection((host.strip("[]"), int(port)), timeout=20)
    made.sendall(first)
    return made


def ends(stranger: socket.socket, block: bytes = b"") -> bool:
    """Say `block` over and over until the other end has closed; False if it never does."""
    try:
        while True:
            if block:
                stranger.sendall(block)
                stranger.setblocking(False)
                try:
                    if not stranger.recv(1 << 16):
                        return True
                except BlockingIOError:
                    continue
                finally:
                    stranger.settimeout(20)
            elif not stranger.recv(1 << 16):
                return True
    except TimeoutError:
        return False
    except OSError:
        return True


async def is_cut_off(stranger: socket.socket, block: bytes = b"") -> bool:
    with stranger:
        return await asyncio.to_thread(ends, stranger, block)


BEGIN = PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0)


@pytest.mark.parametrize("first", [b"", BEGIN, PREFACE[:5]], ids=["silent", "idle", "half a preface"])
async def test_who_does_not_show_the_token_in_time(first: bytes) -> None:
    async with two(PATIENT) as (server, friend):
        address = server.server.address
        server.server.add_stream_handler(KIND, drain, check=accept_all)
        stream = await friend.open_stream(address, hello(), timeout=20)
        assert await friend.identify(address, timeout=20) == LISTENER
        await hurry(server, HASTY)
        assert await is_cut_off(connect(server, first))
        # Somebody who has shown it once stays as long as it likes.
        async with asyncio.timeout(20):
            while server._strangers._strangers._since:
                await asyncio.sleep(0.05)
            await asyncio.sleep(1.5)
        assert not stream.is_ended
        server._strangers._strangers.limits = PATIENT  # where this one needs a connection of its own
        assert await friend.identify(address, timeout=20) == LISTENER


@pytest.mark.parametrize(
    ("bind_host", "address"), [("0.0.0.0", "127.0.0.1"), ("[::]", "127.0.0.1"), ("[::]", "[::1]"), ("[::1]", "[::1]")]
)
async def test_who_has_shown_the_token_is_known_by_every_kind_of_address(bind_host: str, address: str) -> None:
    """gRPC names a peer in another way than its socket does."""
    if "::" in bind_host + address and not _has_v6():
        pytest.skip("this machine has no IPv6")
    settings = replace(LIMITS, bind_host=bind_host, address=address)
    async with running(settings) as server, running(replace(LIMITS, incarnation=DIALER)) as friend:
        server.server.add_stream_handler(KIND, drain, check=accept_all)
        stream = await friend.open_stream(server.server.address, hello(), timeout=20)
        await hurry(server, HASTY)
        assert await is_cut_off(connect(server))
        assert not stream.is_ended


def _has_v6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def test_who_says_too_much_without_the_token() -> None:
    async with two(PATIENT) as (server, friend):
        skipped = frame(UNKNOWN, 0, 0, b"x" * 16_384)
        flood = asyncio.create_task(is_cut_off(connect(server, BEGIN), skipped))
        while not flood.done():
            assert await friend.identify(server.server.address, timeout=20) == LISTENER
        assert await flood


async def test_who_calls_without_the_token_again_and_again() -> None:
    async with two(PATIENT) as (server, friend):
        calls = b"".join(
            frame(HEADERS_FRAME, END_HEADERS, 2 * number + 1, request_headers(IDENTITY_PATH.encode()))
            for number in range(PATIENT.refusals_max + 1)
        )
        assert await is_cut_off(connect(server, BEGIN + calls))
        assert await friend.identify(server.server.address, timeout=20) == LISTENER


async def test_the_oldest_of_too_many_strangers() -> None:
    few = replace(PATIENT, connections_per_address_max=3)
    async with two(few) as (server, friend):
        first = connect(server, BEGIN)
        async with asyncio.timeout(20):
            while not server._strangers._strangers.count:
                await asyncio.sleep(0.01)
        later = [connect(server, BEGIN) for _ in range(3)]
        assert await is_cut_off(first)
        assert await friend.identify(server.server.address, timeout=20) == LISTENER
        for one in later:
            one.setblocking(False)
            assert one.recv(1 << 16), "the settings of the server"
            with pytest.raises(BlockingIOError):
                one.recv(1)
            one.close()


async def test_more_connections_than_there_are_descriptors_for() -> None:
    """They are closed as they come, and those that are there go on."""
    async with (
        running(replace(LIMITS, connections_max=20)) as server,
        running(replace(LIMITS, incarnation=DIALER)) as friend,
    ):
        server.server.add_stream_handler(KIND, drain, check=accept_all)
        stream = await friend.open_stream(server.server.address, hello(), timeout=20)
        strangers = [connect(server) for _ in range(40)]
        ended = await asyncio.to_thread(ends, strangers[-1])
        assert ended
        assert not stream.is_ended
        for one in strangers:
            one.close()
        # The transport finds out at its own time that they have gone.
        async with asyncio.timeout(60):
            while (answer := await _identified(friend, server.server.address)) is None:
                await asyncio.sleep(0.05)
        assert answer == LISTENER


async def _identified(friend: GrpcRpcService, address: str) -> Incarnation | None:
    try:
        return await friend.identify(address, timeout=20)
    except UnavailableError:
        return None


async def test_a_call_without_the_token_is_refused_before_its_request_is_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two(PATIENT) as (server, _friend), running(replace(LIMITS, credential=None)) as stranger:
        gateway = stranger.connect(DispatcherGateway, server.server.address, target=None, sender=None, timeout=20)
        with pytest.raises(UnauthenticatedError):
            await gateway.cancel_job(JobRequest("a" * 32))  # type: ignore[arg-type]  # any text does
        headers = frame(HEADERS_FRAME, END_HEADERS, 1, request_headers(IDENTITY_PATH.encode()))
        with connect(server, BEGIN + headers + frame(0, 0, 1, b"\x00" + struct.pack(">I", 4_000_000) + b"x")) as half:
            answer = await asyncio.to_thread(_read_until, half, b"cluster's token is missing")
        assert answer, "refused while the rest of its request is awaited"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def _read_until(connection: socket.socket, text: bytes) -> bool:
    received = b""
    while text not in received:
        more = connection.recv(1 << 16)
        if not more:
            return False
        received += more
    return True


async def test_who_has_the_token_may_say_a_lot_and_late() -> None:
    """The bounds are for strangers: one large request is above them, and so are many calls."""
    tight = StrangerLimits(seconds_max=0.5, bytes_max=100_000, refusals_max=1, connections_per_address_max=1)
    async with two(PATIENT) as (server, friend):
        address = server.server.address
        options: list[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            raw: Any = channel
            call = raw.unary_unary(IDENTITY_PATH)
            metadata = (("flinklike-credential", TOKEN.reveal()),)
            assert await call(b"", metadata=metadata, timeout=20) == LISTENER.encode()
            await hurry(server, tight)
            for _ in range(10):
                assert await call(b"x" * 200_000, metadata=metadata, timeout=20) == LISTENER.encode()
                await asyncio.sleep(0.2)
        server._strangers._strangers.limits = PATIENT
        assert await friend.identify(address, timeout=20) == LISTENER


@pytest.mark.parametrize(
    "path", [b"/flinklike.Transp\xb2rt/Identify", b"\xff", b"/" + b"\x80" * 3000, b"/no.such/Method"]
)
async def test_a_path_that_is_none_of_ours_ends_nothing(path: bytes) -> None:
    """grpc.aio takes it for text, in the task that accepts all calls (R52)."""
    async with two(PATIENT) as (server, friend):
        call = frame(HEADERS_FRAME, END_HEADERS, 1, request_headers(path)) + frame(0, 1, 1, bytes(5))
        stranger = connect(server, PREFACE + frame(SETTINGS, 0, 0) + call)
        with stranger:
            stranger.settimeout(0.2)
            for _ in range(3):
                assert await friend.identify(server.server.address, timeout=20) == LISTENER
            with suppress(TimeoutError):
                answer = stranger.recv(1 << 16)
                assert answer, "its connection goes on, too"


async def test_a_server_that_accepts_no_more_calls_fails_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is deaf keeps no role."""

    async def fail(_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(_AcceptingServer, "_request_call", fail)
    service = GrpcRpcService(LIMITS, LoopClock())
    await service.start()
    with pytest.raises(ExceptionGroup) as failed:
        await service.wait_failed()
    assert failed.group_contains(UnavailableError, match="takes no more calls: RuntimeError")
    with pytest.raises(ExceptionGroup):
        await service.stop(grace=0)
