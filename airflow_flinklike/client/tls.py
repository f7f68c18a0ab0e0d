"""TLS of clients: what they trust and show, read again when its files change (R47), and what a failure means."""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import httpx

from airflow_flinklike.client.deadlines import AsyncBoundedTransport, BoundedTransport
from airflow_flinklike.exceptions import AuthenticationError

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
_NAME_IT = "`flinklike --ca`, FLINKLIKE_CA, or `verify` of the Airflow connection"
_SHOW_IT = "`flinklike --cert`, FLINKLIKE_CERT, or `cert` of the Airflow connection"


@dataclass(frozen=True, slots=True)
class ClientTls:
    """`ca`: a PEM file of the CAs that are trusted, True for those of everybody, False to trust anybody.

    `cert` is the PEM file of the client's certificate, and of its key unless `key` names that.
    """

    ca: bool | str = True
    cert: str = ""
    key: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """What is read."""
        return tuple(one for one in (self.ca, self.cert, self.key) if isinstance(one, str) and one)


NO_FILES = ClientTls()


def find_tls(environment: Mapping[str, str] = os.environ, *, local_ca: str = "") -> ClientTls:
    """FLINKLIKE_CA, FLINKLIKE_CERT and FLINKLIKE_KEY; the CA of the local installation where none is named."""
    ca = environment.get("FLINKLIKE_CA") or local_ca
    return ClientTls(ca or True, environment.get("FLINKLIKE_CERT", ""), environment.get("FLINKLIKE_KEY", ""))


class TlsContexts:
    """The context for the next connection: another object when the files hold something else. For any thread."""

    def __init__(self, tls: ClientTls) -> None:
        """Raises AuthenticationError for files that cannot be used."""
        self._tls = tls
        self._lock = threading.Lock()
        self._state = _states(tls)
        self._context = _new_context(tls)
        self._told: object = None
        """What could not be used at the last look, and why."""
        self._next_look = _now() + LOOK_SECONDS

    @property
    def current(self) -> ssl.SSLContext:
        """What cannot be used is told in the log, once, and tried again; the one before stays."""
        with self._lock:
            if _now() >= self._next_look:
                self._look_again()
            return self._context

    def _look_again(self) -> None:
        self._next_look = _now() + LOOK_SECONDS
        state = _states(self._tls)
        if state == self._state:
            return
        try:
            self._context = _new_context(self._tls)
        except AuthenticationError as error:
            if self._told != (state, str(error)):
                logger.warning("certificates cannot be renewed, those before stay in use: %s", error)
            self._told = (state, str(error))
            return
        self._state, self._told = state, None


def _now() -> float:
    return time.monotonic()  # noqa: TID251 - a client has no other clock


def _states(tls: ClientTls) -> list[tuple[int, ...]]:
    return [_state(Path(one)) for one in tls.files]


def _state(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError as error:
        return (error.errno or 0,)
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def _new_context(tls: ClientTls) -> ssl.SSLContext:
    if isinstance(tls.ca, bool):
        context = httpx.create_ssl_context(verify=tls.ca, trust_env=False)
    else:
        try:
            is_directory = Path(tls.ca).is_dir()
            file, folder = (None, tls.ca) if is_directory else (tls.ca, None)
            context = ssl.create_default_context(cafile=file, capath=folder)
        except ssl.SSLError as error:
            message = f"the CA file {tls.ca} holds no certificate in PEM form"
            raise AuthenticationError(message) from error
        except OSError as error:
            message = f"the CA file {tls.ca} cannot be read: {error.strerror}"
            raise AuthenticationError(message) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.cert:
        _load_certificate(context, tls)
    elif tls.key:
        message = f"the key file {tls.key} is of no use without its certificate: name that too ({_SHOW_IT})"
        raise AuthenticationError(message)
    return context


def _load_certificate(context: ssl.SSLContext, tls: ClientTls) -> None:
    files = " and ".join(one for one in (tls.cert, tls.key) if one)
    try:
        context.load_cert_chain(tls.cert, tls.key or None, password=lambda: b"")  # nobody is asked for one
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            message = f"{tls.key or tls.cert} is not the key of the certificate in {tls.cert}"
            raise AuthenticationError(message) from error
        message = f"{files}: no certificate with its key in PEM form, without a password ({error.reason or error})"
        raise AuthenticationError(message) from error
    except OSError as error:
        message = f"the certificate in {files} cannot be read: {error.strerror}"
        raise AuthenticationError(message) from error


_VERIFY = {
    9: "its certificate is not valid yet: do the clocks differ?",
    10: "its certificate has expired: `flinklike certs renew` makes a new one",
    62: "its certificate does not name this address: ask by one that it names, or issue one with `--host` of this",
    64: "its certificate does not name this address: ask by one that it names, or issue one with `--ip` of this",
    **dict.fromkeys((18, 19, 20, 21), f"its certificate is of no CA that is trusted here: name its CA by {_NAME_IT}"),
}
"""By OpenSSL's number."""
_NO_TLS = "it speaks no TLS: ask it by http://, or set security.ssl.rest.enabled: true there"
_REASONS = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": f"it asks for a client certificate: name its file by {_SHOW_IT}",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not accept our certificate: it is of no CA in its security.ssl.rest.ca",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it does not accept our certificate: it has expired, or is not valid yet",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept our certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it does not accept our certificate: it is not for clients",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks another version of TLS than this client: 1.2 or later is needed",
}


