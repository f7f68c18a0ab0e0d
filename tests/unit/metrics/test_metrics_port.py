"""The port of metrics: what it answers to whom, and what it bounds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from runtime.aio.scope import Scope
from runtime.common.errors import UnavailableError
from runtime.metrics import http_port
from runtime.metrics.http_port import CONNECTIONS_MAX, HEAD_BYTES_MAX, MetricsPort, bind_port
from runtime.metrics.reporting import NO_REPORTING, Reporting

TEXT = b"flinklike_jobs 1\n"


@asynccontextmanager
async def serving() -> AsyncIterator[MetricsPort]:
    port = MetricsPort(bind_port("127.0.0.1", [0]), lambda: TEXT, "text/plain; version=0.0.4")
    async with Scope("test") as scope:
        scope.spawn("port", port.run())
        try:
            yield port
        finally:
            scope.cancel_all()


async def asked(port: MetricsPort, *parts: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0)
        return await reader.read()
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_", "status", "has_text"),
    [
        (b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n", b"200", True),
        (b"GET /metrics HTTP/1.0\n\n", b"200", True),
        (b"GET /metrics?name[]=up HTTP/1.1\r\n\r\n", b"200", True),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200", False),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405", False),
        (b"GET / HTTP/1.1\r\n\r\n", b"404", False),
        (b"GET /metrics/../token HTTP/1.1\r\n\r\n", b"404", False),
        (b"GET http://elsewhere/metrics HTTP/1.1\r\n\r\n", b"400", False),
        (b"GET /metrics HTTP/2\r\n\r\n", b"400", False),
        (b"\x16\x03\x01\x00\xa5\r\n\r\n", b"400", False),
        (b"\r\n\r\n", b"400", False),
        (b"GET /metrics HTTP/1.1\r\nx: " + b"a" * HEAD_BYTES_MAX + b"\r\n\r\n", b"431", False),
        (b"a" * (HEAD_BYTES_MAX + 1), b"431", False),
    ],
    ids=lambda one: repr(one)[:40],
)
@pytest.mark.asyncio
async def test_answers(request_: bytes, status: bytes, has_text: bool) -> None:
    async with serving() as port:
        answer = await asked(port, request_)
    assert answer.startswith(b"HTTP/1.1 " + status + b" ")
    assert (TEXT in answer) is has_text
    assert b"\r\nconnection: close\r\n" in answer


@pytest.mark.asyncio
async def test_a_request_may_come_in_pieces() -> None:
    async with serving() as port:
        answer = await asked(port, b"GET /met", b"rics HTTP/1.1\r\n", b"\r", b"\n")
    assert TEXT in answer


@pytest.mark.asyncio
async def test_who_asks_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_port, "SECONDS_MAX", 0.05)
    async with serving() as port, asyncio.timeout(20):
        assert await asked(port, b"GET /metrics") in {b"", b"reset"}


@pytest.mark.asyncio
async def test_connections_are_bounded_and_come_back() -> None:
    async with serving() as port:
        held = [await asyncio.open_connection("127.0.0.1", port.port) for _ in range(CONNECTIONS_MAX)]
        while port.connections < CONNECTIONS_MAX:
            await asyncio.sleep(0.01)
        assert await asked(port, b"GET /metrics HTTP/1.1\r\n\r\n") in {b"", b"reset"}
        for _, writer in held:
            writer.close()
        while port.connections:
            await asyncio.sleep(0.01)
        assert TEXT in await asked(port, b"GET /metrics HTTP/1.1\r\n\r\n")


@pytest.mark.asyncio
async def test_a_mistake_in_the_text_is_told_to_the_log() -> None:
    def broken() -> bytes:
        raise ZeroDivisionError

    port = MetricsPort(bind_port("127.0.0.1", [0]), broken, "text/plain")
    try:
        assert port.answer(b"GET /metrics HTTP/1.1").startswith(b"HTTP/1.1 500 ")
    finally:
        port._listener.close()


def test_a_range_gives_the_first_free_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        if number == 65535:
            pytest.skip("the last port is taken")
        with pytest.raises(UnavailableError, match=r"metrics\.prometheus\.port"):
            bind_port("127.0.0.1", [number])
        with bind_port("127.0.0.1", range(number, min(number + 20, 65536))) as found:
            assert found.getsockname()[1] > number


@pytest.mark.parametrize(
    ("bound", "host", "shown"),
    [
        ("127.0.0.1", "node-7", "127.0.0.1"),
        ("0.0.0.0", "node-7", "node-7"),
        ("::", "node-7", "node-7"),
        ("node-7.metrics", "node-7", "node-7.metrics"),
        ("::1", "node-7", "[::1]"),
    ],
)
def test_the_address_that_others_are_told(bound: str, host: str, shown: str) -> None:
    assert Reporting(port=9250, bind_address=bound).address(host) == f"{shown}:9250"
    assert NO_REPORTING.address(host) == ""
