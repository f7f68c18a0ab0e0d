"""The seal by which the leader knows a request of a stand-by, and believes what it says of the client (R48).

The stand-by sees the client's certificate and address, and sends them in headers; any client can send those. So the
stand-by seals them, with a key that is derived from the cluster's and that no client has, together with the request
that they belong to: a copied seal is valid for no other request. It covers neither the body, which is passed on while
it comes, nor a time, as clocks of hosts may differ.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.rest.access.audit import Audit
from runtime.rest.answers import answer_error
from runtime.security.cluster_key import ClusterKey

FORWARDED = b"x-flinklike-forwarded"
"""The address of the client. A request with this header is passed on no further, whatever the header says."""
FORWARDED_NAME = b"x-flinklike-client-name"
"""The name in the certificate of the client."""
SEAL = b"x-flinklike-forwarded-seal"

_SEALED = frozenset({FORWARDED, FORWARDED_NAME, b"authorization", b"cookie"})
_IS_SEALED = "flinklike.forwarded"
_PURPOSE = "requests that a stand-by passes on"

Headers = Iterable[tuple[bytes, bytes]]


class ForwardSeal:
    """Stand-bys make it, the leader verifies it."""

    def __init__(self, key: ClusterKey) -> None:
        self._key = key.derived(_PURPOSE)

    def __repr__(self) -> str:
        return "ForwardSeal(***)"

    def of(self, scope: Scope, headers: Headers) -> bytes:
        """The seal of the request of `scope` when it goes out with `headers`."""
        said = [(name, value) for name, value in headers if name in _SEALED]
        parts = [
            scope["method"].encode(),
            scope["raw_path"],
            scope["query_string"],
            *(one for pair in said for one in pair),
        ]
        digest = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.hexdigest().encode()

    def holds(self, scope: Scope) -> bool:
        """True if the request of `scope` has the seal that belongs to it."""
        shown = [value for name, value in scope["headers"] if name == SEAL]
        return len(shown) == 1 and hmac.compare_digest(shown[0], self.of(scope, scope["headers"]))


class ForwardSealMiddleware:
    """Refuses a request whose seal is not of the cluster's key; marks the others as sealed or not.

    `seal` None: there are no stand-bys, and no request counts as one of theirs.
    """

    def __init__(self, app: ASGIApp, seal: ForwardSeal | None, audit: Audit) -> None:
        self._app = app
        self._seal = seal
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "http" and any(name == SEAL for name, _ in scope["headers"]):
            if self._seal is None or not self._seal.holds(scope):
                address = scope["client"][0] if scope.get("client") else ""
                sentence = (
                    "This request says that a stand-by JobManager passes it on, and its seal is not of this cluster's "
                    "key: is run/cluster-key (security.cluster-key-file) the same on all hosts?"
                )
                self._audit.refuse(
                    "sign-in", principal="", address=address, object_=scope["path"], reason="forged seal"
                )
                await answer_error(send, HTTPStatus.FORBIDDEN, sentence, [(b"connection", b"close")])
                return
            scope[_IS_SEALED] = True
        await self._app(scope, receive, send)


def told_by_stand_by(scope: Scope, name: bytes) -> str:
    """What a stand-by says in that header, "" for a request that no stand-by has passed on."""
    if not scope.get(_IS_SEALED, False):
        return ""
    return next((value.decode("latin-1") for found, value in scope["headers"] if found == name), "")


def origin_of(scope: Scope) -> dict[str, str]:
    """The audit log's fields for the origin of a request. Behind a stand-by also the client of that."""
    address = scope["client"][0] if scope.get("client") else ""
    forwarded = told_by_stand_by(scope, FORWARDED)
    return {"address": address, "forwarded_for": forwarded} if forwarded else {"address": address}
