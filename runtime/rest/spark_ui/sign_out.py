"""Signing out of the dashboard closes Spark's pages that this sign-in has opened, at the leader (R58)."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Scope

from runtime.rest.access.page_cookie import PageCookie
from runtime.rest.access.sign_in import set_bearer
from runtime.rest.connections.body_limits import GRACE_SECONDS
from runtime.rest.context import RestContext
from runtime.rest.forwarding.forward_seal import FORWARDED

logger = logging.getLogger(__name__)

_FORM = b"sign-out=1"


class SparkPagesSignOut:
    """Implements `SignOut`. `app`: what passes a request on to the leader, for a stand-by."""

    def __init__(self, context: RestContext, app: ASGIApp) -> None:
        self._context = context
        self._app = app

    async def __call__(self, scope: Scope, cookie: PageCookie) -> None:
        """Here and at the leader. Where that one does not take it, a warning: the pages stay open for twelve hours."""
        ui = self._context.spark_ui
        sessions = cookie.sessions_in(scope)
        if ui is None or not sessions:
            return
        ui.views.end(sessions)  # also of a former leader, which may lead again
        if self._context.leader() is not None:
            return
        token = cookie.token_in(scope)
        if not token or not self._context.other_leader.value or any(name == FORWARDED for name, _ in scope["headers"]):
            return  # a sign-in that has ended shows no page; without a leader none is open
        status = await self._passed_on(scope, token)
        if status != HTTPStatus.SEE_OTHER:
            logger.warning("The leader has not taken a sign-out (%d): pages of Spark may stay open there", status)

    async def _passed_on(self, scope: Scope, token: str) -> int:
        """The status that the leader answers, 0 for none in time. The cookie travels under the seal."""
        found = 0
        asked = False
        length = (b"content-length", str(len(_FORM)).encode())
        of_body = {b"content-length", b"transfer-encoding"}
        headers = [*(one for one in scope["headers"] if one[0] not in of_body), length]
        there: Scope = {**scope, "headers": headers}
        set_bearer(there, token)

        async def receive() -> Message:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()  # it stays
            asked = True
            return {"type": "http.request", "body": _FORM, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal found
            found = message.get("status", found)

        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._app(there, receive, send)
        return found
