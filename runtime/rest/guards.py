"""What every request passes before a handler sees it: the token, and the limits on its body. Plain ASGI, no copies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.jobgraph.limits import GRAPH_BYTES_MAX

SUBMIT_BYTES_MAX = GRAPH_BYTES_MAX + 64 * 1024
SMALL_BYTES_MAX = 2 * 1024 * 1024
"""For every body that is no job: 10,000 digests or job ids fit."""

BODIES_BYTES_MAX = 4 * SUBMIT_BYTES_MAX
BODY_CHUNK_SECONDS = 30.0

TokenCheck = Callable[[str], bool]
"""bearer token -> whether it is the cluster's."""


_PAGES = ("/", "/ui")


class BearerGuard:
    """Refuses requests without the cluster's token (401). `/` and the pages under /ui take it as `?token=` too."""

    def __init__(self, app: ASGIApp, check: TokenCheck) -> None:
        self._app = app
        self._check = check

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http" or self._check(_bearer(scope)):
            await self._app(scope, receive, send)
            return
        sentence = (
            "This cluster requires its token: send the header 'Authorization: Bearer <token>'. "
            "The token is in the file that security.token-file names (default run/token). "
            "In a browser it goes into the address: /ui?token=<token>."
        )
        await answer_error(send, HTTPStatus.UNAUTHORIZED, sentence, [(b"www-authenticate", b"Bearer")])


def _bearer(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.decode("latin-1").partition(" ")
            return str(token.strip()) if kind.lower() == "bearer" else ""
    if scope["path"] in _PAGES or "/ui/" in scope["path"]:
        query = scope["query_string"].decode("latin-1")
        tokens = [part[len("token=") :] for part in query.split("&") if part.startswith("token=")]
        return unquote(tokens[0]) if tokens else ""
    return ""


class StopGuard:
    """Answers what is cut off by the end of this process with 503: clients ask again, at the next address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through. Nobody else cancels it: who goes away is noticed by other means."""
        is_begun = False

        async def tell(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await self._app(scope, receive, tell)
        except asyncio.CancelledError:
            if not is_begun and scope["type"] == "http":
                sentence = "This JobManager stops: ask another one, or ask again."
                await answer_error(send, HTTPStatus.SERVICE_UNAVAILABLE, sentence, [(b"connection", b"close")])
            raise


class BodyGuard:
    """Refuses bodies above the limit of their path (413), and more of them than fit into memory at once (429).

    Both are decided before a byte is read, by the declared length; a body that declares none counts as its limit.
    """

    def __init__(self, app: ASGIApp, content_length_max: int, *, budget: int = BODIES_BYTES_MAX) -> None:
        self._app = app
        self._content_length_max = content_length_max
        self._left = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what arrives."""
        limit = None if scope["type"] != "http" else self._limit_of(scope["method"], scope["path"])
        if limit is None:
            await self._app(scope, receive, send)
            return
        size = _declared_size(scope, limit)
        if size > limit:
            close = [(b"connection", b"close")]
            await answer_error(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(limit), close)
            return
        if size > self._left:
            sentence = "The bodies of other requests take all the memory there is for them: try again."
            headers = [(b"connection", b"close"), (b"retry-after", b"1")]
            await answer_error(send, HTTPStatus.TOO_MANY_REQUESTS, sentence, headers)
            return
        self._left -= size
        try:
            await self._app(scope, _counted(receive, limit), send)
        finally:
            self._left += size

    def _limit_of(self, method: str, path: str) -> int | None:
        """None: the body is streamed, and limited by blob.max-size."""
        path = path.removeprefix("/v1")
        if method == "PUT" and path.startswith("/blobs/"):
            return None
        return min(self._content_length_max, SUBMIT_BYTES_MAX if path == "/jobs" else SMALL_BYTES_MAX)


def _declared_size(scope: Scope, limit: int) -> int:
    headers = dict(scope["headers"])
    declared = headers.get(b"content-length")
    if declared is None:
        return limit if b"transfer-encoding" in headers else 0
    return int(declared) if declared.isdigit() else limit + 1


def _counted(receive: Receive, limit: int) -> Receive:
    seen, is_complete = 0, False

    async def counted() -> Message:
        nonlocal seen, is_complete
        if is_complete:
            return await receive()
        try:
            async with asyncio.timeout(BODY_CHUNK_SECONDS):
                message = await receive()
        except TimeoutError as error:
            sentence = f"Nothing of the request's body came for {BODY_CHUNK_SECONDS:g} seconds."
            raise BodyRefusedError(HTTPStatus.REQUEST_TIMEOUT, sentence) from error
        seen += len(message.get("body", b""))
        is_complete = not message.get("more_body", False)
        if seen > limit:
            raise BodyRefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(limit))
        return message

    return counted


def _too_large(limit: int) -> str:
    return (
        f"The request is larger than the {limit} bytes that this path takes (rest.server.max-content-length can only "
        "lower that): upload large files to /blobs first and refer to them."
    )


class BodyRefusedError(Exception):
    """A body that grew past its limit, or that did not come."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


async def answer_error(
    send: Send, status: HTTPStatus, sentence: str, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """Flink's error body, for what is answered before any handler."""
    body = json.dumps({"errors": [sentence]}).encode()
    length = (b"content-length", str(len(body)).encode())
    kind = (b"content-type", b"application/json; charset=UTF-8")
    await send({"type": "http.response.start", "status": int(status), "headers": [kind, length, *headers]})
    await send({"type": "http.response.body", "body": body})
