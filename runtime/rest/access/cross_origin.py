"""Refuses what a page of another origin may not do: submit, cancel, or read under a host name of its own (R41).

A browser sends requests of any page to any address, by three rules that are used here: it names the page's
origin in every request that may change something; it asks before it sends JSON, or a header of the page's, to
another origin, and is refused; and it names in `Host` the name under which the page has found this address,
which need not be a name of this cluster (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import NamedTuple

from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.rest.access.audit import Audit
from runtime.rest.access.page_cookie import is_page
from runtime.rest.answers import answer_error
from runtime.rest.forwarding.forward_seal import FORWARDED, origin_of, told_by_stand_by

ANY_HOST = "*"
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_BY_GET = "/yarn-cancel"
_FORMS = frozenset({"/jobs", "/jars/upload"})
"""Paths that take multipart forms. A browser names the origin of the page that sends one."""
_OWN_HEADER = b"x-requested-with"
_LOCAL_NAME = "localhost"
_PLACE = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_-][a-z0-9._-]*))(?::(?P<port>[0-9]{1,5}))?")
_PORTS = {"http": "80", "https": "443"}


class _Place(NamedTuple):
    """What `Host` and an origin name: an address without brackets, a name in small letters; "" without a port."""

    name: str
    port: str

    def with_port(self, scheme: str) -> _Place:
        return _Place(self.name, self.port or _PORTS.get(scheme, ""))


class CrossOriginMiddleware:
    """Refuses what only a browser sends. `hosts`: names of this endpoint beside its addresses.

    `allowed`: further names, whose pages may change something; `host`, `host:port`, or ANY_HOST as a name of this
    endpoint. `checks_host`: without authentication a request for a host name that is none of these may come from a
    page of a stranger.
    """

    def __init__(
        self, app: ASGIApp, hosts: Collection[str], allowed: Collection[str], audit: Audit, *, checks_host: bool
    ) -> None:
        self._app = app
        self._audit = audit
        self._allowed = frozenset(_place_allowed(one.lower()) for one in allowed)
        self._hosts = frozenset(host.lower() for host in hosts) | {place.name for place in self._allowed}
        self._checks_host = checks_host and ANY_HOST not in self._hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        status, sentence = refusal
        tried = f"{scope['method']} {scope['path']}"
        self._audit.refuse(tried, principal="", **origin_of(scope), object_="", reason=sentence)
        await answer_error(send, status, sentence, [(b"connection", b"close")])

    def _refusal(self, scope: Scope) -> tuple[HTTPStatus, str] | None:
        if told_by_stand_by(scope, FORWARDED):
            return None  # under its seal (R48): the stand-by has checked
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        hosts = [_text(value) for name, value in scope["headers"] if name == b"host"]
        if len(hosts) > 1:
            return HTTPStatus.BAD_REQUEST, "This request has several headers Host: send one."
        host = _place(hosts[0]) if hosts else None
        if self._checks_host and (host is None or not self._is_ours(host.name)):
            told = host.name if host else next(iter(hosts), "")
            return HTTPStatus.FORBIDDEN, (
                f"This request is for the host {told[:80]!r}, which is not this cluster's: name it in "
                "rest.allowed-hosts if it is."
            )
        if scope["method"] in _CHANGING:
            return self._origin_refusal(scope, headers, host) or _body_refusal(scope, headers)
        if scope["path"].endswith(_BY_GET) and not _is_deliberate(headers):
            return HTTPStatus.FORBIDDEN, (
                "A GET that cancels is taken with the cluster's token in the header Authorization, or with the header "
                "X-Requested-With, which no page of another origin can send: better is PATCH /jobs/<id>."
            )
        return None

    def _is_ours(self, name: str) -> bool:
        """An address in numbers is no name that a stranger could have made to lead here."""
        return name == _LOCAL_NAME or name in self._hosts or _is_address(name)

    def _origin_refusal(
        self, scope: Scope, headers: Mapping[bytes, bytes], host: _Place | None
    ) -> tuple[HTTPStatus, str] | None:
        """An origin is a scheme, a name and a port: another port of this host is another origin."""
        origin = headers.get(b"origin")
        if origin is None:
            return None
        scheme, _, rest = _text(origin).partition("://")
        place = _place(rest)
        if place is not None and scheme in _PORTS:
            place = place.with_port(scheme)
            is_own = host is not None and scheme == scope["scheme"] and place == host.with_port(scheme)
            if is_own or any(place == one.with_port(scheme) for one in self._allowed):
                return None
        return HTTPStatus.FORBIDDEN, (
            f"This request comes from a page of {_text(origin)[:80]!r}, which is another origin: nothing here is "
            "changed for it. Name its host, and its port, in rest.allowed-hosts if it is a proxy of this cluster."
        )


def has_body(headers: Mapping[bytes, bytes]) -> bool:
    """True if a body follows this head."""
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def _body_refusal(scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[HTTPStatus, str] | None:
    """A page may send forms and plain text anywhere, JSON to its own origin only. (To PUT it has to ask.)"""
    kind = _text(headers.get(b"content-type", b"")).partition(";")[0].strip()
    takes_form = scope["path"].removeprefix("/v1") in _FORMS
    if not has_body(headers) or scope["method"] == "PUT" or kind == "application/json":
        return None
    if kind == "application/x-www-form-urlencoded" and is_page(scope["path"]):
        return None  # who signs in there; the origin of the form was looked at
    if kind == "multipart/form-data" and takes_form:
        return None  # that of a job is refused by its handler, with a message for Flink's own client
    return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, (
        f"A body of the type {kind[:80]!r} is not taken: send JSON with the header 'Content-Type: application/json'."
    )


def _is_deliberate(headers: Mapping[bytes, bytes]) -> bool:
    """Not a link or a picture of some page: their requests have no such headers, but for a password of a proxy."""
    return _OWN_HEADER in headers or _text(headers.get(b"authorization", b"")).startswith("bearer ")


def _text(header: bytes) -> str:
    return header.decode("latin-1").strip().lower()


def _place(text: str) -> _Place | None:
    """None for a text that is no host."""
    found = _PLACE.fullmatch(text)
    if found is None or (found["address"] and not _is_address(found["address"])):
        return None
    return _Place(found["address"] or found["name"].rstrip("."), found["port"] or "")


def _place_allowed(text: str) -> _Place:
    """As the option has it: an address of IPv6 may stand there without brackets, as it has no port then."""
    return _place(text) or _Place(text, "")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
