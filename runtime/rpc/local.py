"""The transport inside one process: same checks, same bytes, no sockets. Runs on any asyncio loop.

Messages are copied through the codec, so the two ends share no objects. A `LocalNetwork` is the registry of addresses;
tests kill processes there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar

from runtime.aio.scope import ServiceScope
from runtime.common.clock import Clock
from runtime.common.errors import (
    ConflictError,
    InvalidInputError,
    OutcomeUnknownError,
    UnavailableError,
)
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation
from runtime.rpc import codec
from runtime.rpc.client import make_client
from runtime.rpc.frames import ErrorDetails
from runtime.rpc.messages import GatewayMethod
from runtime.rpc.service import NobodyListensError, RpcServer, StreamHello
from runtime.rpc.settings import RpcSettings
from runtime.rpc.status import error_details, error_from, is_bug
from runtime.rpc.stream import FrameStream
from runtime.rpc.switchboard import Switchboard, run_stream_handler

logger = logging.getLogger(__name__)

GatewayT = TypeVar("GatewayT")


class LocalNetwork:
    """Addresses of the services of one process."""

    def __init__(self) -> None:
        self._services: dict[str, LocalRpcService] = {}
        self._ports = 0

    def join(self, service: LocalRpcService, host: str, port: int) -> str:
        """Give a starting service its address. Raises ConflictError when it is taken."""
        if port == 0:
            self._ports += 1
        address = f"{host}:{port or 100_000 + self._ports}"
        if address in self._services:
            message = f"cannot listen on {address}: the port is in use"
            raise ConflictError(message)
        self._services[address] = service
        return address

    def leave(self, address: str) -> None:
        """Remove an address."""
        self._services.pop(address, None)

    def find(self, address: str) -> LocalRpcService:
        """The service that listens there. Raises NobodyListensError."""
        service = self._services.get(address)
        if service is None:
            message = f"{address} cannot be reached: no process listens there"
            raise NobodyListensError(message)
        return service

    async def kill(self, address: str) -> None:
        """End the service as SIGKILL does: no flush, and no answer to running calls."""
        await self.find(address).die()


class LocalRpcService:
    """Implements `RpcService` on a LocalNetwork."""

    def __init__(self, network: LocalNetwork, settings: RpcSettings, clock: Clock) -> None:
        self._network = network
        self._settings = settings
        self._clock = clock
        self._switchboard = Switchboard(settings)
        self._scope = ServiceScope(f"rpc/{settings.incarnation}")
        self._calls: set[asyncio.Task[bytes | ErrorDetails]] = set()
        self._dialed: set[FrameStream] = set()
        self._address = ""

    @property
    def incarnation(self) -> Incarnation:
        """The incarnation of this process."""
        return self._settings.incarnation

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
        token = self._presented_token()

        async def invoke(method: GatewayMethod, request: bytes, /) -> bytes:
            try:
                async with asyncio.timeout(timeout):
                    answer = await self._network.find(address).answer(method.path, token, target, sender, request)
            except TimeoutError as error:
                message = f"{method.gateway}.{method.name} at {address}: no answer within {timeout} s"
                raise OutcomeUnknownError(message) from error
            if isinstance(answer, ErrorDetails):
                raise error_from(answer)
            return answer

        limits = self._settings.limits
        client: GatewayT = make_client(gateway_type, invoke, message_size_max=limits.message_size_max)
        return client

    async def open_stream(self, address: str, hello: StreamHello, *, timeout: float) -> FrameStream:
        """Dial a stream; see `RpcService.open_stream`. A local listener answers at once, `timeout` is not needed."""
        assert timeout > 0, hello
        peer = self._network.find(address)
        hello = codec.decode(StreamHello, codec.encode(hello))
        stream = FrameStream(hello, self._settings.limits, self._clock)
        accepted = peer.accept_stream(hello, self._presented_token())
        self._dialed.add(stream)
        self._scope.spawn(f"stream/{stream.name}/write", _pump(stream, accepted))
        peer.serve_stream(accepted, stream)
        stream.on_end(lambda: self._forget(stream, accepted))
        return stream

    def _forget(self, stream: FrameStream, accepted: FrameStream) -> None:
        self._dialed.discard(stream)
        accepted.end("ended by the peer")

    async def fetch_chunks(self, address: str, name: str, key: str, *, timeout: float) -> AsyncIterator[bytes]:
        """Read an object; see `RpcService.fetch_chunks`."""
        async with aclosing(self._network.find(address).chunks(self._presented_token(), name, key)) as chunks:
            while True:
                try:
                    async with asyncio.timeout(timeout):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    message = f"{name} {key} at {address}: no chunk within {timeout} s"
                    raise UnavailableError(message) from error
                except Exception as error:
                    # The boundary of the chunk source, as in `_serve`.
                    if is_bug(error):
                        logger.exception("reading %s %s failed", name, key)
                    raise error_from(error_details(error)) from error
                yield chunk

    async def identify(self, address: str, *, timeout: float) -> Incarnation:
        """Which process listens there; see `RpcService.identify`."""
        assert timeout > 0, address
        return self._network.find(address).identity(self._presented_token())

    def _presented_token(self) -> str | None:
        token = self._settings.credential
        return None if token is None else token.reveal()

    # --- being dialled --------------------------------------------------------------------------------------------

    async def answer(
        self,
        path: str,
        token: str | None,
        target: FencingToken | None,
        sender: FencingToken | None,
        request: bytes,
    ) -> bytes | ErrorDetails:
        """Serve one call in a task of this service; it is cancelled with its caller, as a network would do."""
        task = self._scope.start(f"call{path}", self._serve(path, token, target, sender, request))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.cancelled():
            message = f"{path} at {self._address}: the peer has stopped meanwhile"
            raise OutcomeUnknownError(message)
        return task.result()

    async def _serve(
        self,
        path: str,
        token: str | None,
        target: FencingToken | None,
        sender: FencingToken | None,
        request: bytes,
    ) -> bytes | ErrorDetails:
        try:
            self._switchboard.authenticate(token)
            return await self._switchboard.call(path, target, sender, request)
        except Exception as error:
            # The boundary of the endpoint: whatever it raised goes to its caller.
            if is_bug(error):
                logger.exception("call %s failed", path)
            return error_details(error)

    def identity(self, token: str | None) -> Incarnation:
        """The incarnation of this process. Raises UnauthenticatedError."""
        self._switchboard.authenticate(token)
        return self._switchboard.incarnation

    def accept_stream(self, hello: StreamHello, token: str | None) -> FrameStream:
        """The listening end of a stream. Raises what refuses it."""
        self._switchboard.authenticate(token)
        self._switchboard.accept(hello)
        return FrameStream(hello, self._settings.limits, self._clock)

    def serve_stream(self, stream: FrameStream, dialed: FrameStream) -> None:
        """Run the handler of an accepted stream."""
        handler = self._switchboard.accept(stream.hello)
        self._switchboard.opened(stream)
        stream.on_end(lambda: self._stream_over(stream, dialed))
        self._scope.spawn(f"stream/{stream.name}/write", _pump(stream, dialed))
        self._scope.spawn(f"stream/{stream.name}", run_stream_handler(handler, stream, stream.name))

    def _stream_over(self, stream: FrameStream, dialed: FrameStream) -> None:
        self._switchboard.over(stream)
        dialed.end("ended by the peer")

    def chunks(self, token: str | None, name: str, key: str) -> AsyncGenerator[bytes, None]:
        """Serve an object."""
        self._switchboard.authenticate(token)
        return self._switchboard.chunks(name, key)

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the network."""
        self._address = self._network.join(self, self._settings.address, self._settings.port)
        self._switchboard.bound_to(self._address)
        await self._scope.open()

    async def wait_failed(self) -> None:
        """Wait for a failure of what runs in the background; see `RpcService.wait_failed`."""
        await self._scope.wait_failed()

    async def stop(self, *, grace: float) -> None:
        """Leave the network; see `RpcService.stop`."""
        self._network.leave(self._address)
        streams = [*self._switchboard.open_streams(), *self._dialed]
        async with asyncio.TaskGroup() as closing:
            for stream in streams:
                _ = closing.create_task(stream.close(), name=f"rpc/close/{stream.name}")
        if self._calls:
            await asyncio.wait(set(self._calls), timeout=grace)
        await self._scope.close()

    async def die(self) -> None:
        """End without closing streams in order."""
        self._network.leave(self._address)
        for stream in [*self._switchboard.open_streams(), *self._dialed]:
            stream.abort("the process was killed")
        await self._scope.close()


async def _pump(source: FrameStream, target: FrameStream) -> None:
    """Carry frames until the source is closed or has ended, then end the other side."""
    while (frame := await source.next_frame()) is not None:
        try:
            await target.deliver(frame)
        except InvalidInputError as error:
            source.abort(f"the peer refused a frame: {error}")
    target.end("closed by the peer")
    source.end("closed")
