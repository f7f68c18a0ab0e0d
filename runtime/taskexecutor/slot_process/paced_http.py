"""Opens http(s) URLs whose servers have to keep pace: each byte of an answer is read within a bound of time.

A timeout of a socket ends a silence only. A server that sends one byte after the other would hold a slot for ever, in
the head of its answer as well as in the body. urllib reads through a stream of ours, which knows how long it waited.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
import urllib.request
from typing import Any, cast

GRACE_SECONDS = 60.0
BYTES_PER_SECOND_MIN = 16 * 1024
"""An answer is waited for as long as GRACE_SECONDS, and what has come so far at this rate."""


def open_url(url: str, timeout: float) -> http.client.HTTPResponse:
    """The answer to a GET. Raises what urllib does, and TimeoutError while it is read.

    `timeout`: seconds of silence.
    """
    opener = urllib.request.build_opener(_Http, _Https)
    return cast("http.client.HTTPResponse", opener.open(url, timeout=timeout))


class _PacedStream(io.RawIOBase):
    """The bytes of a connection. Only time in which it waits for them counts."""

    def __init__(self, source: io.RawIOBase, connection: socket.socket) -> None:
        self._source = source
        self._connection = connection
        self._silence = connection.gettimeout()
        self._seen, self._waited = 0, 0.0

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Bytes of the next piece. Raises TimeoutError."""
        patience = GRACE_SECONDS + self._seen / BYTES_PER_SECOND_MIN - self._waited
        silence = self._silence if self._silence is not None else patience
        if patience <= 0:
            raise self._too_slow()
        self._connection.settimeout(min(patience, silence))
        asked = time.monotonic()  # noqa: TID251 - a slot process has no loop
        try:
            count = self._source.readinto(buffer)
        except TimeoutError as error:
            if patience > silence:
                raise
            raise self._too_slow() from error
        finally:
            self._waited += time.monotonic() - asked  # noqa: TID251 - the same
        self._seen += count or 0
        return count

    def _too_slow(self) -> TimeoutError:
        return TimeoutError(f"it comes too slowly, {self._seen} bytes in {self._waited:.0f} seconds")

    def close(self) -> None:
        """The connection, too."""
        self._source.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_PacedStream(raw, sock))


class _Connection(http.client.HTTPConnection):
    response_class: type[http.client.HTTPResponse] = _Answer


class _SecureConnection(http.client.HTTPSConnection):
    response_class: type[http.client.HTTPResponse] = _Answer


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """As its base has it, over a paced connection."""
        return self.do_open(_Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """As its base has it, over a paced connection."""
        return self.do_open(_SecureConnection, req)
