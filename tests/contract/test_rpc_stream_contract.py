"""What every transport promises of streams and chunks: the other half of test_rpc_contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from runtime.aio.watch import Watch
from runtime.common.errors import (
    BackpressureError,
    ConflictError,
    MessageTooLargeError,
    NotFoundError,
    StaleTokenError,
    UnavailableError,
)
from runtime.common.fencing import FencingToken
from runtime.common.ids import ClusterUuid, Incarnation, JobId
from runtime.gateways.job_master import Heartbeat
from runtime.gateways.resource_manager import JobsEnded
from runtime.rpc.service import MessageStream, RpcService, StreamHandler, StreamKind
from runtime.rpc.status import RemoteFailureError
from tests.kit.control_plane.rpc_wire import (
    DIALER,
    KIND,
    LIMITS,
    LISTENER,
    WIRES,
    GrpcWire,
    Wire,
    accept_all,
    hello,
    no_chunks,
)

CLUSTER = ClusterUuid("c" * 32)
JOB = JobId("a" * 32)


@pytest_asyncio.fixture(params=list(WIRES))
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    made: Wire = WIRES[request.param]()
    yield made
    await made.close()


# --- streams ----------------------------------------------------------------------------------------------------


async def _echo(stream: MessageStream) -> None:
    while True:
        for message in await stream.receive():
            stream.send(message)


class Accepted:
    """A stream handler that hands its streams to the test and holds them open."""

    def __init__(self) -> None:
        self.streams: Watch[list[MessageStream]] = Watch([])
        self.release = asyncio.Event()

    async def __call__(self, stream: MessageStream) -> None:
        self.streams.set([*self.streams.value, stream])
        await self.release.wait()

    async def stream(self, index: int) -> MessageStream:
        async with asyncio.timeout(100):
            return (await self.streams.wait_until(lambda streams: len(streams) > index))[index]


async def listen(
    wire: Wire, handler: StreamHandler, check: Any = accept_all, **settings: Any
) -> tuple[RpcService, RpcService]:
    server, client = await wire.service(LISTENER, **settings), await wire.service(DIALER, **settings)
    server.server.add_stream_handler(KIND, handler, check=check)
    return server, client


async def take(stream: MessageStream, count: int) -> list[int]:
    taken: list[int] = []
    async with asyncio.timeout(100):
        while len(taken) < count:
            taken += [message.sequence for message in await stream.receive()]
    return taken


async def ended(stream: MessageStream) -> str:
    """Wait for the end as the stream's user sees it."""
    with pytest.raises(UnavailableError) as caught:
        async with asyncio.timeout(100):
            await stream.receive()
    with pytest.raises(UnavailableError):
        stream.send(Heartbeat(0))
    return str(caught.value)


@pytest.mark.asyncio
async def test_stream_keeps_order_both_ways(wire: Wire) -> None:
    server, client = await listen(wire, _echo)
    stream = await client.open_stream(wire.address(server), hello(), timeout=5)
    for number in range(3000):
        stream.send(Heartbeat(number))
        if number % 100 == 0:
            await asyncio.sleep(0)
    assert await take(stream, 3000) == list(range(3000))
    assert stream.hello == hello()


@pytest.mark.asyncio
async def test_sends_of_one_step_share_a_frame(wire: Wire) -> None:
    server, client = await listen(wire, _echo)
    stream: Any = await client.open_stream(wire.address(server), hello(), timeout=5)
    for number in range(900):
        stream.send(Heartbeat(number))
    await take(stream, 900)
    assert stream.frames_sent == 1
    stream.send(Heartbeat(0))
    await take(stream, 1)
    assert stream.frames_sent == 2
    for number in range(2500):
        stream.send(Heartbeat(number))
    await take(stream, 2500)
    assert stream.frames_sent == 5, "1000 messages a frame"
    for _ in range(4):
        stream.send(JobsEnded((JobId("x" * 40_000),)))
    received = 0
    async with asyncio.timeout(100):
        while received < 4:
            received += len(await stream.receive())
    assert stream.frames_sent == 9, "64 KiB a frame"


@pytest.mark.asyncio
async def test_full_outbox_refuses_its_sender_only(wire: Wire) -> None:
    accepted = Accepted()
    server, client = await listen(wire, accepted)
    stream = await client.open_stream(wire.address(server), hello(), timeout=5)
    for number in range(LIMITS.outbox_messages_max):
        stream.send(Heartbeat(number))
    with pytest.raises(BackpressureError) as caught:
        stream.send(Heartbeat(-1))
    assert caught.value.retry_after > 0
    other = await accepted.stream(0)
    assert len(await take(other, LIMITS.outbox_messages_max)) == LIMITS.outbox_messages_max
    stream.send(Heartbeat(-1))
    assert await take(other, 1) == [-1]


