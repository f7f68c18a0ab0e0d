"""One gRPC channel per endpoint, with the calls of etcd's API that the driver uses.

gRPC's `ipv4:a,b` targets and load balancing policies do not work with host names and TLS host checks.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import grpc
from google.protobuf.message import Message

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.common.watched import Watched
from runtime.highavailability.etcd.generated import flinklike_etcdpb_pb2 as pb
from runtime.highavailability.etcd.settings import EtcdSettings

logger = logging.getLogger(__name__)

# Without ping_timeout_ms grpcio 1.85 needs over a minute to notice a frozen peer; etcd refuses pings more often than
# every 5 s. Without the backoff limit an outage of a minute costs ten more seconds. min_reconnect_backoff_ms is how
# long one connect may take, with its TLS handshake.
_OPTIONS: Sequence[tuple[str, int]] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 3_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    # The proxy that the environment names is for the web, not for etcd.
    ("grpc.enable_http_proxy", 0),
)


_CLOSED = "the connection to etcd is closed"

RequestT = TypeVar("RequestT", bound=Message)
ResponseT = TypeVar("ResponseT", bound=Message)

Metadata = tuple[tuple[str, str], ...]


class Unary(Generic[RequestT, ResponseT]):
    """One unary method of etcd, typed."""

    def __init__(
        self, channel: grpc.aio.Channel, path: str, request: type[RequestT], response: type[ResponseT]
    ) -> None:
        self._call = channel.unary_unary(f"/etcdserverpb.{path}", request.SerializeToString, response.FromString)

    async def __call__(self, request: RequestT, *, timeout: float, metadata: Metadata) -> ResponseT:
        """One try. Raises AioRpcError."""
        with _closed_channel_is_unavailable():
            response: ResponseT = await self._call(request, timeout=timeout, metadata=metadata)
        return response


@contextmanager
def _closed_channel_is_unavailable() -> Iterator[None]:
    """A closed channel cancels its calls: make that an UnavailableError, unless the task itself is cancelled."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise UnavailableError(_CLOSED) from error


