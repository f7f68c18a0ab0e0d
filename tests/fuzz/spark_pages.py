"""What a JVM says when it is asked for one of Spark's own pages (R58): code of jobs runs in it. And what a browser says
that opens them: nobody has signed in by then.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Sequence

from runtime.aio.clock import SystemClock
from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.rest.spark_ui.app import code_in
from runtime.rest.spark_ui.page_answers import BODY_BYTES_MAX, page_answer, unpacked
from runtime.rest.spark_ui.views import SparkUiViews
from runtime.taskexecutor.spark_protocol import pages
from tests.fuzz.surface import MIB, Surface

_VIEW = f"/{'a' * 32}"


def _begin() -> Callable[[bytes], object]:
    """On the way from the Spark host to a browser."""

    def feed(data: bytes) -> object:
        head, body = pages.read(base64.b64encode(data).decode())
        answer = page_answer(head, body, view=_VIEW, is_static=False)
        for name, value in answer.headers:
            assert not {10, 13} & {*name, *value}, (name, value)
            assert name != b"location" or value.startswith(f"{_VIEW}/".encode()), value
        return answer.status, len(unpacked(body)) <= BODY_BYTES_MAX

    return feed


def _said(head: bytes, body: bytes) -> bytes:
    return len(head).to_bytes(4, "big") + head + gzip.compress(body, mtime=0)


def _seeds() -> Sequence[bytes]:
    return [
        _said(b"HTTP/1.1 200 OK\r\nContent-Type: text/html;charset=utf-8\r\nContent-Length: 6\r\n\r\n", b"<html>"),
        _said(b"HTTP/1.1 302 Found\r\nLocation: http://spark/jobs/?id=1\r\n\r\n", b""),
        _said(b"HTTP/1.1 404 Not Found\r\nContent-Security-Policy: script-src 'self'\r\n\r\n", b"no"),
    ]


def _begin_codes() -> Callable[[bytes], object]:
    """The body of POST /open."""
    views = SparkUiViews(SystemClock())

    def feed(data: bytes) -> object:
        return views.take(code_in(data))

    return feed


def _codes() -> Sequence[bytes]:
    return [b'{"code":"Zm9v-_"}', b'{"code":7}', b"[]"]


SURFACES = (
    Surface(
        "spark-pages",
        _begin,
        _seeds,
        (UnavailableError, ValueError),
        tokens=(b"Location: ", b"http://spark", b"//", b"\r\n", b": ", b"HTTP/1.1 ", b"?"),
        peak_bytes=80 * MIB,
    ),
    Surface(
        "spark-page-codes",
        _begin_codes,
        _codes,
        (InvalidInputError,),
        tokens=(b'"code"', b"\\u", b"\\ud800", b"null", b"1e999", b"["),
    ),
)
