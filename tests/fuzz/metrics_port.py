"""What anybody sends to the port of metrics (D-110): one answer, and the end of the connection."""

from __future__ import annotations

import re
from asyncio import Transport
from collections.abc import Callable, Sequence
from typing import cast

from runtime.metrics.http_port import HEAD_BYTES_MAX, Answered, MetricsPort, bind_port
from tests.fuzz.surface import Surface

_TEXT = b"flinklike_jobs 1\n"
_HEAD = re.compile(rb"HTTP/1\.1 (200|400|404|405|431) [A-Za-z ]+\r\n(?:[a-z-]+: [^\r\n]+\r\n)+\r\n")
_PIECE = 1000


class _Heard:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        """Keep it."""
        assert not self.is_closed
        self.written += data

    def close(self) -> None:
        """The end."""
        self.is_closed = True


def _begin() -> Callable[[bytes], object]:
    port = MetricsPort(bind_port("127.0.0.1", [0]), lambda: _TEXT, "text/plain")

    def feed(data: bytes) -> object:
        heard = _Heard()
        connection = Answered(port.answer)
        for start in range(0, len(data), _PIECE):
            connection.hear(data[start : start + _PIECE], cast("Transport", heard))
            if heard.is_closed:
                break
        assert heard.is_closed or len(data) <= HEAD_BYTES_MAX, "it waits for more without end"
        assert not heard.written or _HEAD.match(heard.written), heard.written[:200]
        return heard.written[:12]

    return feed


def _seeds() -> Sequence[bytes]:
    return [
        b"GET /metrics HTTP/1.1\r\nhost: 127.0.0.1:9250\r\naccept: text/plain;version=0.0.4\r\n\r\n",
        b"HEAD /metrics?a=b HTTP/1.0\n\n",
        b"POST /metrics HTTP/1.1\r\ncontent-length: 4\r\n\r\nabcd",
        b"GET / HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n",
    ]


SURFACES = (
    Surface("metrics-port", _begin, _seeds, (), tokens=(b"\r\n\r\n", b"\n\n", b" HTTP/1.1", b"/metrics", b"\x00")),
)
