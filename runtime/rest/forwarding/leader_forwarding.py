"""A stand-by answers through the leader, so that every address of the cluster is as good as any other.

Not by a redirect: clients drop the token on the way to another port, and many do not repeat a POST. A request whose
answer is lost on the way, or whose leader is not the leader any more, is answered 503, which clients try again. What
has been forwarded once is not forwarded again, so two processes that take each other for the leader make no loop.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncIterator
from http import HTTPStatus

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.aio.scope import Scope as TaskScope
from runtime.rest.answers import answer_error
from runtime.rest.connections.body_limits import BodyRefusedError
from runtime.rest.connections.tls import RestTls, forwarded_name
from runtime.rest.context import LEADER_UNKNOWN, RestContext
from runtime.rest.forwarding.forward_seal import FORWARDED, FORWARDED_NAME, SEAL, ForwardSeal

logger = logging.getLogger(__name__)

_CONNECT_SECONDS = 2.0
_WRITE_SECONDS = 30.0
_OF_ONE_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_OF_EACH_ANSWER = frozenset({b"date", b"x-content-type-options"})
"""What this process's own server says, too."""
_OF_EACH_PROCESS = frozenset({"/metrics", "/v1/metrics"})
"""Paths that are about the process that is asked, whether it leads or not."""
_TARGET = re.compile(rb"/[!-~]*")


class LeaderForwarding:
    """Sends what comes while another process leads there, and everything else to `app`."""

    def __init__(self, app: ASGIApp, context: RestContext, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._app = app
        self._context = context
        self._way = _Way(context.tls, transport)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer here or there. What cannot be sent there is refused here too, so that all addresses say the same."""
        if scope["type"] == "http" and not _TARGET.fullmatch(_target(scope)):
            sentence = "A request names a path that begins with '/', in ASCII: encode other characters by %."
            await answer_error(send, HTTPStatus.BAD_REQUEST, sentence)
            return
        address = self._context.other_leader.value
        is_local = scope["type"] != "http" or not address or self._context.leader() is not None
        is_local = is_local or scope["path"] in _OF_EACH_PROCESS
        if is_local or any(name == FORWARDED for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(f"{self._way.scheme}://{address}", scope, receive, send, self._context.forward_seal)
        async with TaskScope("rest/forward") as tasks:
            relaying = tasks.start("relay", exchange.relay(self._way.transport()))
            moved = tasks.start("moved", self._context.other_leader.wait_until(lambda now: now != address))
            gone = tasks.start("gone", exchange.wait_gone())
            _ = await asyncio.wait({relaying, moved, gone}, return_when=asyncio.FIRST_COMPLETED)
            is_gone = gone.done()
            tasks.cancel_all()
        # An answer that was cut off must not look complete: the server then breaks the connection.
        if not exchange.is_answered and not is_gone:
            await answer_error(send, HTTPStatus.SERVICE_UNAVAILABLE, LEADER_UNKNOWN)


class _Way:
    """To the leader: in plain text, or encrypted with what this process shows and trusts now (R46, R47)."""

    def __init__(self, tls: RestTls | None, transport: httpx.AsyncBaseTransport | None) -> None:
        self.scheme = "http" if tls is None else "https"
        self._tls = tls
        self._is_given = transport is not None
        self._context: ssl.SSLContext | None = None
        self._transport = transport or _transport(None)

    def transport(self) -> httpx.AsyncBaseTransport:
        """For one request."""
        if self._tls is not None and not self._is_given:
            context = self._tls.client_context()
            if context is not self._context:  # the one before keeps no connection
                self._context, self._transport = context, _transport(context)
        return self._transport


def _transport(context: ssl.SSLContext | None) -> httpx.AsyncHTTPTransport:
    return httpx.AsyncHTTPTransport(
        verify=context or False,
        trust_env=False,
        # A connection for each request: one that was kept may lead to a process that has just died.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
    )


class _Exchange:
    """One request on its way to the leader at `address`."""

    def __init__(self, address: str, scope: Scope, receive: Receive, send: Send, seal: ForwardSeal | None) -> None:
        self._address = address
        self._seal = seal
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_read = asyncio.Event()
        self.is_answered = False
        """Has the client seen the beginning of an answer?"""

    async def relay(self, transport: httpx.AsyncBaseTransport) -> None:
        """There and back. What the network does ends it without an answer."""
        try:
            answer = await transport.handle_async_request(self._request())
            try:
                assert isinstance(answer.stream, httpx.AsyncByteStream)
                await self._tell(
                    {"type": "http.response.start", "status": answer.status_code, "headers": _kept(answer)}
                )
                async for chunk in answer.stream:
                    await self._tell({"type": "http.response.body", "body": chunk, "more_body": True})
                await self._tell({"type": "http.response.body", "body": b""})
            finally:
                await answer.aclose()
        except BodyRefusedError as error:
            self.is_answered = True
            await answer_error(self._send, error.status, str(error), [(b"connection", b"close")])
        except (httpx.TransportError, ssl.SSLError) as error:  # the latter of what is read: httpx passes it on
            logger.info(
                "the leader's REST at %s does not answer: %s", self._address, str(error) or type(error).__name__
            )

    async def wait_gone(self) -> None:
        """Until the client does not wait any more."""
        await self._is_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _tell(self, message: Message) -> None:
        self.is_answered = True
        await self._send(message)

    def _request(self) -> httpx.Request:
        scope = self._scope
        names = {name for name, _ in scope["headers"]}
        has_body = b"content-length" in names or b"transfer-encoding" in names
        if not has_body:
            self._is_read.set()
        left_out = _OF_ONE_HOP | {b"host", FORWARDED_NAME, SEAL}
        headers = [(name, value) for name, value in scope["headers"] if name not in left_out]
        headers += [(FORWARDED, _client_of(scope)), *forwarded_name(scope)]
        if self._seal is not None:
            headers.append((SEAL, self._seal.of(scope, headers)))
        return httpx.Request(
            scope["method"],
            self._address,
            headers=headers,
            content=self._body() if has_body else None,
            extensions={
                # As it has come, and as it is sealed: httpx would write it in another way.
                "target": _target(scope),
                "timeout": {"connect": _CONNECT_SECONDS, "write": _WRITE_SECONDS, "pool": None, "read": None},
            },
        )

    async def _body(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return
            if body := message.get("body", b""):
                yield body
            if not message.get("more_body", False):
                self._is_read.set()
                return


def _target(scope: Scope) -> bytes:
    query: bytes = scope["query_string"]
    return bytes(scope["raw_path"] + (b"?" + query if query else b""))


def _client_of(scope: Scope) -> bytes:
    """For the leader's audit log."""
    client = scope.get("client")
    return str(client[0]).encode("latin-1", "replace") if client else b"1"


def _kept(answer: httpx.Response) -> list[tuple[bytes, bytes]]:
    left_out = _OF_ONE_HOP | _OF_EACH_ANSWER
    return [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in left_out]
