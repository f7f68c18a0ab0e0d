"""A stand-by answers through the leader, so that every address of the cluster is as good as any other.

Not by a redirect: clients drop the token on the way to another port, and many do not repeat a POST. A request whose
answer is lost on the way, or whose leader is not the leader any more, is answered 503, which clients try again. What
has been forwarded once is not forwarded again, so two processes that take each other for the leader end it at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from http import HTTPStatus

import httpx
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.aio.scope import Scope as TaskScope
from runtime.rest.context import LEADER_UNKNOWN, RestContext
from runtime.rest.guards import BodyRefusedError, answer_error

logger = logging.getLogger(__name__)

FORWARDED = b"x-flinklike-forwarded"
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


class LeaderForwarding:
    """Sends what comes while another process leads there, and everything else to `app`."""

    def __init__(self, app: ASGIApp, context: RestContext, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._app = app
        self._context = context
        self._transport = transport or httpx.AsyncHTTPTransport(
            verify=False,  # plain http inside of the cluster
            trust_env=False,
            # A connection for each request: one that was kept may lead to a process that has just died.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer here or there."""
        address = self._context.other_leader.value
        is_local = scope["type"] != "http" or not address or self._context.leader() is not None
        if is_local or any(name == FORWARDED for name, _ in scope["headers"]):
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(address, scope, receive, send)
        async with TaskScope("rest/forward") as tasks:
            relaying = tasks.start("relay", exchange.relay(self._transport))
            moved = tasks.start("moved", self._context.other_leader.wait_until(lambda now: now != address))
            gone = tasks.start("gone", exchange.wait_gone())
            _ = await asyncio.wait({relaying, moved, gone}, return_when=asyncio.FIRST_COMPLETED)
            is_gone = gone.done()
            tasks.cancel_all()
        # An answer that was cut off must not look complete: the server then breaks the connection.
        if not exchange.is_answered and not is_gone:
            await answer_error(send, HTTPStatus.SERVICE_UNAVAILABLE, LEADER_UNKNOWN)


class _Exchange:
    """One request on its way to the leader at `address`."""

    def __init__(self, address: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._address = address
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
        except httpx.TransportError as error:
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
        query = scope["query_string"]
        path = scope["raw_path"] + (b"?" + query if query else b"")
        headers = [(name, value) for name, value in scope["headers"] if name not in _OF_ONE_HOP | {b"host"}]
        return httpx.Request(
            scope["method"],
            httpx.URL(f"http://{self._address}").copy_with(raw_path=path),
            headers=[*headers, (FORWARDED, b"1")],
            content=self._body() if has_body else None,
            extensions={
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


def _kept(answer: httpx.Response) -> list[tuple[bytes, bytes]]:
    return [(name.lower(), value) for name, value in answer.headers.raw if name.lower() not in _OF_ONE_HOP]
