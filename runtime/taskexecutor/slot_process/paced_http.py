"""Opens http(s) URLs whose servers have to keep pace: each byte of an answer is read within a bound of time.

A timeout of a socket ends a silence only. A server that sends one byte after the other would hold a slot for ever, in
the head of its answer as well as in the body. urllib reads through a stream of ours, which knows how long it waited,
and how much of what has come is the file. Redirects lead to http and https only; what comes with one is not read.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
import urllib.parse
import urllib.request
from typing import IO, Any, cast

GRACE_SECONDS = 60.0
BYTES_PER_SECOND_MIN = 16 * 1024
"""An answer is waited for as long as GRACE_SECONDS, and what has come so far at this rate."""

_BESIDE_BYTES_MAX = 8 << 20
_BESIDE_RATIO_MAX = 8
"""What is not body, whose end is awaited as well: heads, trailers, sizes of chunks (five bytes for a chunk of one)."""
_SCHEMES = frozenset({"http", "https"})


class RefusedRedirectError(Exception):
    """The answer leads to what is not followed."""


def open_url(url: str, timeout: float) -> http.client.HTTPResponse:
    """The answer to a GET. Raises what urllib does, RefusedRedirectError, and TimeoutError while it is read.

    `timeout`: seconds of silence.
    """
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Http(),
        _Https(),
        _Redirect(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return cast("http.client.HTTPResponse", opener.open(url, timeout=timeout))


class _PacedStream(io.RawIOBase):
    """The bytes of a connection. Only time in which it waits for them counts."""

    def __init__(self, source: io.RawIOBase, connection: socket.socket) -> None:
        self._source = source
        self._connection = connection
        self._silence = connection.gettimeout()
        self._seen, self._waited = 0, 0.0
        self.body_bytes = 0
        """How much of it is the file."""

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
        if self._seen > _BESIDE_BYTES_MAX + _BESIDE_RATIO_MAX * self.body_bytes:
            message = f"{self._seen} bytes have come, of which {self.body_bytes} are the file"
            raise TimeoutError(message)
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
        self._paced = _PacedStream(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self._paced)

    def read(self, amt: int | None = None) -> bytes:
        """As its base has it, a MiB at once at most: what is not yet returned is not known to be body."""
        data = super().read(amt)
        self._paced.body_bytes += len(data)
        return data


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


class _Redirect(urllib.request.HTTPRedirectHandler):
    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage
    ) -> Any:
        """As its base has it, which would read the body, however long that is."""
        fp.close()
        location = headers.get("location") or headers.get("uri") or ""
        target = urllib.parse.urlsplit(urllib.parse.urljoin(req.full_url, location))
        if target.scheme not in _SCHEMES:
            message = f"it leads to an address of {target.scheme[:20]}:, and only http: and https: are followed"
            raise RefusedRedirectError(message)
        if "@" in target.netloc:
            message = "it leads to an address with a user"
            raise RefusedRedirectError(message)
        return super().http_error_302(req, fp, code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302
