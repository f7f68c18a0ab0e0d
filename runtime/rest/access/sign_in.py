"""How a request shows its principal (R48): by the cluster's token, a principal's token or a JSON Web Token; else by
the certificate of its connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from starlette.requests import Request
from starlette.types import Scope

from runtime.common.errors import UnauthenticatedError
from runtime.rest.connections.tls import client_name_of
from runtime.security.json_web_tokens import JWT_LENGTH_MAX, JwtVerifier
from runtime.security.principals import ADMIN, Principal
from runtime.security.tokens import Token

SignIn = Callable[[Scope], Principal | None]
"""The head of a request -> its principal, None when it shows nothing that is known. It reads nothing but memory.

Raises UnauthenticatedError with what is wrong about what it shows, UnavailableError while that cannot be told.
"""

_PRINCIPAL = "flinklike.principal"
_STILL = "flinklike.still"
_BEARER = "flinklike.bearer"
_JWT_DOTS = 2


class KnownPrincipals(Protocol):
    """Who signs in by tokens and certificates of `flinklike tokens`: `Principals`."""

    def find(self, token: str, /) -> Principal | None:
        """The principal of a token. Raises UnavailableError while that cannot be told."""

    def check_not_ended(self, token: str, /) -> None:
        """Raises UnauthenticatedError for a token that has ended."""

    def find_by_certificate(self, name: str, /) -> Principal | None:
        """The principal of a certificate of that name. Raises as `find`."""

    def has(self, name: str, /) -> bool:
        """True for a name that signs in by those only."""


class NoPrincipals:
    """Implements `KnownPrincipals` where no store of a cluster is read: nobody signs in so."""

    def find(self, token: str, /) -> Principal | None:
        """None."""
        del token
        return None

    def check_not_ended(self, token: str, /) -> None:
        """No token has ended."""

    def find_by_certificate(self, name: str, /) -> Principal | None:
        """None."""
        del name
        return None

    def has(self, name: str, /) -> bool:
        """False."""
        del name
        return False


class TokenSignIn:
    """By tokens, and without a token by certificates. `jwts` None: JSON Web Tokens are not taken.

    Raises UnavailableError before the principals are known.
    """

    def __init__(self, token: Token, principals: KnownPrincipals, jwts: JwtVerifier | None = None) -> None:
        self._token = token
        self._principals = principals
        self._jwts = jwts

    def __call__(self, scope: Scope) -> Principal | None:
        """The principal of the cluster's token is the admin."""
        presented = bearer_of(scope)
        if not presented:
            return self._by_certificate(scope)
        if len(presented) > JWT_LENGTH_MAX:
            message = f"a token has at most {JWT_LENGTH_MAX} characters"
            raise UnauthenticatedError(message)
        if self._token.matches(presented):
            return ADMIN
        found = self._principals.find(presented)
        if found is None:
            self._principals.check_not_ended(presented)
        if found is None and self._jwts is not None and presented.count(".") == _JWT_DOTS:
            found = self._jwts.principal(presented)
            if self._principals.has(found.name):
                message = (
                    f"principal {found.name} is one of `flinklike tokens`, who signs in by those only, and not at all "
                    "when they are revoked"
                )
                raise UnauthenticatedError(message)
        return found

    def _by_certificate(self, scope: Scope) -> Principal | None:
        name = client_name_of(scope)
        if not name:
            return None
        found = self._principals.find_by_certificate(name)
        if found is None:
            message = (
                f"no principal signs in by the certificate of {name[:80]!r}: show a token, or have an admin run "
                "`flinklike tokens create <name> --role <role> --certificate <its name>`"
            )
            raise UnauthenticatedError(message)
        return found


def bearer_of(scope: Scope) -> str:
    """The token that a request shows, "" without one."""
    found: str | None = scope.get(_BEARER)
    if found is None:
        found = scope[_BEARER] = _find_bearer(scope)
    return found


def set_bearer(scope: Scope, token: str) -> None:
    """The request shows this token: in a form, or in the cookie of a page."""
    scope[_BEARER] = token


def _find_bearer(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.decode("latin-1").partition(" ")
            return str(token.strip()) if kind.lower() == "bearer" else ""
    return ""


def set_principal(scope: Scope, principal: Principal, still: Callable[[], None]) -> None:
    """For the handlers of this request. `still` raises what `check_still_signed_in` does."""
    scope[_PRINCIPAL] = principal
    scope[_STILL] = still


def check_still_signed_in(scope: Scope) -> None:
    """After a wait. Raises UnauthenticatedError when what the request shows has ended since its head came."""
    still = scope.get(_STILL)
    if still is not None:
        still()


def principal_of(request: Request) -> Principal:
    """The principal that a middleware has set, also without authentication. AssertionError where none has."""
    found = request.scope.get(_PRINCIPAL)
    assert isinstance(found, Principal), found
    return found
