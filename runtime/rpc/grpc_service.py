"""The production transport: one grpc.aio server per process, one channel per peer, streams, chunks.

Not for a virtual-time loop: gRPC does its I/O on threads of its own. Checks, numbering, coalescing and error classes
are shared with the local transport; this module only sends and receives.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import grpc
import grpc.aio

from runtime.aio.clock import SystemClock
from runtime.aio.scope import ServiceScope
from runtime.common.clock import Clock
from runtime.common.errors import (
    FlinklikeError,
    InvalidInputError,
    OutcomeUnknownError,
    PermanentError,
    UnavailableError,
)
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation
from runtime.metrics.registry import NO_METRICS, MetricRegistry
from runtime.rpc import codec
from runtime.rpc.call_metrics import counted_invoke, counted_serve, stream_samples
from runtime.rpc.client import make_client
from runtime.rpc.frames import ChunkRequest
from runtime.rpc.grpc_channels import (
    ACCEPTED_KEY,
    CHUNK_PATH,
    CREDENTIAL_KEY,
    END_OF_CALL,
    HELLO_KEY,
    IDENTITY_PATH,
    SENDER_KEY,
    STREAM_PATH,
    TARGET_KEY,
    TOKEN_KEY,
    Channels,
    call_metadata,
    channel_options,
    error_of_call,
    error_of_trailers,
    no_credentials,
    open_channel,
    server_options,
    token_of,
)
from runtime.rpc.grpc_server import mended_server
from runtime.rpc.grpc_streams import hold_accepted, read_dialed, write_dialed
from runtime.rpc.messages import GatewayMethod
from runtime.rpc.service import NobodyListensError, RpcServer, StreamHello
from runtime.rpc.settings import RpcSettings
from runtime.rpc.status import ERROR_KEY, error_details, is_bug, status_of
from runtime.rpc.strangers import StrangerWatch
from runtime.rpc.stream import FrameStream
from runtime.rpc.switchboard import Switchboard, known_methods, run_stream_handler
from runtime.rpc.tls import ClientTls, ServerTls

logger = logging.getLogger(__name__)

GatewayT = TypeVar("GatewayT")


class CannotListenError(PermanentError):
    """The port is taken, or the address is not this host's. A process with this error does not start."""


