"""RpcService over the simulated network: the product's own switchboard and streams, with recorded messages."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from runtime.aio.scope import ServiceScope
from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError, OutcomeUnknownError, UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation
from runtime.gateways.dispatcher import JobMasterHeartbeat
from runtime.gateways.job_master import Heartbeat
from runtime.rpc import codec
from runtime.rpc.client import make_client
from runtime.rpc.frames import ErrorDetails
from runtime.rpc.messages import GatewayMethod
from runtime.rpc.service import NobodyListensError, RpcServer, StreamHello, StreamKind
from runtime.rpc.settings import RpcSettings
from runtime.rpc.status import error_details, error_from, is_bug
from runtime.rpc.stream import FrameStream
from runtime.rpc.switchboard import Switchboard, run_stream_handler
from tests.kit.simulation.history import History, Received, Sent
from tests.kit.simulation.network import (
    ConnectionLostError,
    Dial,
    Listener,
    Network,
    RefusedError,
    Reply,
    WireEnd,
)
from tests.kit.simulation.processes import SimulatedProcess, current_process

logger = logging.getLogger(__name__)

GatewayT = TypeVar("GatewayT")

_UNTOLD = frozenset({Heartbeat, JobMasterHeartbeat})


@dataclass(frozen=True, slots=True)
class _Call:
    path: str
    target: FencingToken | None
    sender: FencingToken | None
    request: bytes


@dataclass(frozen=True, slots=True)
class _Fetch:
    name: str
    key: str


@dataclass(frozen=True, slots=True)
class _Identify:
    is_connection = True


class _RecordedStream(FrameStream):
    """Tells the history what components say and hear."""

    def __init__(self, service: SimulatedRpcService, hello: StreamHello, end: WireEnd | None) -> None:
        super().__init__(hello, service.settings.limits, service.clock)
        self._service = service
        self.peer = "" if end is None else end.peer.process.name

    def send(self, message: Any, /) -> None:
        """Queue a message."""
        super().send(message)
        self._service.record(Sent(self.peer, message))

    async def receive(self) -> Sequence[Any]:
        """Everything that has arrived."""
        messages = await super().receive()
        for message in messages:
            self._service.record(Received(self.peer, message))
        return messages


class SimulatedRpcService:
    """Implements `RpcService` for the process that makes it."""

    def __init__(self, network: Network, history: History, settings: RpcSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self._network = network
        self._history = history
        self._process: SimulatedProcess = current_process()
        self._switchboard = Switchboard(settings)
        self._scope = ServiceScope(f"rpc/{settings.incarnation}")
        self._dialed: dict[int, FrameStream] = {}
        self._address = ""

    def record(self, what: Sent | Received) -> None:
        """Everything but heartbeats."""
        if type(what.message) not in _UNTOLD:
            self._history.add(self._network.loop.time(), self._process.name, what)

    @property
    def server(self) -> RpcServer:
        """What this process serves."""
        return self._switchboard

    # --- dialling ---------------------------------------------------------------------------------------------------

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

        async def invoke(method: GatewayMethod, request: bytes, /) -> bytes:
            what = f"{method.gateway}.{method.name} at {address}"
            answer = await self._ask(address, _Call(method.path, target, sender, request), what, timeout)
            assert isinstance(answer, bytes), answer
            return answer

        client: GatewayT = make_client(gateway_type, invoke, message_size_max=self.settings.limits.message_size_max)
        return client

    async def _ask(self, address: str, payload: object, what: str, timeout: float) -> object:
        try:
            answer = await self._network.request(self._process, address, payload, timeout=timeout)
        except RefusedError as error:
            message = f"{what}: connection refused"
            raise UnavailableError(message) from error
        except (TimeoutError, ConnectionLostError) as error:
            message = f"{what}: no answer"
            raise OutcomeUnknownError(message) from error
        if isinstance(answer, ErrorDetails):
            raise error_from(answer)
        return answer

    async def open_stream(self, address: str, hello: StreamHello, *, timeout: float) -> FrameStream:
        """Dial a stream; see `RpcService.open_stream`."""
        hello = codec.decode(StreamHello, codec.encode(hello))
        try:
            carries_tasks = hello.kind is StreamKind.TASK_MANAGER_TO_JOB_MASTER
            end, answer = await self._network.dial(
                self._process, address, hello, carries_tasks=carries_tasks, timeout=timeout
            )
        except (RefusedError, ConnectionLostError, TimeoutError) as error:
            message = f"{address} cannot be reached: {type(error).__name__}"
            raise UnavailableError(message) from error
        if isinstance(answer, ErrorDetails):
            raise error_from(answer)
        stream = _RecordedStream(self, hello, end)
        self._dialed[id(stream)] = stream
        self._carry(stream, end, lambda: self._dialed.pop(id(stream), None))
        return stream

    async def fetch_chunks(self, address: str, name: str, key: str, *, timeout: float) -> AsyncIterator[bytes]:
        """Read an object: travels in one piece here."""
        try:
            chunks = await self._ask(address, _Fetch(name, key), f"{name} {key} at {address}", timeout)
        except OutcomeUnknownError as error:
            raise UnavailableError(str(error)) from error
        assert isinstance(chunks, list), chunks
        for chunk in chunks:
            yield chunk

    async def identify(self, address: str, *, timeout: float) -> Incarnation:
        """Which process listens there; see `RpcService.identify`."""
        try:
            answer = await self._network.request(self._process, address, _Identify(), timeout=timeout)
        except RefusedError as error:
            message = f"{address}: connection refused"
            raise NobodyListensError(message) from error
        except (TimeoutError, ConnectionLostError) as error:
            message = f"{address} does not answer"
            raise UnavailableError(message) from error
        assert isinstance(answer, str), answer
        return Incarnation(answer)

    # --- both ends of a stream --------------------------------------------------------------------------------------

    def _carry(self, stream: FrameStream, end: WireEnd, on_end: Callable[[], object]) -> None:
        lane = _Lane(stream, end)

        def ended() -> None:
            on_end()
            lane.wake()

        stream.on_end(ended)
        self._scope.spawn(f"stream/{stream.name}/write", lane.write())
        self._scope.spawn(f"stream/{stream.name}/read", lane.read())

    # --- being dialled ----------------------------------------------------------------------------------------------

    def _on_request(self, payload: Any, reply: Reply) -> None:
        if not self._scope.is_open:
            reply(RefusedError(self._address))
        elif isinstance(payload, Dial):
            self._on_dial(payload, reply)
        elif isinstance(payload, _Identify):
            reply(str(self._switchboard.incarnation))
        elif isinstance(payload, _Call):
            self._scope.spawn(f"call{payload.path}", self._serve(payload, reply))
        else:
            self._scope.spawn(f"chunks/{payload.name}", self._serve_chunks(payload, reply))

    async def _serve(self, call: _Call, reply: Reply) -> None:
        try:
            reply(await self._switchboard.call(call.path, call.target, call.sender, call.request))
        except Exception as error:
            # The boundary of the endpoint: whatever it raised goes to its caller.
            if is_bug(error):
                logger.exception("call %s failed", call.path)
            reply(error_details(error))

    async def _serve_chunks(self, fetch: _Fetch, reply: Reply) -> None:
        try:
            reply([chunk async for chunk in self._switchboard.chunks(fetch.name, fetch.key)])
        except Exception as error:
            # The boundary of the chunk source.
            if is_bug(error):
                logger.exception("reading %s %s failed", fetch.name, fetch.key)
            reply(error_details(error))

    def _on_dial(self, dial: Dial, reply: Reply) -> None:
        hello: StreamHello = dial.hello
        try:
            handler = self._switchboard.accept(hello)
        except Exception as error:  # noqa: BLE001 - the boundary: what refuses a stream goes to its dialler
            reply(error_details(error))
            return
        end = self._network.accept(self._process, dial)
        stream = _RecordedStream(self, hello, end)
        self._switchboard.opened(stream)
        reply("accepted")
        self._carry(stream, end, lambda: self._switchboard.over(stream))
        self._scope.spawn(f"stream/{stream.name}", run_stream_handler(handler, stream, stream.name))

    # --- life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen."""
        listener = Listener(self._process, self._on_request)
        self._address = self._network.listen(self.settings.address, self.settings.port, listener)
        self._switchboard.bound_to(self._address)
        await self._scope.open()

    async def wait_failed(self) -> None:
        """Wait for a failure of what runs in the background."""
        await self._scope.wait_failed()

    async def stop(self, *, grace: float) -> None:
        """Refuse new calls and close all streams."""
        self._network.close(self._address)
        streams = [*self._switchboard.open_streams(), *self._dialed.values()]
        async with asyncio.TaskGroup() as closing:
            for stream in streams:
                _ = closing.create_task(stream.close(), name=f"rpc/close/{stream.name}")
        await self._scope.close()


