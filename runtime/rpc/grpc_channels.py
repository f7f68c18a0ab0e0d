"""Channels of a process, one per peer and purpose, their options, and the metadata that calls carry.

The options are measured: without `max_reconnect_backoff_ms` a peer that was unreachable for a minute stays so for up to
two; without `http2.ping_timeout_ms` a frozen peer is noticed after a minute instead of seconds; with SO_REUSEPORT a new
process would bind beside a frozen one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from runtime.common.clock import Clock
from runtime.common.errors import FlinklikeError, InvalidInputError
from runtime.common.fencing import FencingToken
from runtime.common.ids import ClusterUuid
from runtime.rpc import codec
from runtime.rpc.frames import ErrorDetails
from runtime.rpc.settings import RpcSettings
from runtime.rpc.status import ERROR_KEY, error_from, error_without_details

STREAM_PATH = "/flinklike.Transport/OpenStream"
CHUNK_PATH = "/flinklike.Transport/FetchChunks"
IDENTITY_PATH = "/flinklike.Transport/Identify"

CREDENTIAL_KEY = "flinklike-credential"
TOKEN_KEY = "flinklike-token"  # noqa: S105 - the name of the header that earlier releases have instead
TARGET_KEY = "flinklike-target"
SENDER_KEY = "flinklike-sender"
HELLO_KEY = "flinklike-hello-bin"
ACCEPTED_KEY = "flinklike-accepted"

METADATA_SIZE_MAX = 32 * 1024
CONCURRENT_CALLS_MAX = 50
"""Concurrent calls of one connection (R39). Further calls of a process of the cluster wait in its channel."""
WAITING_CALLS_MAX = 5000
"""Calls wait in one queue of the server, those of strangers among them. From this number on the server ends some calls,
from twice the number on all. The cluster's own calls wait a second or two behind so many."""
IDLE_CHANNELS_MAX = 64
"""Channels beyond this number are closed when they are unused: restarted peers have new ports."""

END_OF_CALL: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs lack it
"""The result of a read at the end of a call."""

Options = list[tuple[str, Any]]
Metadata = tuple[tuple[str, str | bytes], ...]


