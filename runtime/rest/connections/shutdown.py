"""The answer to requests that the end of this process cuts off. Plain ASGI middleware."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.rest.answers import answer_error


class ShutdownMiddleware:
    """Answers requests that the end of this process cuts off with 503: clients ask again, at the next address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through. Only the end of the process cancels it: a client that disconnects does not."""
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
