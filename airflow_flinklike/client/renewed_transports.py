"""httpx transports that are made anew when the files of their certificates change (R47).

Requests under way go on with the transport on which they began; with the last of them it is closed.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, TypeVar

import httpx

from airflow_flinklike.client.deadlines import AsyncBoundedTransport, BoundedTransport
from airflow_flinklike.client.tls import ClientTls, watched_context

_Transport = TypeVar("_Transport")


class _Made(Generic[_Transport]):
    """A transport and the number of its running requests."""

    def __init__(self, context: ssl.SSLContext, transport: _Transport) -> None:
        self.context = context
        self.transport = transport
        self.running = 0


class _Transports(Generic[_Transport]):
    """The newest transport, and older ones with running requests. Thread-safe."""

    def __init__(self, tls: ClientTls, make: Callable[[ssl.SSLContext], _Transport]) -> None:
        self._context = watched_context(tls)
        self._make = make
        self._lock = threading.Lock()
        self._made: list[_Made[_Transport]] = []

    def begin(self) -> tuple[_Made[_Transport], list[_Transport]]:
        """The transport of the next request, and the transports to close."""
        context = self._context.value
        with self._lock:
            if not self._made or self._made[-1].context is not context:
                self._made.append(_Made(context, self._make(context)))
            newest = self._made[-1]
            newest.running += 1
            return newest, self._over()

    def end(self, made: _Made[_Transport]) -> list[_Transport]:
        """A request has ended. Returns the transports to close."""
        with self._lock:
            made.running -= 1
            return self._over()

    def all(self) -> list[_Transport]:
        """All transports that are open."""
        return [one.transport for one in self._made]

    def _over(self) -> list[_Transport]:
        over = [one for one in self._made[:-1] if not one.running]
        self._made = [one for one in self._made if one not in over]
        return [one.transport for one in over]


class RenewedTransport(httpx.BaseTransport):
    """A transport that shows and trusts the current certificates, for any number of threads.

    Raises AuthenticationError for files that cannot be used at the start.
    """

    def __init__(self, tls: ClientTls) -> None:
        self._transports: _Transports[BoundedTransport] = _Transports(tls, BoundedTransport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """By the newest."""
        made, over = self._transports.begin()
        _close(over)
        try:
            response = made.transport.handle_request(request)
        except BaseException:
            _close(self._transports.end(made))
            raise
        assert isinstance(response.stream, httpx.SyncByteStream), response.stream
        response.stream = _Stream(response.stream, lambda: _close(self._transports.end(made)))
        return response

    def close(self) -> None:
        """All of them."""
        _close(self._transports.all())


class _Stream(httpx.SyncByteStream):
    """A stream that reports when it is closed."""

    def __init__(self, stream: httpx.SyncByteStream, closed: Callable[[], None]) -> None:
        self._stream = stream
        self._closed = closed

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream

    def close(self) -> None:
        closed, self._closed = self._closed, lambda: None
        try:
            self._stream.close()
        finally:
            closed()


def _close(transports: list[BoundedTransport]) -> None:
    for one in transports:
        one.close()


class RenewedAsyncTransport(httpx.AsyncBaseTransport):
    """RenewedTransport for an event loop."""

    def __init__(self, tls: ClientTls) -> None:
        self._transports: _Transports[AsyncBoundedTransport] = _Transports(tls, AsyncBoundedTransport)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """By the newest."""
        made, over = self._transports.begin()
        await _aclose(over)
        try:
            response = await made.transport.handle_async_request(request)
        except BaseException:
            await _aclose(self._transports.end(made))
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream), response.stream
        response.stream = _AsyncStream(response.stream, lambda: self._transports.end(made))
        return response

    async def aclose(self) -> None:
        """All of them."""
        await _aclose(self._transports.all())


class _AsyncStream(httpx.AsyncByteStream):
    """A stream that closes transports without requests when it is closed."""

    def __init__(self, stream: httpx.AsyncByteStream, end: Callable[[], list[AsyncBoundedTransport]]) -> None:
        self._stream = stream
        self._end = end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        end, self._end = self._end, list
        try:
            await self._stream.aclose()
        finally:
            await _aclose(end())


async def _aclose(transports: list[AsyncBoundedTransport]) -> None:
    for one in transports:
        await one.aclose()