class GrpcRpcService:
    """Implements `RpcService` over gRPC."""

    def __init__(self, settings: RpcSettings, clock: Clock, metrics: MetricRegistry = NO_METRICS) -> None:
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._switchboard = Switchboard(settings)
        self._scope = ServiceScope(f"rpc/{settings.incarnation}")
        self._dialed: set[FrameStream] = set()
        self._server: grpc.aio.Server | None = None
        self._strangers = StrangerWatch(
            SystemClock(), settings.strangers, is_encrypted=settings.tls is not None, on_crash=self._unwatched
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._credentials = no_credentials if settings.tls is None else ClientTls(settings.tls).credentials
        options = channel_options(settings)
        self._channels = Channels(options, clock, self._credentials)
        # A pool of its own keeps large objects off the connection of calls and streams: beside 64 MB messages small
        # calls were measured at a p99 of 500 ms.
        self._own_connection = [*options, ("grpc.use_local_subchannel_pool", 1)]
        self._chunk_channels = Channels(self._own_connection, clock, self._credentials)

    @property
    def server(self) -> RpcServer:
        """The listening half."""
        return self._switchboard

    # --- dialling -----------------------------------------------------------------------------------------------

    def connect(
        self,
        gateway_type: type[GatewayT],
        address: str,
        *,
        target: FencingToken | None,
        sender: FencingToken | None,
        timeout: float,
    ) -> GatewayT:
        """A typed client; see `RpcService.connect`."""
        metadata = call_metadata(self._settings, target, sender)

        async def invoke(method: GatewayMethod, request: bytes, /) -> bytes:
            await self._channels.close_idle()
            with self._channels.use(address) as channel:
                try:
                    answer: bytes = await channel.unary(method.path)(request, timeout=timeout, metadata=metadata)
                except grpc.aio.AioRpcError as error:
                    what = f"{method.gateway}.{method.name} at {address}"
                    raise error_of_call(what, error) from error
            return answer

        limits = self._settings.limits
        call = counted_invoke(self._metrics, invoke) if self._metrics.is_on else invoke
        client: GatewayT = make_client(gateway_type, call, message_size_max=limits.message_size_max)
        return client

    async def open_stream(self, address: str, hello: StreamHello, *, timeout: float) -> FrameStream:
        """Dial a stream; see `RpcService.open_stream`."""
        await self._channels.close_idle()
        used = contextlib.ExitStack()
        channel = used.enter_context(self._channels.use(address))
        metadata = (*call_metadata(self._settings, None, None), (HELLO_KEY, codec.encode(hello)))
        call = channel.raw.stream_stream(STREAM_PATH)(metadata=metadata)
        try:
            await self._await_acceptance(call, address, hello, timeout)
        except BaseException:
            call.cancel()
            used.close()
            raise
        stream = FrameStream(hello, self._settings.limits, self._clock)
        self._dialed.add(stream)

        def over() -> None:
            self._dialed.discard(stream)
            call.cancel()
            used.close()

        stream.on_end(over)
        self._scope.spawn(f"stream/{stream.name}/read", read_dialed(stream, call))
        self._scope.spawn(f"stream/{stream.name}/write", write_dialed(stream, call))
        return stream

    async def _await_acceptance(self, call: Any, address: str, hello: StreamHello, timeout: float) -> None:
        what = f"stream {hello.kind.name} to {address}"
        try:
            async with asyncio.timeout(timeout):
                initial = await call.initial_metadata()
                if any(key == ACCEPTED_KEY for key, _ in initial or ()):
                    return
                status, text, trailers = await call.code(), await call.details(), await call.trailing_metadata()
        except TimeoutError as error:
            message = f"{what}: not accepted within {timeout} s"
            raise UnavailableError(message) from error
        except grpc.aio.AioRpcError as error:
            raise error_of_call(what, error) from error
        failure = error_of_trailers(what, status, text or "", trailers)
        # A stream that was not accepted has executed nothing.
        raise UnavailableError(str(failure)) if isinstance(failure, OutcomeUnknownError) else failure

    async def fetch_chunks(self, address: str, name: str, key: str, *, timeout: float) -> AsyncIterator[bytes]:
        """Read an object over a channel of its own; see `RpcService.fetch_chunks`."""
        await self._chunk_channels.close_idle()
        what = f"{name} {key} at {address}"
        with self._chunk_channels.use(address) as channel:
            fetch = channel.raw.unary_stream(CHUNK_PATH)
            call = fetch(codec.encode(ChunkRequest(name, key)), metadata=call_metadata(self._settings, None, None))
            try:
                while True:
                    try:
                        async with asyncio.timeout(timeout):
                            chunk = await call.read()
                    except TimeoutError as error:
                        message = f"{what}: no chunk within {timeout} s"
                        raise UnavailableError(message) from error
                    except grpc.aio.AioRpcError as error:
                        failure = error_of_call(what, error)
                        # A read has no effect, so its outcome is never unknown.
                        if isinstance(failure, OutcomeUnknownError):
                            raise UnavailableError(str(failure)) from error
                        raise failure from error
                    if chunk is END_OF_CALL:
                        return
                    yield chunk
            finally:
                call.cancel()

    async def identify(self, address: str, *, timeout: float) -> Incarnation:
        """Ask the process that listens there; see `RpcService.identify`.

        It opens a plain connection first: gRPC reports a refusal only in its text, and may report an old one. A failed
        handshake proves nothing, because the peer has not named its incarnation (R46).
        """
        what = f"the process at {address}"
        try:
            async with asyncio.timeout(timeout):
                await _knock(address)
                async with open_channel(address, self._credentials(), self._own_connection) as channel:
                    raw: Any = channel
                    metadata = call_metadata(self._settings, None, None)
                    answer: bytes = await raw.unary_unary(IDENTITY_PATH)(b"", metadata=metadata)
        except ConnectionRefusedError as error:
            message = f"{what}: connection refused"
            raise NobodyListensError(message) from error
        except (OSError, ValueError) as error:
            message = f"{what} does not answer: {str(error) or f'not within {timeout:g} s'}"
            raise UnavailableError(message) from error
        except grpc.aio.AioRpcError as error:
            failure = error_of_call(what, error)
            # A question has no effect, so its outcome is never unknown.
            raise UnavailableError(str(failure)) if isinstance(failure, OutcomeUnknownError) else failure from error
        return Incarnation(answer.decode())

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Bind and listen. Raises CannotListenError."""
        handlers = _Handlers(
            self._switchboard, self._scope, self._settings, self._clock, self._strangers, self._metrics
        )
        self._metrics.read("stream", lambda: stream_samples([*self._switchboard.open_streams(), *self._dialed]))
        server = mended_server(handlers.by_path, server_options(self._settings), self._deaf)
        wanted = f"{self._settings.bind_host}:{self._settings.port}"
        try:
            port = self._add_port(server, wanted)
        except RuntimeError as error:
            message = f"cannot listen on {wanted}: the port is in use by another process, or the address is not local"
            raise CannotListenError(message) from error
        self._loop = asyncio.get_running_loop()
        await self._scope.open()
        await server.start()
        self._server = server
        self._strangers.start(port)
        self._switchboard.bound_to(f"{self._settings.address}:{port}")

    def _deaf(self, sentence: str) -> None:
        async def fail() -> None:
            raise UnavailableError(sentence)

        self._scope.spawn("rpc/server", fail())

    def _unwatched(self, sentence: str) -> None:
        assert self._loop is not None, sentence
        self._loop.call_soon_threadsafe(self._deaf, sentence)

    def _add_port(self, server: grpc.aio.Server, wanted: str) -> int:
        if self._settings.tls is None:
            return server.add_insecure_port(wanted)
        tls = ServerTls(self._settings.tls, self._strangers.note_handshake)
        return server.add_secure_port(wanted, tls.credentials())

    async def wait_failed(self) -> None:
        """Wait for a failure of what runs in the background; see `RpcService.wait_failed`."""
        await self._scope.wait_failed()

    async def stop(self, *, grace: float) -> None:
        """Refuse new calls, close streams, let running calls end; see `RpcService.stop`. Idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        accepted = self._switchboard.open_streams()
        # gRPC counts an open stream as a running call, and would cut it in the middle of its flush.
        server_grace = max(grace, self._settings.limits.close_timeout) if accepted else grace
        async with asyncio.TaskGroup() as stopping:
            _ = stopping.create_task(server.stop(server_grace), name="rpc/stop")
            for stream in [*accepted, *self._dialed]:
                _ = stopping.create_task(stream.close(), name=f"rpc/close/{stream.name}")
        self._strangers.stop()
        await self._channels.close()
        await self._chunk_channels.close()
        await self._scope.close()


class _Handlers:
    """The handlers of all paths. Each authenticates first, and fails through `_abort` only."""

    def __init__(
        self,
        switchboard: Switchboard,
        scope: ServiceScope,
        settings: RpcSettings,
        clock: Clock,
        strangers: StrangerWatch,
        metrics: MetricRegistry,
    ) -> None:
        self._switchboard = switchboard
        self._metrics = metrics
        self._scope = scope
        self._settings = settings
        self._clock = clock
        self._strangers = strangers
        # All are served as streams of requests: gRPC would read a single request before it calls the handler, and no
        # request may be read before the token is checked.
        self.by_path = {
            path: grpc.stream_unary_rpc_method_handler(self._unary(path, method))
            for path, method in known_methods().items()
        }
        self.by_path[STREAM_PATH] = grpc.stream_stream_rpc_method_handler(self._stream)
        self.by_path[CHUNK_PATH] = grpc.stream_stream_rpc_method_handler(self._chunks)
        self.by_path[IDENTITY_PATH] = grpc.stream_unary_rpc_method_handler(self._identity)

    def _authenticate(self, context: Any) -> dict[str, Any]:
        """The metadata of a call, after the check of its token (R39). Raises UnauthenticatedError."""
        metadata = dict(context.invocation_metadata())
        try:
            self._switchboard.authenticate(metadata.get(CREDENTIAL_KEY), metadata.get(TOKEN_KEY))
        except FlinklikeError:
            self._strangers.refuse(context.peer())
            raise
        self._strangers.admit(context.peer())
        return metadata

    def _unary(self, path: str, method: GatewayMethod) -> Any:
        call = self._switchboard.call
        serve = counted_serve(self._metrics, method, call) if self._metrics.is_on else call

        async def behaviour(_requests: Any, context: Any) -> bytes:
            try:
                metadata = self._authenticate(context)
                target, sender = token_of(metadata, TARGET_KEY), token_of(metadata, SENDER_KEY)
                return await serve(path, target, sender, await _only_request(context))
            except Exception as error:
                # The boundary of the endpoint: whatever it raised goes to its caller.
                if is_bug(error):
                    logger.exception("call %s failed", path)
                await _abort(context, error)
                raise

        return behaviour

    async def _identity(self, _requests: Any, context: Any) -> bytes:
        try:
            _ = self._authenticate(context)
        except FlinklikeError as error:
            await _abort(context, error)
            raise
        return self._switchboard.incarnation.encode()

    async def _stream(self, _requests: Any, context: Any) -> None:
        try:
            metadata = self._authenticate(context)
            hello = codec.decode(StreamHello, _bytes(metadata, HELLO_KEY))
            handler = self._switchboard.accept(hello)
        except FlinklikeError as error:
            await _abort(context, error)
            raise
        stream = FrameStream(hello, self._settings.limits, self._clock)
        self._switchboard.opened(stream)
        stream.on_end(lambda: self._switchboard.over(stream))
        try:
            await context.send_initial_metadata(((ACCEPTED_KEY, "1"),))
            self._scope.spawn(f"stream/{stream.name}", run_stream_handler(handler, stream, stream.name))
            await hold_accepted(stream, context, self._scope)
        finally:
            stream.end("connection lost")

    async def _chunks(self, _requests: Any, context: Any) -> AsyncIterator[bytes]:
        request = b""
        try:
            _ = self._authenticate(context)
            request = await _only_request(context)
            wanted = codec.decode(ChunkRequest, request)
            async with contextlib.aclosing(self._switchboard.chunks(wanted.source, wanted.key)) as chunks:
                async for chunk in chunks:
                    yield bytes(chunk)
        except Exception as error:
            # The boundary of the chunk source, as above.
            if is_bug(error):
                logger.exception("chunks of %s failed", request[:200])
            await _abort(context, error)
            raise


async def _only_request(context: Any) -> bytes:
    """The request of a unary call. Raises InvalidInputError when the call ends before it."""
    request = await context.read()
    if not isinstance(request, bytes):
        message = "the call has ended before its request was there"
        raise InvalidInputError(message)
    return request


async def _knock(address: str) -> None:
    """Open and close a connection. Raises OSError when no process accepts it."""
    host, _, port = address.rpartition(":")
    _reader, writer = await asyncio.open_connection(host, int(port))
    writer.close()


def _bytes(metadata: dict[str, Any], key: str) -> bytes:
    value = metadata.get(key)
    if not isinstance(value, bytes):
        message = f"metadata {key} is missing"
        raise InvalidInputError(message)
    return value


async def _abort(context: Any, error: Exception) -> None:
    details = error_details(error)
    trailers = ((ERROR_KEY, codec.encode(details)),)
    await context.abort(status_of(details), details.message[:200], trailers)