class _Lane:
    """Carries the frames of one end of a stream onto its wire, and what arrives into the stream."""

    def __init__(self, stream: FrameStream, end: WireEnd) -> None:
        self._stream = stream
        self._end = end
        self._arrived: deque[tuple[object, str]] = deque()
        self._is_delivering = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        end.listen(self._on_item)

    def _on_item(self, item: object, reason: str) -> None:
        if isinstance(item, bytes) and not self._arrived and not self._is_delivering and self._stream.has_room:
            self._deliver_now(item)
        else:
            self._arrived.append((item, reason))
            self._news.set()

    def _deliver_now(self, frame: bytes) -> None:
        """What does not have to wait needs no turn of the reader's."""
        try:
            self._stream.deliver(frame).send(None)
        except StopIteration:
            return
        except InvalidInputError as error:
            self._refuse(error)
        else:
            message = f"{self._stream} has no room after all"
            raise AssertionError(message)

    def _refuse(self, error: InvalidInputError) -> None:
        self._stream.abort(f"the peer sent a frame that cannot be read: {error}")

    def wake(self) -> None:
        """The stream has ended."""
        self._news.set()
        self._room.set()

    async def write(self) -> None:
        """Until the stream is closed or has ended."""
        stream, end = self._stream, self._end
        while (frame := await stream.next_frame()) is not None:
            while not end.has_room and not stream.is_ended:
                self._room.clear()
                end.on_room = self._room.set
                await self._room.wait()
                end.on_room = None
            end.send(frame)
        end.end()
        stream.end("closed")

    async def read(self) -> None:
        """Until the wire is over."""
        stream = self._stream
        while not stream.is_ended:
            while self._arrived:
                item, reason = self._arrived.popleft()
                if item is None:
                    stream.end(reason)
                    return
                assert isinstance(item, bytes)
                self._is_delivering = True
                try:
                    await stream.deliver(item)
                except InvalidInputError as error:
                    self._refuse(error)
                finally:
                    self._is_delivering = False
            self._news.clear()
            await self._news.wait()