@pytest.mark.asyncio
async def test_slow_receiver_slows_its_sender_down(wire: Wire) -> None:
    limits = replace(LIMITS, inbox_messages_max=100, frame_messages_max=50, outbox_messages_max=1000)
    accepted = Accepted()
    server, client = await listen(wire, accepted, limits=limits)
    stream = await client.open_stream(wire.address(server), hello(), timeout=5)
    sent = 0
    payload = JobId("x" * 2000)
    try:
        while sent < 100_000:
            stream.send(JobsEnded((payload,)))
            sent += 1
            await asyncio.sleep(0)
    except BackpressureError:
        pass
    assert sent < 100_000, "nobody reads, so the outbox must fill up"
    other, received = await accepted.stream(0), 0
    async with asyncio.timeout(100):
        while received < sent:
            received += len(await other.receive())
    assert received == sent


@pytest.mark.asyncio
async def test_message_above_the_limit_is_refused_at_send(wire: Wire) -> None:
    server, client = await listen(wire, _echo)
    stream = await client.open_stream(wire.address(server), hello(), timeout=5)
    with pytest.raises(MessageTooLargeError, match="JobsEnded"):
        stream.send(JobsEnded((JobId("x" * LIMITS.message_size_max),)))
    largest = JobsEnded((JobId("x" * (LIMITS.message_size_max - 100)),))
    stream.send(largest)
    async with asyncio.timeout(100):
        assert await stream.receive() == [largest]


@pytest.mark.asyncio
async def test_close_flushes_and_both_ends_see_the_end(wire: Wire) -> None:
    accepted = Accepted()
    server, client = await listen(wire, accepted)
    stream = await client.open_stream(wire.address(server), hello(), timeout=5)
    other = await accepted.stream(0)
    for number in range(2000):
        stream.send(Heartbeat(number))
    await stream.close()
    assert await take(other, 2000) == list(range(2000))
    await ended(other)
    await ended(stream)
    await stream.close()


@pytest.mark.asyncio
async def test_listener_closes_by_returning(wire: Wire) -> None:
    async def greet(stream: MessageStream) -> None:
        for number in range(2000):
            stream.send(Heartbeat(number))

    server, client = await listen(wire, greet)
    stream = await client.open_stream(wire.address(server), hello(), timeout=5)
    assert await take(stream, 2000) == list(range(2000))
    await ended(stream)


