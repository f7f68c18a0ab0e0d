"""Receiving bounds the size and the time of an answer: the server may be broken, or not a cluster at all (R52)."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import httpx

from airflow_flinklike.client.protocol import Request, foreign_answer
from airflow_flinklike.exceptions import ForeignAnswerError

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""Twice what /jobs/:id of the largest job takes."""

AS_IT_IS = {"accept-encoding": "identity"}
"""The client decompresses nothing, so the size of an answer is that of the received bytes."""


_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def headers_of(request: Request) -> dict[str, str]:
    """The headers of a request."""
    headers = AS_IT_IS | ({"content-type": request.content_type} if request.body is not None else {})
    return headers | {"traceparent": request.traceparent} if is_traceparent(request.traceparent) else headers


def is_traceparent(text: str) -> bool:
    """True for what W3C Trace Context lets a client send on. All else is nobody's span, and is not sent."""
    return _TRACEPARENT.fullmatch(text) is not None


class Receiving:
    """The body of one answer, piece by piece. The whole body may take `request.timeout` seconds."""

    def __init__(self, request: Request, address: str, headers: Mapping[str, str]) -> None:
        """Raises ForeignAnswerError for a compressed answer, which the request has excluded."""
        self._request = request
        self._asked = f"{address}{request.path}"
        if headers.get("content-encoding", "identity") != "identity":
            raise self._refused("packed")
        self._deadline = time.monotonic() + request.timeout  # noqa: TID251 - a client has no other clock
        self._pieces: list[bytes] = []
        self._size = 0

    def take(self, piece: bytes) -> None:
        """Add a piece. Raises ForeignAnswerError above ANSWER_BYTES_MAX, httpx.ReadTimeout after the deadline."""
        self._size += len(piece)
        if self._size > ANSWER_BYTES_MAX:
            raise self._refused(f"larger than {ANSWER_BYTES_MAX >> 20} MiB")
        self._pieces.append(piece)
        if time.monotonic() > self._deadline:  # noqa: TID251 - as above
            message = f"the answer was not complete after {self._request.timeout:g} s"
            raise httpx.ReadTimeout(message)

    def _refused(self, what: str) -> ForeignAnswerError:
        return foreign_answer(self._asked, f"it is {what}")

    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self._pieces)
