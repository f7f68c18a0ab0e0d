"""The cookie of a browser that has signed in: the token that it has shown, encrypted, for a day's work.

Nothing of it is kept here. Each JobManager of the cluster opens it with a key that is derived from the cluster's, and
signs in by the token within: so it ends when the token ends or is revoked, has the token's role, and outlives a
failover (R48). The GET of a page takes it as it is. Every other request takes it with the CSRF token in a header, which
only the pages of this cluster know: a page of a stranger has the browser send the cookie, and not the header.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterator
from itertools import islice

from cryptography.fernet import Fernet, InvalidToken
from starlette.types import Scope

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError
from runtime.security.cluster_key import ClusterKey

LIFE_SECONDS = 12 * 60 * 60
_VALUE_LENGTH_MAX = 4000
"""Browsers drop a cookie of more than 4096 bytes, with its name and attributes, and say nothing."""
_TRIED_MAX = 3
"""Of one name in one request: a program at another port of this host may have set cookies, too."""
_PURPOSE = "cookies of browsers"
CSRF_HEADER = b"x-csrf-token"


def is_page(path: str) -> bool:
    """True for the addresses that browsers open, and that change nothing."""
    return path in {"/", "/ui"} or path.startswith("/ui/")


class PageCookie:
    """Makes and opens cookies. Clusters of one host have cookies of different names, as cookies know no ports."""

    def __init__(self, key: ClusterKey, clock: Clock) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(key.derived(_PURPOSE)))
        self._name = f"flinklike-{key.derived('names of cookies').hex()[:12]}"
        self._csrf_key = key.derived("csrf tokens of browsers")
        self._clock = clock

    def __repr__(self) -> str:
        return "PageCookie(***)"

    def made(self, token: str, *, is_encrypted: bool) -> bytes:
        """The header's value that gives a browser the cookie. Raises InvalidInputError for a token that is too long.

        Not SameSite=Strict: a click on a link in Airflow's pages would then open the page without the cookie.
        """
        value = self._fernet.encrypt_at_time(token.encode(), self._now()).decode()
        if len(value) > _VALUE_LENGTH_MAX:
            message = "browsers keep no cookie for a token of that length: sign in with one of `flinklike tokens`"
            raise InvalidInputError(message)
        return self._header(value, LIFE_SECONDS, is_encrypted=is_encrypted)

    def removed(self, *, is_encrypted: bool) -> bytes:
        """The header's value that has a browser forget the cookie."""
        return self._header("", 0, is_encrypted=is_encrypted)

    def is_in(self, scope: Scope) -> bool:
        """True if the request has a cookie of that name, whatever it is worth."""
        return any(True for _ in self._values(scope))

    def token_in(self, scope: Scope) -> str:
        """The token in the cookie of a request; "" without one, and for one that is too old or of another cluster."""
        for value in self._values(scope):
            try:
                return self._fernet.decrypt_at_time(value, LIFE_SECONDS, self._now()).decode()
            except InvalidToken:
                continue
        return ""

    def sessions_in(self, scope: Scope) -> list[str]:
        """What tells the sign-ins of a request's cookies from all others, also those by the same token: digests.

        Of cookies that open nothing too: the browser shows them, and signs out of all.
        """
        return [hashlib.sha256(value).hexdigest() for value in self._values(scope)]

    def csrf_token(self, token: str) -> str:
        """What a page of who has signed in by that token sends with each request: all JobManagers know it."""
        return hmac.digest(self._csrf_key, token.encode(), "sha256").hex()

    def has_csrf_token(self, scope: Scope, token: str) -> bool:
        """True if the request has the CSRF token of who has signed in by that token, once."""
        shown = [value for name, value in scope["headers"] if name == CSRF_HEADER]
        return len(shown) == 1 and hmac.compare_digest(shown[0], self.csrf_token(token).encode())

    def _values(self, scope: Scope) -> Iterator[bytes]:
        head = self._name.encode() + b"="
        cookies = (value for name, value in scope["headers"] if name == b"cookie")
        parts = (part.strip() for cookie in cookies for part in cookie.split(b";"))
        found = (part[len(head) :] for part in parts if part.startswith(head))
        return (value for value in islice(found, _TRIED_MAX) if len(value) <= _VALUE_LENGTH_MAX)

    def _now(self) -> int:
        return self._clock.epoch_millis() // 1000

    def _header(self, value: str, life: int, *, is_encrypted: bool) -> bytes:
        secure = "; Secure" if is_encrypted else ""
        return f"{self._name}={value}; Max-Age={life}; Path=/; HttpOnly; SameSite=Lax{secure}".encode("ascii")