@pytest.mark.asyncio
async def test_listener_that_fails_ends_its_stream_only(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    async def fail(stream: MessageStream) -> None:
        if stream.hello.number == 1:
            raise ZeroDivisionError
        await _echo(stream)

    server, client = await listen(wire, fail)
    stream = await client.open_stream(wire.address(server), hello(), timeout=5)
    await ended(stream)
    assert "failed" in caplog.text
    stream = await client.open_stream(wire.address(server), hello(2), timeout=5)
    stream.send(Heartbeat(1))
    assert await take(stream, 1) == [1]


@pytest.mark.asyncio
@pytest.mark.parametrize("side", ["dialer", "listener"])
async def test_abort_ends_both_sides(wire: Wire, side: str) -> None:
    accepted = Accepted()
    server, client = await listen(wire, accepted)
    stream = await client.open_stream(wire.address(server), hello(), timeout=5)
    other = await accepted.stream(0)
    (stream if side == "dialer" else other).abort("no heartbeat")
    reasons = [await ended(stream), await ended(other)]
    assert "no heartbeat" in reasons[0 if side == "dialer" else 1]


@pytest.mark.asyncio
@pytest.mark.parametrize("victim", ["dialer", "listener"])
async def test_killed_peer_ends_the_stream(wire: Wire, victim: str) -> None:
    accepted = Accepted()
    server, client = await listen(wire, accepted)
    stream = await client.open_stream(wire.address(server), hello(), timeout=5)
    other = await accepted.stream(0)
    await wire.kill(server if victim == "listener" or isinstance(wire, GrpcWire) else client)
    await ended(stream)
    await ended(other)
    if victim == "listener":
        with pytest.raises(UnavailableError):
            await client.open_stream(wire.address(server), hello(2), timeout=5)


@pytest.mark.asyncio
async def test_newer_stream_replaces_the_older_and_drops_what_it_had_not_delivered(wire: Wire) -> None:
    accepted = Accepted()
    server, client = await listen(wire, accepted)
    old = await client.open_stream(wire.address(server), hello(3), timeout=5)
    old_accepted = await accepted.stream(0)
    old.send(Heartbeat(1))
    assert await take(old_accepted, 1) == [1]
    old.send(Heartbeat(2))
    new = await client.open_stream(wire.address(server), hello(4), timeout=5)
    assert "#4" in await ended(old_accepted)  # R11: message 2 is gone for ever
    await ended(old)
    new.send(Heartbeat(5))
    assert await take(await accepted.stream(1), 1) == [5]
    for number in (3, 4):
        with pytest.raises(StaleTokenError, match="#4"):
            await client.open_stream(wire.address(server), hello(number), timeout=5)
    other = await client.open_stream(wire.address(server), hello(1, dialer=Incarnation("9" * 32)), timeout=5)
    new.send(Heartbeat(6))
    other.send(Heartbeat(7))
    assert await take(await accepted.stream(1), 1) == [6]
    assert await take(await accepted.stream(2), 1) == [7]
    await new.close()
    with pytest.raises(StaleTokenError, match="#4"):
        await client.open_stream(wire.address(server), hello(4), timeout=5)


@pytest.mark.asyncio
async def test_streams_are_checked_before_they_open(wire: Wire) -> None:
    accepted, own = Accepted(), FencingToken(CLUSTER, 7)

    def check(target: FencingToken | None, sender: FencingToken | None) -> None:
        assert sender is None
        if target not in {None, own}:
            raise StaleTokenError(f"meant for {target}")

    server, client = await listen(wire, accepted, check)
    address = wire.address(server)
    with pytest.raises(StaleTokenError):
        await client.open_stream(address, hello(target=FencingToken(CLUSTER, 6)), timeout=5)
    with pytest.raises(StaleTokenError, match=DIALER):
        await client.open_stream(address, hello(target_incarnation=DIALER), timeout=5)
    with pytest.raises(UnavailableError, match="JOB_MASTER_TO_DISPATCHER"):
        await client.open_stream(address, hello(kind=StreamKind.JOB_MASTER_TO_DISPATCHER), timeout=5)
    stream = await client.open_stream(address, hello(target=own, target_incarnation=LISTENER), timeout=5)
    assert (await accepted.stream(0)).hello == stream.hello
    server.server.remove_stream_handler(KIND)
    await ended(stream)
    with pytest.raises(UnavailableError):
        await client.open_stream(address, hello(2), timeout=5)


@pytest.mark.asyncio
async def test_stop_closes_streams_and_refuses(wire: Wire) -> None:
    accepted = Accepted()
    server, client = await listen(wire, accepted)
    address = wire.address(server)
    stream = await client.open_stream(address, hello(), timeout=5)
    (await accepted.stream(0)).send(Heartbeat(1))
    async with asyncio.timeout(100):
        await server.stop(grace=0)
    assert await take(stream, 1) == [1]
    await ended(stream)
    with pytest.raises(UnavailableError):
        await client.open_stream(address, hello(2), timeout=5)


@pytest.mark.asyncio
async def test_last_heard_and_last_sent_move(wire: Wire) -> None:
    accepted = Accepted()
    server, client = await listen(wire, accepted)
    stream = await client.open_stream(wire.address(server), hello(), timeout=5)
    other = await accepted.stream(0)
    heard, sent = other.last_heard, stream.last_sent
    await asyncio.sleep(0.01)
    stream.send(Heartbeat(1))
    await take(other, 1)
    assert stream.last_sent > sent
    assert other.last_heard > heard


# --- chunks -----------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_chunks_arrive_as_they_are(wire: Wire) -> None:
    chunks = [bytes([n]) * (200 * 1024) for n in range(8)]

    async def source(key: str) -> AsyncIterator[bytes]:
        if key != "known":
            raise NotFoundError(f"no object {key}")
        for chunk in chunks:
            yield chunk

    server, client = await wire.service(LISTENER), await wire.service(DIALER)
    server.server.add_chunk_source("blobs", source)
    server.server.add_chunk_source("none", no_chunks)
    address = wire.address(server)
    assert [chunk async for chunk in client.fetch_chunks(address, "blobs", "known", timeout=5)] == chunks
    assert [chunk async for chunk in client.fetch_chunks(address, "none", "", timeout=5)] == []
    for name, key in (("blobs", "other"), ("others", "known")):
        with pytest.raises(NotFoundError, match=key if name == "blobs" else name):
            _ = [chunk async for chunk in client.fetch_chunks(address, name, key, timeout=5)]
    await wire.kill(server)
    with pytest.raises(UnavailableError):
        _ = [chunk async for chunk in client.fetch_chunks(address, "blobs", "known", timeout=5)]


@pytest.mark.asyncio
async def test_chunk_source_that_hangs_or_breaks(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    async def source(key: str) -> AsyncIterator[bytes]:
        yield b"first"
        if key == "hang":
            await asyncio.Event().wait()
        if key == "conflict":
            raise ConflictError("changed meanwhile")
        raise ZeroDivisionError

    server, client = await wire.service(LISTENER), await wire.service(DIALER)
    server.server.add_chunk_source("blobs", source)
    expected = {"hang": UnavailableError, "conflict": ConflictError, "bug": RemoteFailureError}
    for key, error_class in expected.items():
        patience = 3.0 if key == "hang" else 60.0  # the first chunk may be slow too, on a machine that has much to do
        chunks = client.fetch_chunks(wire.address(server), "blobs", key, timeout=patience)
        assert await anext(chunks) == b"first"
        with pytest.raises(error_class):
            await anext(chunks)
    assert "failed" in caplog.text