def tls_refusal(error: BaseException) -> str | None:
    """What a failed handshake means, in one sentence of which the server is the subject (R46); None for others."""
    for one in _causes(error):
        if isinstance(one, ssl.SSLCertVerificationError):
            return _VERIFY.get(one.verify_code, f"its certificate is not accepted here: {one.verify_message}")
        if isinstance(one, ssl.SSLError) and one.reason in _REASONS:
            return _REASONS[one.reason]
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


_Transport = TypeVar("_Transport")


class _Made(Generic[_Transport]):
    """A transport, and how many requests run on it."""

    def __init__(self, context: ssl.SSLContext, transport: _Transport) -> None:
        self.context = context
        self.transport = transport
        self.running = 0


class _Transports(Generic[_Transport]):
    """The newest, and those before on which something runs still. For threads at once."""

    def __init__(self, tls: ClientTls, make: Callable[[ssl.SSLContext], _Transport]) -> None:
        self._contexts = TlsContexts(tls)
        self._make = make
        self._lock = threading.Lock()
        self._made: list[_Made[_Transport]] = []

    def begin(self) -> tuple[_Made[_Transport], list[_Transport]]:
        """By which the next request goes, and which are to be closed."""
        context = self._contexts.current
        with self._lock:
            if not self._made or self._made[-1].context is not context:
                self._made.append(_Made(context, self._make(context)))
            newest = self._made[-1]
            newest.running += 1
            return newest, self._over()

    def end(self, made: _Made[_Transport]) -> list[_Transport]:
        """A request has its whole answer, or none; which are to be closed."""
        with self._lock:
            made.running -= 1
            return self._over()

    def all(self) -> list[_Transport]:
        """That are not closed yet."""
        return [one.transport for one in self._made]

    def _over(self) -> list[_Transport]:
        over = [one for one in self._made[:-1] if not one.running]
        self._made = [one for one in self._made if one not in over]
        return [one.transport for one in over]


class RenewedTransport(httpx.BaseTransport):
    """httpx's, made anew when the files have changed; what runs on the one before goes on, then that is closed.

    For threads at once.
    """

    def __init__(self, tls: ClientTls) -> None:
        self._transports: _Transports[BoundedTransport] = _Transports(tls, BoundedTransport)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """By the newest."""
        made, over = self._transports.begin()
        _close(over)
        try:
            response = made.transport.handle_request(request)
        except BaseException:
            _close(self._transports.end(made))
            raise
        assert isinstance(response.stream, httpx.SyncByteStream), response.stream
        response.stream = _Stream(response.stream, lambda: _close(self._transports.end(made)))
        return response

    def close(self) -> None:
        """All of them."""
        _close(self._transports.all())


class _Stream(httpx.SyncByteStream):
    """One that says when it is closed."""

    def __init__(self, stream: httpx.SyncByteStream, closed: Callable[[], None]) -> None:
        self._stream = stream
        self._closed = closed

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream

    def close(self) -> None:
        closed, self._closed = self._closed, lambda: None
        try:
            self._stream.close()
        finally:
            closed()


def _close(transports: list[BoundedTransport]) -> None:
    for one in transports:
        one.close()


class RenewedAsyncTransport(httpx.AsyncBaseTransport):
    """The same for an event loop."""

    def __init__(self, tls: ClientTls) -> None:
        self._transports: _Transports[AsyncBoundedTransport] = _Transports(tls, AsyncBoundedTransport)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """By the newest."""
        made, over = self._transports.begin()
        await _aclose(over)
        try:
            response = await made.transport.handle_async_request(request)
        except BaseException:
            await _aclose(self._transports.end(made))
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream), response.stream
        response.stream = _AsyncStream(response.stream, lambda: self._transports.end(made))
        return response

    async def aclose(self) -> None:
        """All of them."""
        await _aclose(self._transports.all())


class _AsyncStream(httpx.AsyncByteStream):
    """One that closes what is over when it is closed."""

    def __init__(self, stream: httpx.AsyncByteStream, end: Callable[[], list[AsyncBoundedTransport]]) -> None:
        self._stream = stream
        self._end = end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        end, self._end = self._end, list
        try:
            await self._stream.aclose()
        finally:
            await _aclose(end())


async def _aclose(transports: list[AsyncBoundedTransport]) -> None:
    for one in transports:
        await one.aclose()