def _common_options(settings: RpcSettings) -> Options:
    size_max = settings.limits.frame_encoded_size_max
    return [
        ("grpc.max_send_message_length", size_max),
        ("grpc.max_receive_message_length", size_max),
        ("grpc.max_metadata_size", METADATA_SIZE_MAX),
        ("grpc.keepalive_time_ms", int(settings.keepalive_interval * 1000)),
        ("grpc.keepalive_timeout_ms", int(settings.keepalive_timeout * 1000)),
        ("grpc.http2.ping_timeout_ms", int(settings.keepalive_timeout * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def server_options(settings: RpcSettings) -> Options:
    """Options of the one server of a process."""
    return [
        *_common_options(settings),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 1000),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.max_concurrent_streams", CONCURRENT_CALLS_MAX),
        ("grpc.server.max_pending_requests", WAITING_CALLS_MAX),
        ("grpc.server.max_pending_requests_hard_limit", 2 * WAITING_CALLS_MAX),
        ("grpc.max_allowed_incoming_connections", settings.connections_max),
    ]


def channel_options(settings: RpcSettings) -> Options:
    """Options of every channel. Calls to peers of the cluster never go through a proxy."""
    return [
        *_common_options(settings),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.min_reconnect_backoff_ms", int(settings.connect_timeout * 1000)),
        ("grpc.enable_http_proxy", 0),
    ]


# --- metadata -------------------------------------------------------------------------------------------------


def call_metadata(settings: RpcSettings, target: FencingToken | None, sender: FencingToken | None) -> Metadata:
    """The metadata of a call: credentials and fencing tokens (R1)."""
    entries: list[tuple[str, str | bytes]] = []
    if settings.credential is not None:
        entries.append((CREDENTIAL_KEY, settings.credential.reveal()))
    if settings.former is not None:
        entries.append((TOKEN_KEY, settings.former.reveal()))
    if target is not None:
        entries.append((TARGET_KEY, f"{target.revision}@{target.cluster}"))
    if sender is not None:
        entries.append((SENDER_KEY, f"{sender.revision}@{sender.cluster}"))
    return tuple(entries)


def token_of(metadata: Mapping[str, str | bytes], key: str) -> FencingToken | None:
    """A fencing token from the metadata, None when it has none. Raises InvalidInputError for a malformed one."""
    text = metadata.get(key)
    if text is None:
        return None
    revision, separator, cluster = str(text).partition("@")
    if not separator or not revision.isdecimal():
        message = f"metadata {key} holds no fencing token"
        raise InvalidInputError(message)
    return FencingToken(ClusterUuid(cluster), int(revision))


def error_of_trailers(what: str, status: grpc.StatusCode, text: str, trailers: Any) -> FlinklikeError:
    """The error that a failed call raises here."""
    for key, value in trailers or ():
        if key == ERROR_KEY:
            return error_from(codec.decode(ErrorDetails, value))
    return error_without_details(what, status, text)


def error_of_call(what: str, error: grpc.aio.AioRpcError) -> FlinklikeError:
    """The error for an exception of grpc.aio."""
    return error_of_trailers(what, error.code(), error.details() or "", error.trailing_metadata())


# --- channels -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Channel:
    """One connection to a peer, made on first use and again by gRPC when it breaks."""

    raw: Any
    credentials: grpc.ChannelCredentials | None = None
    last_used: float = 0.0
    users: int = 0
    calls: dict[str, Any] = field(default_factory=dict)

    def unary(self, path: str) -> Any:
        """The callable of a unary method."""
        call = self.calls.get(path)
        if call is None:
            call = self.calls[path] = self.raw.unary_unary(path)
        return call


def open_channel(address: str, credentials: grpc.ChannelCredentials | None, options: Options) -> Any:
    """A channel that connects at its first use."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


def no_credentials() -> None:
    """No credentials: channels are in plain text."""


class Channels:
    """Channels by address. Unused ones are closed once there are many.

    `credentials` returns another object when certificates have changed: then the next use of an address makes a new
    channel, and the old one is closed when it has no users any more (R47).
    """

    def __init__(
        self,
        options: Options,
        clock: Clock,
        credentials: Callable[[], grpc.ChannelCredentials | None] = no_credentials,
        *,
        idle_timeout: float = 60.0,
    ) -> None:
        self._options = options
        self._credentials = credentials
        self._replaced: list[Channel] = []
        self._clock = clock
        self._idle_timeout = idle_timeout
        self._channels: dict[str, Channel] = {}

    def __len__(self) -> int:
        return len(self._channels)

    @contextmanager
    def use(self, address: str) -> Iterator[Channel]:
        """The channel to `address`. It stays open until the block ends."""
        credentials = self._credentials()
        channel = self._channels.get(address)
        if channel is not None and channel.credentials is not credentials:
            self._replaced.append(channel)
            channel = None
        if channel is None:
            raw = open_channel(address, credentials, self._options)
            channel = self._channels[address] = Channel(raw, credentials)
        channel.users += 1
        channel.last_used = self._clock.monotonic()
        try:
            yield channel
        finally:
            channel.users -= 1
            channel.last_used = self._clock.monotonic()

    async def close_idle(self) -> None:
        """Close replaced channels without users, and, when there are many channels, idle ones."""
        for old in [one for one in self._replaced if not one.users]:
            self._replaced.remove(old)
            await old.raw.close(None)
        if len(self._channels) <= IDLE_CHANNELS_MAX:
            return
        before = self._clock.monotonic() - self._idle_timeout
        idle = [
            address for address, channel in self._channels.items() if not channel.users and channel.last_used < before
        ]
        for address in idle:
            await self._channels.pop(address).raw.close(None)

    async def close(self) -> None:
        """Close all."""
        while self._channels:
            await self._channels.popitem()[1].raw.close(None)
        while self._replaced:
            await self._replaced.pop().raw.close(None)
