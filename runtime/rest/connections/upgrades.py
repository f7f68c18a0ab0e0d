"""A request that offers another protocol (`Upgrade: h2c`, as Java's client and curl do) is served like any other (R41).

A server may ignore the offer (RFC 9110, 7.8). uvicorn's faster parser does not: behind the head of such a request it
takes everything for the other protocol, so a POST loses its body. Here a further parser reads what follows, as the body
that the head announced and the requests behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

with suppress(ImportError):  # then uvicorn parses by h11, which ignores offers by itself
    from httptools import HttpParserUpgrade, HttpRequestParser

_BODY_HEADERS = (b"content-length", b"transfer-encoding")


class OffersIgnored:
    """Replaces `httptools.HttpRequestParser` in uvicorn's protocol for one connection. Never asks for an upgrade."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._go_on(_Callbacks(protocol))

    def should_upgrade(self) -> bool:
        """Always False: no offer is taken."""
        return False

    @property
    def has_offer(self) -> bool:
        """True when the parser has read a head with an offer, and takes the next bytes for the other protocol."""
        return self._parser.should_upgrade()

    def feed_data(self, data: bytes) -> None:
        """Parse it.

        :raises httptools.HttpParserError: it is no HTTP.
        """
        while True:
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
            else:
                return
            callbacks = _CallbacksBehindHead(self._protocol)
            self._go_on(callbacks)
            framing = [b"%b: %b\r\n" % header for header in self._protocol.headers if header[0] in _BODY_HEADERS]
            self._parser.feed_data(b"".join([b"POST / HTTP/1.1\r\n", *framing, b"\r\n"]))
            callbacks.is_behind = True

    def _go_on(self, callbacks: _Callbacks) -> None:
        self._parser = HttpRequestParser(callbacks)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        self.get_http_version = self._parser.get_http_version
        self.get_method = self._parser.get_method
        self.should_keep_alive = self._parser.should_keep_alive


class _Callbacks:
    """The protocol's, which the parser calls by these names."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self.on_message_begin = protocol.on_message_begin
        self.on_url = protocol.on_url
        self.on_header = protocol.on_header
        self.on_headers_complete = protocol.on_headers_complete
        self.on_body = protocol.on_body

    def on_message_complete(self) -> None:
        """Behind a head with an offer the parser calls this before there was a body."""
        if not self._protocol.parser.has_offer:
            self._protocol.on_message_complete()


class _CallbacksBehindHead(_Callbacks):
    """Callbacks of a second parser, which gets a known head again, and reports only what comes behind it."""

    def __init__(self, protocol: Any) -> None:
        super().__init__(protocol)
        self.is_behind = False
        self.on_message_begin = self._if_behind(protocol.on_message_begin)
        self.on_url = self._if_behind(protocol.on_url)
        self.on_header = self._if_behind(protocol.on_header)
        self.on_headers_complete = self._if_behind(protocol.on_headers_complete)

    def _if_behind(self, callback: Callable[..., None]) -> Callable[..., None]:
        return lambda *arguments: callback(*arguments) if self.is_behind else None
