"""Limits of REST's connections, before a token is asked for: how many there are, and how long one may stay silent.

uvicorn limits neither. Here a connection either waits (for a head, or for the rest of one), or a request of it runs.
No client depends on one that waits: the oldest gives its place to a client that comes, so that a flood of silent
connections costs the flood, not other clients. One with a running request (a long poll) is never closed for another
(R41).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol, cast

from runtime.logs.rate_limit import LogRateLimit
from runtime.rest.connections.tls import with_shown
from runtime.rest.connections.upgrades import OffersIgnored
from runtime.security.descriptors import connections_of_one_port

if TYPE_CHECKING:
    import ssl

    from uvicorn.protocols.http.h11_impl import H11Protocol as HttpProtocol
else:
    from uvicorn.protocols.http.auto import AutoHTTPProtocol as HttpProtocol

logger = logging.getLogger(__name__)

HEAD_SECONDS = 10.0
"""From the connection, or from the first byte of a further request, to the end of its head."""
HEAD_BYTES_MAX = 64 * 1024
HEARD_OUT_BYTES_MAX, HEARD_OUT_SECONDS = 1 << 20, 2.0
"""So much, and so long, is read of a head that is refused for its size: a browser keeps 180 cookies of 4 KiB."""
UNREAD_BYTES_MIN = 160 * 1024
"""What has to come each HEAD_SECONDS of a body that its request has not waited for: else the connection is closed."""
PIECE_BYTES = 16 * 1024
"""So much is parsed at once: one of uvicorn's parsers makes objects for each request in it, also a stranger's."""
PIPELINED_MAX = 4
"""Requests that a client may send before it has read the answer to the first; none that we know sends two."""
STALLED_SECONDS = 60.0
"""A client that takes nothing of its answer for this long counts as lost."""
CONNECTIONS_MAX = 16_384

_HANDSHAKE_BEGINS = b"\x16\x03"


def answer(status: str, sentence: str, *, more: str = "", is_page: bool = False) -> bytes:
    """A whole answer on a connection without a request, and its end. `more`: further lines of its head."""
    kind = f"content-type: {'text/html' if is_page else 'application/json'}; charset=UTF-8"
    shown = _PAGE.format(status=status, sentence=sentence) if is_page else f'{{"errors":["{sentence}"]}}'
    length = f"content-length: {len(shown.encode())}"
    return f"HTTP/1.1 {status}\r\n{kind}\r\n{length}\r\n{more}connection: close\r\n\r\n{shown}".encode()


_PAGE = (
    '<!doctype html><html lang="en"><title>{status}</title><h1>{status}</h1><p>{sentence}</p>'
    '<p><a href="">Try again</a></p></html>'
)
_LARGE = "431 Request Header Fields Too Large"
_IN_A_BROWSER = "In a browser: clear the cookies of this host."
_TOO_LARGE = answer(_LARGE, f"The head of the request is larger than {HEAD_BYTES_MAX} bytes. {_IN_A_BROWSER}")
_CLEAR = 'clear-site-data: "cookies"\r\n'
_COOKIES = (
    "This host has so many cookies in your browser that no request fits, also those of other ports of the host. "
    "The browser was told to clear them, which it does over https and on this machine: try again, and sign in. "
    f"If it has not: {_IN_A_BROWSER[14:]}"
)
_COOKIES_BEGIN_BYTES = 16 * 1024
"""Where cookies begin so early, they are what the head is too large for: a long address, as of a link of a stranger,
stands in front of them."""
_TOO_MANY_COOKIES = {is_page: answer(_LARGE, _COOKIES, more=_CLEAR, is_page=is_page) for is_page in (False, True)}
_TOO_SLOW = answer("408 Request Timeout", f"The head of the request did not come within {HEAD_SECONDS:g} seconds.")
_NO_TLS = answer("400 Bad Request", "This port speaks no TLS: ask it by http:// (security.ssl.rest.enabled).")


def connections_max() -> int:
    """So that etcd, gRPC and files keep their descriptors."""
    return connections_of_one_port(CONNECTIONS_MAX)


class Connection(Protocol):
    """A connection that is counted."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    @property
    def is_sending(self) -> bool:
        """True while the client has not taken all of its answer."""


