"""Transports that bound the time of a whole answer, its head and its body (R52).

The read timeout of httpx bounds one read, so a server that sends a byte now and then holds a client for ever. Here it
bounds the time from the last byte sent: an upload is not bounded, an answer is, also behind many HTTP 1xx heads.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from typing import Any

import httpcore
import httpx

_Options = Iterable[Any] | None
_POOL: dict[str, Any] = {"max_connections": 100, "max_keepalive_connections": 20, "keepalive_expiry": 5.0}
"""The defaults of httpx."""


class _Deadline:
    """The deadline of the answer that is being read."""

    def __init__(self) -> None:
        self._ends: float | None = None

    def begin_again(self) -> None:
        """A byte was sent: the next read begins a new answer."""
        self._ends = None

    def left(self, timeout: float | None) -> float | None:
        """Seconds left for this read. Raises httpcore.ReadTimeout after the deadline."""
        if timeout is None:
            return None
        now = time.monotonic()  # noqa: TID251 - a client has no other clock
        self._ends = now + timeout if self._ends is None else self._ends
        if now >= self._ends:
            message = f"the answer was not complete after {timeout:g} s"
            raise httpcore.ReadTimeout(message)
        return self._ends - now


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner
        self._deadline = _Deadline()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._deadline.begin_again()
        self._inner.write(buffer, timeout)

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: _Options = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.connect_tcp(host, port, timeout, local_address, socket_options))


class _AsyncStream(httpcore.AsyncNetworkStream):
    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner
        self._deadline = _Deadline()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, self._deadline.left(timeout))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._deadline.begin_again()
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _AsyncBackend(httpcore.AsyncNetworkBackend):
    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: _Options = None,
    ) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._inner.connect_tcp(host, port, timeout, local_address, socket_options))


class BoundedTransport(httpx.HTTPTransport):
    """The transport of httpx over connections with deadlines. `context` None: plain http, without certificates."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(verify=context or False, trust_env=False)
        # httpx hands no backend through.
        self._pool = httpcore.ConnectionPool(ssl_context=context, network_backend=_Backend(), **_POOL)


class AsyncBoundedTransport(httpx.AsyncHTTPTransport):
    """BoundedTransport for an event loop."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        super().__init__(verify=context or False, trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(ssl_context=context, network_backend=_AsyncBackend(), **_POOL)
