"""A connection to REST before it is encrypted: it has a place among the others, and a time, from its first byte (R41).

asyncio's own servers call the protocol of a connection when its handshake is done, and nothing when that fails. Here a
handshake is a connection that waits, like one whose head is awaited; one that fails is one line of the log (R46).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from asyncio import sslproto
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from runtime.logs.rate_limit import LogRateLimit
from runtime.rest.access.audit import Audit
from runtime.rest.connections import limited_connections
from runtime.rest.connections.limited_connections import Connections, LimitedProtocol

logger = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 5.0
_LAST_SECONDS = 1.0
_RECORD_OF_HANDSHAKE = 0x16
_ONLY_TLS = limited_connections.answer(
    "400 Bad Request", "This port speaks TLS: ask it by https:// (security.ssl.rest.enabled is true here)."
)
_NO_CERTIFICATE = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
_WHY = {
    _NO_CERTIFICATE: ("it shows no certificate, and security.ssl.rest.authentication-enabled is true"),
    "TLSV1_ALERT_UNKNOWN_CA": "it does not accept our certificate: it trusts another CA",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it does not accept our certificate: it has expired",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate: does it name the address that was dialled?",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "UNSUPPORTED_PROTOCOL": "it speaks no TLS of 1.2 or later",
    "NO_SHARED_CIPHER": "it has no cipher of ours",
}


class FailedHandshakes:
    """Logs handshakes that fail. `audit` limits its own lines."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit
        self._limit = LogRateLimit()

    def refuse(self, peer: str, why: str) -> None:
        """The peer has not shown the certificate that is asked for: for the audit log."""
        self._audit.refuse("sign-in", principal="", address=peer, reason=why)

    def warn(self, now: float, peer: str, why: str) -> None:
        """One line for each reason in a period."""
        if self._limit.take(now, why):
            logger.warning("REST and %s come to no TLS: %s", peer, why)


class _Encrypted(sslproto.SSLProtocol):
    """asyncio's, whose socket tells `http` when it takes no more, and whose last word is said when it fails."""

    def __init__(self, handshake: Handshake, http: LimitedProtocol, context: ssl.SSLContext) -> None:
        done = http.loop.create_future()
        done.add_done_callback(handshake.ended)
        super().__init__(http.loop, http, context, done, server_side=True, ssl_shutdown_timeout=_SHUTDOWN_SECONDS)
        self._handshake = handshake
        self._http = http

    def pause_writing(self) -> None:
        super().pause_writing()
        self._http.stalls()

    def resume_writing(self) -> None:
        self._http.flows()
        super().resume_writing()

    def _fatal_error(self, exc: BaseException, message: str = "Fatal error on transport") -> None:
        """asyncio drops the alert that says why: the client would see a connection that was reset."""
        if isinstance(exc, ssl.SSLError) and not self._handshake.is_left:
            self._handshake.say_last(self._outgoing.read())  # type: ignore[attr-defined]  # the stubs lack it
            self.connection_lost(exc)
        else:
            super()._fatal_error(exc, message)


class Handshake(asyncio.Protocol):
    """One connection until it is encrypted; then `http` has it."""

    transport: asyncio.Transport

    def __init__(
        self,
        http: LimitedProtocol,
        places: Connections,
        context: Callable[[], ssl.SSLContext],
        failed: FailedHandshakes,
    ) -> None:
        self.loop = http.loop
        self.is_sending = False
        self._http = http
        self._places = places
        self._context = context
        self._failed = failed
        self._peer = ""
        self.is_left = False
        """It is encrypted, or closed."""
        self._is_over = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take it, or close it."""
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if peer else ""
        if self._places.admit(self, self._peer):
            self._timer = self.loop.call_later(limited_connections.HEAD_SECONDS, self.transport.abort)
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Before it has said anything."""
        del exc
        self.leave()

    def data_received(self, data: bytes) -> None:
        """Take the first bytes of the connection: a handshake, or other bytes."""
        if self._is_over or self.transport.is_closing():
            return
        if data[0] != _RECORD_OF_HANDSHAKE:
            self._failed.warn(self.loop.time(), self._peer, "it speaks none, and security.ssl.rest.enabled is true")
            self.transport.write(_ONLY_TLS)
            self.transport.close()
            return
        self._http.handshake = self
        tls = _Encrypted(self, self._http, self._context())
        self.transport.set_protocol(tls)
        tls.connection_made(self.transport)
        while data and not self.transport.is_closing():
            buffer = memoryview(tls.get_buffer(len(data)))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            tls.buffer_updated(size)
            data = data[size:]

    def leave(self) -> None:
        """Give the place to `http`, or to another connection. Idempotent."""
        self.is_left = True
        self._places.forget(self)
        self._stop_timer()

    def say_last(self, alert: bytes) -> None:
        """The handshake has failed. What still comes is read: else the system would take the alert back."""
        self._is_over = True
        self._stop_timer()
        self._timer = self.loop.call_later(_LAST_SECONDS, self.transport.abort)
        self.transport.set_protocol(self)
        self.transport.write(alert)
        with suppress(OSError):  # the peer has closed already
            self.transport.write_eof()

    def ended(self, handshake: asyncio.Future[None]) -> None:
        """The handshake, one way or another."""
        if not self._is_over:
            self.leave()
        error = handshake.exception()
        if isinstance(error, ssl.SSLError):
            self._failed.warn(self.loop.time(), self._peer, _why(error))
            if isinstance(error, ssl.SSLCertVerificationError) or error.reason == _NO_CERTIFICATE:
                self._failed.refuse(self._peer, _why(error))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _why(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    return _WHY.get(error.reason or "", error.reason or "no handshake")
