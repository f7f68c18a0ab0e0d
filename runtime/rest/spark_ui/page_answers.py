"""What a JVM says when it is asked for a page (R58, R52): it runs code of jobs, so that it may say anything.

Of its head these are kept: the status, the kind of the body, a policy that forbids more, and a place within the view.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from runtime.common.errors import UnavailableError

BODY_BYTES_MAX = 32 << 20
_HEAD_LINES_MAX = 100
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: .*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):[ \t]*([\t !-~]{0,4000})")
_PATH = re.compile(r"/[!-~]*")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TAKEN = frozenset({200, 400, 403, 404, 405, 500, 503}) | _REDIRECTS
_HOST = "spark"
"""What the JVM is told that its host is called (`jvm/SparkPages.java`)."""

_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "object-src 'none'; worker-src 'none'; frame-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
"""Spark's pages have scripts within; a policy that the JVM has sent as well forbids more."""


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """Of a page. `body` is packed by gzip."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


def page_answer(head: bytes, body: bytes, *, view: str, is_static: bool) -> PageAnswer:
    """The answer for a browser. Raises UnavailableError for a head that is none of HTTP.

    `view`: the path of the view. `is_static`: a file of Spark's, which the browser may keep.
    """
    lines = head.rstrip(b"\r\n").split(b"\r\n")
    found = _STATUS.fullmatch(lines[0]) if len(lines) <= _HEAD_LINES_MAX else None
    fields = [_FIELD.fullmatch(line) for line in lines[1:]]
    if found is None or int(found[1]) not in _TAKEN or None in fields:
        message = "what its JVM says is no page of Spark's"
        raise UnavailableError(message)
    told = {field[1].lower(): field[2].strip() for field in fields if field is not None}
    status = int(found[1])
    headers = [
        (b"content-type", told.get(b"content-type", b"text/plain")),
        (b"content-security-policy", _POLICY.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cache-control", b"private, max-age=3600" if is_static and status == HTTPStatus.OK else b"no-store"),
    ]
    if policy := told.get(b"content-security-policy"):
        headers.append((b"content-security-policy", policy))
    if status in _REDIRECTS:
        headers.append((b"location", _place(told.get(b"location", b"").decode("ascii"), view).encode("ascii")))
    return PageAnswer(status, headers, body)


def _place(location: str, view: str) -> str:
    """Within the view, wherever the JVM wants to lead."""
    try:
        parts = urlsplit(location)
        is_here = not parts.netloc or parts.hostname == _HOST
    except ValueError:
        return f"{view}/jobs/"
    query = f"?{parts.query}" if parts.query else ""
    if not is_here or not _PATH.fullmatch(f"{parts.path}{query}") or parts.path.startswith("//"):
        return f"{view}/jobs/"
    return f"{'' if parts.path.startswith(f'{view}/') else view}{parts.path}{query}"


def unpacked(body: bytes) -> bytes:
    """For a client that does not unpack. Raises UnavailableError for what is not packed, or too much."""
    reader = zlib.decompressobj(wbits=31)
    try:
        plain = reader.decompress(body, BODY_BYTES_MAX)
    except zlib.error as error:
        message = "what its JVM says is not packed by gzip"
        raise UnavailableError(message) from error
    if reader.unconsumed_tail or not reader.eof:
        message = f"the page is cut off, or has more than {BODY_BYTES_MAX >> 20} MiB"
        raise UnavailableError(message)
    return plain