class Handshaking(Connection, Protocol):
    """A connection that is not encrypted yet: `Handshake`."""

    def leave(self) -> None:
        """Give the connection's place back."""


class Connections:
    """All connections of one endpoint. A peer, which is an address, has at most `peer_max` of `total_max`."""

    def __init__(self, total_max: int, peer_max: int) -> None:
        self.total_max = total_max
        self.peer_max = min(peer_max, total_max)
        self._peers: dict[Connection, str] = {}
        self._counts: Counter[str] = Counter()
        self._waiting: dict[Connection, None] = {}
        self._closed = LogRateLimit()

    def __len__(self) -> int:
        return len(self._peers)

    def admit(self, connection: Connection, peer: str) -> bool:
        """Count a new connection, which waits. False without a free place, and without a connection to close for it."""
        is_full = self._counts[peer] >= self.peer_max and not self._close_oldest(peer)
        if is_full or (len(self._peers) >= self.total_max and not self._close_oldest(None)):
            self._tell(connection.loop.time())
            return False
        self._peers[connection] = peer
        self._counts[peer] += 1
        self._waiting[connection] = None
        return True

    def runs(self, connection: Connection) -> None:
        """Note that a request of the connection has begun."""
        self._waiting.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        """Note that the request of the connection is answered. It is the last to be closed for others."""
        if connection in self._peers:
            self._waiting[connection] = None

    def forget(self, connection: Connection) -> None:
        """Note that the connection is closed. Idempotent."""
        self._waiting.pop(connection, None)
        peer = self._peers.pop(connection, None)
        if peer is not None:
            self._counts[peer] -= 1
            if not self._counts[peer]:
                del self._counts[peer]

    def _close_oldest(self, peer: str | None) -> bool:
        silent = (one for one in self._waiting if not one.is_sending)
        oldest = next((one for one in silent if peer is None or self._peers[one] == peer), None)
        if oldest is None:
            return False
        self._tell(oldest.loop.time())
        self.forget(oldest)
        oldest.transport.abort()
        return True

    def _tell(self, now: float) -> None:
        if closed := self._closed.take(now):
            logger.warning(
                "REST has %d connections of %d: since this was last said, %d that waited or came were closed",
                len(self._peers),
                self.total_max,
                closed,
            )


