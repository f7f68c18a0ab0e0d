"""Switchboard: the serving half of every transport, with its checks (token, R1, R11).

Order of the checks of a call or stream: the credential, then R1 by the check of the serving component, then (streams)
the incarnation and the stream's number. Only then the message is decoded, and the endpoint called.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, TypeVar

from runtime.common.errors import (
    BugError,
    MessageTooLargeError,
    NotFoundError,
    PermanentError,
    StaleTokenError,
    UnavailableError,
)
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation
from runtime.rpc import codec
from runtime.rpc.messages import GATEWAYS, GatewayMethod, gateway_methods
from runtime.rpc.service import ChunkSource, MessageStream, StreamHandler, StreamHello, StreamKind, TokenCheck
from runtime.rpc.settings import RpcSettings
from runtime.rpc.status import is_bug
from runtime.rpc.stream import FrameStream

logger = logging.getLogger(__name__)

GatewayT = TypeVar("GatewayT")

REMEMBERED_DIALERS_MAX = 10_000
"""Dialers whose highest stream number is remembered after their stream has ended."""


@dataclass(frozen=True, slots=True)
class _ServedGateway:
    endpoint: Any
    check: TokenCheck


@dataclass(frozen=True, slots=True)
class _ServedKind:
    handler: StreamHandler
    check: TokenCheck


@dataclass(slots=True)
class _Numbered:
    """The newest stream of one (kind, dialer)."""

    number: int
    stream: FrameStream | None = None


def known_methods() -> dict[str, GatewayMethod]:
    """Every method of every gateway by its path on the wire."""
    return {method.path: method for gateway in GATEWAYS for method in gateway_methods(gateway).values()}


class Switchboard:
    """Implements `RpcServer`. The transport calls it; it has no sockets."""

    def __init__(self, settings: RpcSettings) -> None:
        self._settings = settings
        self._address = ""
        self._methods = known_methods()
        self._gateways: dict[str, _ServedGateway] = {}
        self._kinds: dict[StreamKind, _ServedKind] = {}
        self._chunk_sources: dict[str, ChunkSource] = {}
        self._streams: OrderedDict[tuple[StreamKind, str], _Numbered] = OrderedDict()

    @property
    def address(self) -> str:
        """host:port that others dial."""
        assert self._address, "the RpcService is not started"
        return self._address

    def bound_to(self, address: str) -> None:
        """The transport listens."""
        self._address = address

    # --- what is served -------------------------------------------------------------------------------------------

    def add_gateway(self, gateway_type: type[GatewayT], endpoint: GatewayT, *, check: TokenCheck) -> None:
        """Serve a gateway; a second endpoint of one type is a mistake."""
        if gateway_type not in GATEWAYS or gateway_type.__name__ in self._gateways:
            message = f"{gateway_type.__name__} cannot be served: it is served already, or no gateway between processes"
            raise BugError(message)
        self._gateways[gateway_type.__name__] = _ServedGateway(endpoint, check)

    def remove_gateway(self, gateway_type: type[Any]) -> None:
        """Stop serving a gateway. Idempotent."""
        self._gateways.pop(gateway_type.__name__, None)

    def add_stream_handler(self, kind: StreamKind, handler: StreamHandler, *, check: TokenCheck) -> None:
        """Accept streams of a kind; a second handler of one kind is a mistake."""
        if kind in self._kinds:
            message = f"streams of kind {kind.name} are accepted already"
            raise BugError(message)
        self._kinds[kind] = _ServedKind(handler, check)

    def remove_stream_handler(self, kind: StreamKind) -> None:
        """Stop accepting streams of a kind and end the open ones. Idempotent."""
        self._kinds.pop(kind, None)
        for (other, _), numbered in list(self._streams.items()):
            if other is kind and numbered.stream is not None:
                numbered.stream.abort(f"the listener has stopped serving {kind.name}")

    def add_chunk_source(self, name: str, source: ChunkSource) -> None:
        """Serve large objects."""
        self._chunk_sources[name] = source

    # --- what the transport asks ------------------------------------------------------------------------------

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of this process."""
        return self._settings.incarnation

    def authenticate(self, presented: str | bytes | None, former: str | bytes | None = None) -> None:
        """Raises UnauthenticatedError when `presented` is not the credential of links between processes (R48).

        `former`: the cluster's token, which is accepted from processes of an earlier release when that is configured.
        """
        settings = self._settings
        if settings.credential is None or (settings.former is not None and settings.former.matches(former)):
            return
        settings.credential.require(presented)

    async def call(self, path: str, target: FencingToken | None, sender: FencingToken | None, request: bytes) -> bytes:
        """Serve one authenticated call. The transport sends what it raises to the caller."""
        method = self._methods.get(path)
        if method is None:
            message = f"there is no call {path}"
            raise PermanentError(message)
        served = self._gateways.get(method.gateway)
        if served is None:
            message = f"{method.gateway} is not served here (now)"
            raise UnavailableError(message)
        served.check(target, sender)  # R1
        response = await getattr(served.endpoint, method.name)(codec.decode(method.request_type, request))
        data = codec.encode(response)
        check_size(type(response).__name__, len(data), self._settings.limits.message_size_max)
        return data

    def accept(self, hello: StreamHello) -> StreamHandler:
        """The handler of a stream that may open. Raises UnavailableError, StaleTokenError."""
        served = self._kinds.get(hello.kind)
        if served is None:
            message = f"streams of kind {hello.kind.name} are not accepted here (now)"
            raise UnavailableError(message)
        served.check(hello.target, None)  # R1
        own = self._settings.incarnation
        if hello.target_incarnation not in {"", own}:
            message = f"stream is meant for process {hello.target_incarnation}, this is {own}"
            raise StaleTokenError(message)
        newest = self._streams.get((hello.kind, hello.dialer))
        if newest is not None and hello.number <= newest.number:  # R11
            name = f"stream {hello.kind.name} #{hello.number} of {hello.dialer}"
            message = f"{name} refused: #{newest.number} was opened already"
            raise StaleTokenError(message)
        return served.handler

    def opened(self, stream: FrameStream) -> None:
        """An accepted stream opens. Older streams of its dialer end, and drop what they have not delivered (R11)."""
        key = (stream.hello.kind, stream.hello.dialer)
        older = self._streams.pop(key, None)
        self._streams[key] = _Numbered(stream.hello.number, stream)
        if older is not None and older.stream is not None:
            older.stream.abort(f"replaced by #{stream.hello.number}")
        if len(self._streams) > REMEMBERED_DIALERS_MAX:
            idle = next((key for key, numbered in self._streams.items() if numbered.stream is None), None)
            if idle is not None:
                del self._streams[idle]

    def over(self, stream: FrameStream) -> None:
        """A stream has ended; its number stays."""
        numbered = self._streams.get((stream.hello.kind, stream.hello.dialer))
        if numbered is not None and numbered.stream is stream:
            numbered.stream = None

    def open_streams(self) -> list[FrameStream]:
        """All streams that were accepted and have not ended."""
        return [numbered.stream for numbered in self._streams.values() if numbered.stream is not None]

    async def chunks(self, source_name: str, key: str) -> AsyncGenerator[bytes, None]:
        """The object's chunks. Raises NotFoundError for an unknown source or key."""
        source = self._chunk_sources.get(source_name)
        if source is None:
            message = f"there are no {source_name!r} here"
            raise NotFoundError(message)
        async for chunk in source(key):
            check_size("chunk", len(chunk), self._settings.limits.message_size_max)
            yield chunk


def check_size(what: str, size: int, size_max: int) -> None:
    """Raises MessageTooLargeError before anything is sent."""
    if size > size_max:
        message = f"a {what} of {size} bytes is above the limit of {size_max} bytes per message (rpc.max-message-size)"
        raise MessageTooLargeError(message)


async def run_stream_handler(handler: StreamHandler, stream: MessageStream, name: str) -> None:
    """Run the handler of an accepted stream to its end; the stream is closed when this returns.

    The boundary of the component that serves the stream: the end of a stream is no error, and anything else is
    logged and ends this stream only.
    """
    try:
        await handler(stream)
    except UnavailableError as error:
        logger.debug("handler of stream %s ended: %s", name, error)
    except Exception as error:
        if is_bug(error):
            logger.exception("handler of stream %s failed", name)
        else:
            logger.warning("handler of stream %s failed: %s", name, error)
        stream.abort(f"the listener failed: {type(error).__name__}")
    finally:
        await stream.close()
