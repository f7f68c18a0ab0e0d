"""What every request passes before a handler sees it: the token, and the limit on its body. Plain ASGI, no copies."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

TokenCheck = Callable[[str], bool]
"""bearer token -> whether it is the cluster's."""


class BearerGuard:
    """Refuses requests without the cluster's token (401). Pages under /ui take it as `?token=` too."""

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
            "The token is in the file that security.token-file names (default run/token)."
        )
        await _answer(send, HTTPStatus.UNAUTHORIZED, sentence, [(b"www-authenticate", b"Bearer")])


def _bearer(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.decode("latin-1").partition(" " if b" " in value else ":")
            return str(token.strip()) if kind.strip().lower() == "bearer" else ""
    if "/ui/" in scope["path"]:
        query = scope["query_string"].decode("latin-1")
        tokens = [part[len("token=") :] for part in query.split("&") if part.startswith("token=")]
        return tokens[0] if tokens else ""
    return ""


class BodyLimit:
    """Refuses bodies above the limit (413), by their declared length or as soon as they have grown past it."""

    def __init__(self, app: ASGIApp, size_max: int, unlimited_prefix: str) -> None:
        self._app = app
        self._size_max = size_max
        self._unlimited_prefix = unlimited_prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what arrives."""
        if scope["type"] != "http" or scope["path"].removeprefix("/v1").startswith(self._unlimited_prefix):
            await self._app(scope, receive, send)
            return
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not declared.isdigit() or int(declared) > self._size_max:
            await _answer(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, self._sentence(), [(b"connection", b"close")])
            return
        await self._app(scope, self._counted(receive), send)

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._size_max:
                raise BodyTooLargeError(self._sentence())
            return message

        return counted

    def _sentence(self) -> str:
        return (
            f"The request is larger than {self._size_max} bytes (rest.server.max-content-length): "
            "upload large files to /blobs first and refer to them."
        )


class BodyTooLargeError(Exception):
    """A body without a declared length grew past the limit."""


async def _answer(send: Send, status: HTTPStatus, sentence: str, headers: list[tuple[bytes, bytes]]) -> None:
    body = json.dumps({"errors": [sentence]}).encode()
    length = (b"content-length", str(len(body)).encode())
    kind = (b"content-type", b"application/json; charset=UTF-8")
    await send({"type": "http.response.start", "status": int(status), "headers": [kind, length, *headers]})
    await send({"type": "http.response.body", "body": body})