class LimitedProtocol(HttpProtocol):
    """uvicorn's, for one connection that has to come to the point. Subclasses say among which `places`."""

    places: Connections
    handshake: Handshaking | None = None
    """By which it was encrypted."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        if hasattr(self, "parser"):  # httptools, which is not everywhere; h11 ignores offers by itself
            self.parser = OffersIgnored(self)
        self._timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._has_spoken = False
        self._unread = 0
        self._had_unread = False
        self._is_greedy = False
        self._has_cookies = False
        self._wants_page = False
        self._left_to_hear: int | None = None
        """Of a head that was refused; None before."""

    @property
    def is_sending(self) -> bool:
        """True while the client has not taken all of its answer."""
        return self._unsent() > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take it, or close it."""
        super().connection_made(cast("asyncio.Transport", transport))
        if self.handshake is not None:
            self.handshake.leave()
            tls: ssl.SSLObject = transport.get_extra_info("ssl_object")
            if certificate := tls.getpeercert(binary_form=True):
                self.app_state = with_shown(self.app_state, certificate)
        if self.places.admit(self, self.client[0] if self.client else ""):
            self._wait()
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.places.forget(self)
        self._stop_waiting()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass it to the parser, and look whether a request runs then."""
        if self._left_to_hear is not None:
            self._hear_out(len(data))
            return
        is_first, self._has_spoken = not self._has_spoken, True
        if is_first and data.startswith(_HANDSHAKE_BEGINS) and self.handshake is None:
            self.logger.warning("A client of REST speaks TLS, and security.ssl.rest.enabled is false here.")
            self._refuse(_NO_TLS)
            return
        for begin in range(0, len(data), PIECE_BYTES):
            super().data_received(data if len(data) <= PIECE_BYTES else data[begin : begin + PIECE_BYTES])
            if self.transport.is_closing():
                return
        if self._is_running():
            self.places.runs(self)
            self._stop_waiting()
            return
        self._look_for_cookies(data)
        self._unread += len(data)
        if self._unread > HEAD_BYTES_MAX and not self._had_unread:
            self._refuse_while_it_speaks(_TOO_MANY_COOKIES[self._wants_page] if self._has_cookies else _TOO_LARGE)
        elif self._timer is None:
            self._wait()

    def _look_for_cookies(self, data: bytes) -> None:
        begin = data[: max(0, _COOKIES_BEGIN_BYTES - self._unread)].lower()
        self._has_cookies |= b"\ncookie:" in begin
        self._wants_page |= b"text/html" in begin

    def on_message_begin(self) -> None:
        """A further head begins, also behind a body that no handler has read. (h11 bounds the head by itself.)"""
        # One piece may hold hundreds of requests, each of which costs more than to refuse it.
        if len(getattr(self, "pipeline", ())) > PIPELINED_MAX:
            self._is_greedy = True
            message = "too many requests at once"
            raise ValueError(message)  # by which the parser stops; it ends in `send_400_response`
        self._unread, self._had_unread = 0, False
        self._has_cookies = self._wants_page = False
        begin = getattr(super(), "on_message_begin", None)
        if begin is not None:
            begin()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP. After too many requests there is no answer: earlier ones are still to come."""
        if not self._is_greedy:
            super().send_400_response(msg)
            return
        self.places.forget(self)
        self.transport.abort()

    def on_response_complete(self) -> None:
        """uvicorn's own timer of idle connections begins here; the next byte ends it, and `_wait`'s begins."""
        is_read = not self.cycle.more_body
        super().on_response_complete()
        if not self._is_running():
            self._unread, self._had_unread = 0, not is_read
            self.places.waits(self)

    def pause_writing(self) -> None:
        """The client does not take its answer as fast as it is made."""
        super().pause_writing()
        if self.handshake is None:
            self.stalls()

    def resume_writing(self) -> None:
        """The client has taken most of its answer."""
        super().resume_writing()
        if self.handshake is None:
            self.flows()

    def stalls(self) -> None:
        """Watch the pace: the socket takes no more. (Encrypted bytes lie in another buffer than plain ones, with other
        bounds.)
        """
        self._look_at_writing(self._unsent() + 1)

    def flows(self) -> None:
        """The socket takes more."""
        self._stop_write_timer()

    def _unsent(self) -> int:
        """Bytes, of which some are encrypted already."""
        below = 0 if self.handshake is None else self.handshake.transport.get_write_buffer_size()
        return self.transport.get_write_buffer_size() + below

    def _is_running(self) -> bool:
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        self._stop_waiting()
        self._timer = self.loop.call_later(HEAD_SECONDS, self._look_at_head)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at_head(self) -> None:
        self._timer = None
        if self._had_unread and self._unread >= UNREAD_BYTES_MIN:
            self._unread = 0
            self._wait()
        elif self._unread and not self._had_unread:
            self._refuse(_TOO_SLOW)
        else:
            self.transport.abort()

    def _refuse(self, answer: bytes) -> None:
        self.places.forget(self)
        self.transport.write(answer)
        self.transport.close()

    def _refuse_while_it_speaks(self, answer: bytes) -> None:
        """A connection that is closed before all of it is read is reset, and a browser shows nothing of the answer."""
        self._left_to_hear = HEARD_OUT_BYTES_MAX
        self.transport.write(answer)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._stop_waiting()
        self._timer = self.loop.call_later(HEARD_OUT_SECONDS, self.transport.close)

    def _hear_out(self, size: int) -> None:
        assert self._left_to_hear is not None
        self._left_to_hear -= size
        if self._left_to_hear < 0:
            self.transport.abort()

    def _look_at_writing(self, before: int) -> None:
        left = self._unsent()
        if left >= before:
            self.transport.abort()
            return
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(STALLED_SECONDS, self._look_at_writing, left)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def protocol_among(connections: Connections) -> type[asyncio.Protocol]:
    """The protocol class for an endpoint with these connections."""
    return type("RestProtocol", (LimitedProtocol,), {"places": connections})
