"""Sign-in of each request before a handler sees it. Plain ASGI middleware."""

from __future__ import annotations

import math
from functools import partial
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.common.errors import BackpressureError, UnauthenticatedError, UnavailableError
from runtime.rest.access.audit import Audit
from runtime.rest.access.cross_origin import has_body
from runtime.rest.access.principal_limits import PrincipalLimits
from runtime.rest.access.roles import role_for
from runtime.rest.access.sign_in import SignIn, bearer_of, check_still_signed_in, set_principal
from runtime.rest.answers import answer_error
from runtime.rest.connections.tls import told_name
from runtime.rest.forwarding.forward_seal import origin_of
from runtime.security.principals import ANYBODY, Principal


class StrangerError(UnauthenticatedError):
    """A request that shows nobody. `reason`: what is wrong about what it shows, "" where it shows nothing."""

    def __init__(self, sentence: str, reason: str = "") -> None:
        super().__init__(sentence)
        self.reason = reason


class SignInDesk:
    """Finds the principal of a request, and has the audit log tell who is refused."""

    def __init__(self, sign_in: SignIn, audit: Audit) -> None:
        self._sign_in = sign_in
        self._audit = audit

    def principal(self, scope: Scope) -> Principal:
        """Raises StrangerError with a sentence for the client, UnavailableError while nobody can be told."""
        try:
            found = self._sign_in(scope)
        except UnauthenticatedError as error:
            self._refuse(scope, str(error))
            sentence = f"Not signed in: {error}.{_role(scope)}"
            raise StrangerError(sentence, str(error)) from error
        if found is not None:
            return found
        is_shown = bool(bearer_of(scope))
        self._refuse(scope, f"its token {_NOT_KNOWN}" if is_shown else "it shows no token")
        reason = f"the token {_NOT_KNOWN}" if is_shown else ""
        raise StrangerError(_how_to_sign_in(scope, is_shown=is_shown), reason)

    def check_again(self, scope: Scope, principal: Principal) -> None:
        """Raises UnauthenticatedError when what the request shows is not that principal any more."""
        try:
            found, reason = self._sign_in(scope), "what this request shows ended while it ran"
        except UnauthenticatedError as error:
            found, reason = None, str(error)
        if found != principal:
            self._refuse(scope, reason, principal=principal.name)
            message = f"Not signed in any more: {reason}"
            raise UnauthenticatedError(message)

    def tell(self, scope: Scope, principal: Principal) -> None:
        """For the audit log: a request of that principal."""
        self._audit.sign_in(principal.name, principal.via, more=partial(told_name, scope), **origin_of(scope))

    def _refuse(self, scope: Scope, reason: str, *, principal: str = "") -> None:
        told = {"reason": reason, **origin_of(scope), **told_name(scope)}
        self._audit.refuse("sign-in", principal=principal, object_=scope["path"], **told)


class SignInMiddleware:
    """Refuses requests without a known principal (401) or above its limits (429); sets the principal for handlers.

    A handler that has waited calls `check_still_signed_in`.
    """

    def __init__(self, app: ASGIApp, desk: SignInDesk, limits: PrincipalLimits, audit: Audit) -> None:
        self._app = app
        self._desk = desk
        self._limits = limits
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            principal = self._desk.principal(scope)
        except UnavailableError as error:
            await answer_error(send, HTTPStatus.SERVICE_UNAVAILABLE, str(error), [(b"retry-after", b"1")])
            return
        except StrangerError as error:
            await _answer_stranger(scope, send, error)
            return
        try:
            self._limits.begin(principal.name)
        except BackpressureError as error:
            self._audit.refuse("request", principal=principal.name, **origin_of(scope), reason=str(error))
            after = str(math.ceil(error.retry_after)).encode()
            await answer_error(send, HTTPStatus.TOO_MANY_REQUESTS, str(error), [(b"retry-after", after)])
            return
        try:
            self._desk.tell(scope, principal)
            set_principal(scope, principal, partial(self._desk.check_again, scope, principal))
            await self._app(scope, receive, send)
        finally:
            self._limits.end(principal.name)


def _how_to_sign_in(scope: Scope, *, is_shown: bool) -> str:
    shown = f"The token that this request shows {_NOT_KNOWN}. " if is_shown else ""
    return (
        f"{shown}This cluster requires its token, one that `flinklike tokens` has made and that has not ended, "
        "a JWT where security.jwt.issuer is set, or a client certificate that `flinklike tokens` has given to "
        "somebody. "
        "Send the header 'Authorization: Bearer <token>'. "
        "The cluster's is in the file that security.token-file names (default run/token). "
        f"A browser opens /ui, which asks for it.{_role(scope)}"
    )


async def _answer_stranger(scope: Scope, send: Send, error: StrangerError) -> None:
    """Refuse and close: each further request takes a new connection, of which a turn of the loop accepts few (R41).

    The connection stays open where a body comes: a client reads the refusal only after it has sent the body.
    """
    headers = [(b"www-authenticate", b'Bearer error="invalid_token"' if error.reason else b"Bearer")]
    if not has_body(dict(scope["headers"])):
        headers.append((b"connection", b"close"))
    await answer_error(send, HTTPStatus.UNAUTHORIZED, str(error), headers)


class AnonymousMiddleware:
    """Without authentication every request is the admin's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through."""
        set_principal(scope, ANYBODY, _goes_on)
        await self._app(scope, receive, send)


def _goes_on() -> None:
    """Without a sign-in there is none that could end."""


_NOT_KNOWN = "is none of this cluster's, has ended, or was revoked"


def _role(scope: Scope) -> str:
    role = role_for(scope["method"], scope["path"])
    return f" This request takes the role {role}, or a higher one." if role else ""


class SignedInBodyMiddleware:
    """Checks the sign-in again with each piece of a body: a body may take long, and is acted upon when whole (R48).

    It is inside of the forwarding: the leader is the first that knows of tokens that end.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through. Its reader gets UnauthenticatedError in place of a piece."""

        async def ask() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                check_still_signed_in(scope)
            return message

        await self._app(scope, ask, send)
