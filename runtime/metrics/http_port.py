"""MetricsPort: a port on which `GET /metrics` is answered, and nothing else.

Bytes come from anybody who reaches the port, so everything is bounded (R41, R52): the head of a request, the
connections, and the time of one, which is the same for who asks slowly and who reads slowly. One request a connection;
no body is read.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import cast

from runtime.common.errors import UnavailableError

logger = logging.getLogger(__name__)

PATH = "/metrics"
HEAD_BYTES_MAX = 8192
CONNECTIONS_MAX = 16
SECONDS_MAX = 10.0
_BACKLOG = 64
_REQUEST = re.compile(rb"([A-Z]{1,16}) (/[!-~]{0,2048}) HTTP/1\.[01]\r?\Z")
_END = re.compile(rb"\r?\n\r?\n")
_PLAIN = "text/plain; charset=utf-8"


def bind_port(address: str, ports: Sequence[int]) -> socket.socket:
    """Listen on the first of `ports` that is free, 0 for any. Raises UnavailableError that says what to do."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    problem = ""
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address.strip("[]"), port))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            problem = problem or str(error.strerror or error)
            continue
        listener.setblocking(False)  # noqa: FBT003 (the name of the method says it)
        return listener
    where = f"{address}:{ports[0]}" if len(ports) == 1 else f"{address}, ports {ports[0]} to {ports[-1]}"
    message = (
        f"cannot listen on {where} for metrics ({problem}): set metrics.prometheus.port to 0 or to a range of ports, "
        "one for each process of this host, and metrics.prometheus.bind-address to an address of this host"
    )
    raise UnavailableError(message)


class MetricsPort:
    """Serves `render()`, of that content type, on a socket that listens."""

    def __init__(self, listener: socket.socket, render: Callable[[], bytes], content_type: str) -> None:
        self._listener = listener
        self._render = render
        self._content_type = content_type
        self._open: set[_Connection] = set()

    @property
    def port(self) -> int:
        """The port."""
        return int(self._listener.getsockname()[1])

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._open)

    async def run(self) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self._open, self.answer), sock=self._listener)
        try:
            await server.serve_forever()
        finally:
            for connection in list(self._open):
                connection.abort()
            server.close()

    def answer(self, head: bytes) -> bytes:
        """The whole answer to a request with this head, which ends before the empty line."""
        match = _REQUEST.match(head.split(b"\n", 1)[0])
        if match is None:
            return _response(HTTPStatus.BAD_REQUEST, _PLAIN, b"this is no HTTP/1 request\n")
        method, target = match[1].decode(), match[2].decode()
        if target.partition("?")[0] != PATH:
            return _response(HTTPStatus.NOT_FOUND, _PLAIN, b"metrics are at /metrics\n")
        if method not in {"GET", "HEAD"}:
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, b"use GET\n", more=b"allow: GET, HEAD\r\n")
        try:
            body = self._render()
        except Exception:  # the boundary of a scrape: the process goes on
            logger.exception("the metrics cannot be told")
            return _response(HTTPStatus.INTERNAL_SERVER_ERROR, _PLAIN, b"see the log of this process\n")
        return _response(HTTPStatus.OK, self._content_type, body, has_body=method == "GET")


def _response(status: HTTPStatus, content_type: str, body: bytes, *, has_body: bool = True, more: bytes = b"") -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\nx-content-type-options: nosniff\r\nconnection: close\r\n"
    ).encode("ascii")
    return head + more + b"\r\n" + (body if has_body else b"")


class Answered:
    """The one request of a connection, as far as it has come. `answer` is told its head."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._head = bytearray()
        self._is_over = False

    def hear(self, data: bytes, transport: asyncio.Transport) -> None:
        """More of it: once its head is complete, or too long, it is answered, and the transport closed."""
        if self._is_over:
            return
        self._head += data[: HEAD_BYTES_MAX + 1]
        end = _END.search(self._head)
        if end is None and len(self._head) <= HEAD_BYTES_MAX:
            return
        self._is_over = True
        if end is None or end.start() > HEAD_BYTES_MAX:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            answer = _response(status, _PLAIN, b"the head of the request is too long\n")
        else:
            answer = self._answer(bytes(self._head[: end.start()]))
        self._head.clear()
        transport.write(answer)
        transport.close()


class _Connection(asyncio.Protocol):
    """One connection: a request, an answer, the end."""

    def __init__(self, others: set[_Connection], answer: Callable[[bytes], bytes]) -> None:
        self._others = others
        self._request = Answered(answer)
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take it, unless there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        if len(self._others) >= CONNECTIONS_MAX:
            self._transport.abort()
            return
        self._others.add(self)
        self._deadline = asyncio.get_running_loop().call_later(SECONDS_MAX, self.abort)

    def data_received(self, data: bytes) -> None:
        """More of the request."""
        if self._transport is not None:
            self._request.hear(data, self._transport)

    def connection_lost(self, _error: Exception | None) -> None:
        """It is over."""
        self._others.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        """End it now."""
        if self._transport is not None:
            self._transport.abort()