class Connection:
    """The channel of one endpoint, its login token, and the calls that the driver uses."""

    def __init__(self, endpoint: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.endpoint = endpoint
        self.token = ""
        self.watches = 0
        """Watches that run on this connection."""
        self._beginning: set[asyncio.Timeout] = set()
        """Watches whose request has not been sent yet."""
        if credentials is None:
            channel = grpc.aio.insecure_channel(endpoint, options=_OPTIONS)
        else:
            channel = grpc.aio.secure_channel(endpoint, credentials, options=_OPTIONS)
        self._channel = channel
        self.range = Unary(channel, "KV/Range", pb.RangeRequest, pb.RangeResponse)
        self.txn = Unary(channel, "KV/Txn", pb.TxnRequest, pb.TxnResponse)
        self.compact = Unary(channel, "KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
        self.lease_grant = Unary(channel, "Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
        self.lease_revoke = Unary(channel, "Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
        self.authenticate = Unary(channel, "Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse)
        self.status = Unary(channel, "Maintenance/Status", pb.StatusRequest, pb.StatusResponse)
        self.defragment = Unary(channel, "Maintenance/Defragment", pb.DefragmentRequest, pb.DefragmentResponse)
        self.alarm = Unary(channel, "Maintenance/Alarm", pb.AlarmRequest, pb.AlarmResponse)
        self._keep_alive = channel.stream_stream(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            pb.LeaseKeepAliveRequest.SerializeToString,
            pb.LeaseKeepAliveResponse.FromString,
        )
        self._watch = channel.stream_stream(
            "/etcdserverpb.Watch/Watch", pb.WatchRequest.SerializeToString, pb.WatchResponse.FromString
        )

    async def keep_alive(
        self, request: pb.LeaseKeepAliveRequest, *, timeout: float, metadata: Metadata
    ) -> pb.LeaseKeepAliveResponse:
        """One renewal on a stream of its own."""
        call = self._keep_alive(None, timeout=timeout, metadata=metadata)
        try:
            with _closed_channel_is_unavailable():
                await call.write(request)
                response = await call.read()
        finally:
            call.cancel()
        if isinstance(response, pb.LeaseKeepAliveResponse):
            return response
        message = f"renewal of lease {request.ID:x}: etcd ended the stream"
        raise UnavailableError(message)

    async def watch(self, request: pb.WatchRequest, *, metadata: Metadata) -> AsyncGenerator[pb.WatchResponse, None]:
        """The responses to one watch, until the server ends the stream."""
        call = self._watch(None, metadata=metadata)
        self.watches += 1
        try:
            await self._begin(call, request)
            while True:
                with _closed_channel_is_unavailable():
                    response = await call.read()
                if not isinstance(response, pb.WatchResponse):
                    return
                yield response
        finally:
            self.watches -= 1
            call.cancel()

    async def _begin(
        self, call: grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse], request: pb.WatchRequest
    ) -> None:
        """Send the watch request. Without `close`'s deadline gRPC would wait for ever on a channel that is closed."""
        patience = asyncio.timeout(None)
        self._beginning.add(patience)
        try:
            with _closed_channel_is_unavailable():
                async with patience:
                    await call.write(request)
        except TimeoutError as error:
            raise UnavailableError(_CLOSED) from error
        finally:
            self._beginning.discard(patience)

    async def close(self) -> None:
        """End every call on this channel."""
        now = asyncio.get_running_loop().time()
        for patience in self._beginning:
            patience.reschedule(now)
        await self._channel.close(None)


def open_connections(settings: EtcdSettings, certificates: Certificates | None) -> Sequence[Connection]:
    """A channel for each endpoint; nothing is dialled yet. `certificates` None: in plain text."""
    credentials = None
    if certificates is not None:
        credentials = grpc.ssl_channel_credentials(certificates.ca, certificates.key, certificates.cert)
    return [Connection(endpoint, credentials) for endpoint in settings.endpoints]


@dataclass(frozen=True, slots=True)
class Certificates:
    """The trusted CAs, and the certificate of this client: PEM."""

    ca: bytes
    cert: bytes | None
    key: bytes | None = field(repr=False)


def watch_certificates(settings: EtcdSettings, clock: Clock) -> Watched[Certificates] | None:
    """The certificates, read again when their files change (R47); None for plain text. Raises InvalidInputError."""
    if not settings.tls_ca:
        return None
    paths = [Path(one) for one in (settings.tls_ca, settings.tls_cert, settings.tls_key) if one]
    return Watched(
        "certificate of high-availability.etcd.tls", paths, lambda: _read(settings), now=clock.monotonic, log=logger
    )


def _read(settings: EtcdSettings) -> Certificates:
    ca = _pem("tls.ca", settings.tls_ca, "CERTIFICATE")
    if not settings.tls_cert:
        return Certificates(ca, None, None)
    key = _pem("tls.key", settings.tls_key, "PRIVATE KEY")
    cert = key if settings.tls_cert == settings.tls_key else _pem("tls.cert", settings.tls_cert, "CERTIFICATE")
    try:
        # Without `password` OpenSSL would ask for one on the terminal, and wait.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password=lambda: b"")
    except OSError as error:  # half of a renewal, for instance
        what = f"high-availability.etcd.tls.key: {settings.tls_key}"
        message = f"{what} is not the key of the certificate in {settings.tls_cert} ({error.strerror or error})"
        raise InvalidInputError(message) from error
    return Certificates(ca, cert, key)


def _pem(option: str, path: str, kind: str) -> bytes:
    """The content of a PEM file. gRPC accepts any content, and later reports only that the peer does not answer."""
    what = f"high-availability.etcd.{option}: {path}"
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        message = f"{what} cannot be read ({error.strerror})"
        raise InvalidInputError(message) from error
    if not re.search(rb"-----BEGIN [A-Z ]*%b-----" % kind.encode(), data):
        message = f"{what} holds no {kind.lower()} in PEM form"
        raise InvalidInputError(message)
    return data
