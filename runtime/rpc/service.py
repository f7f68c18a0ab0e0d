"""RpcService: the transport between components of different processes, which the simulation replaces.

Two kinds of traffic. *Calls*: one request message, one response message, a deadline, tokens (R1). *Streams*: ordered
and numbered (R11) messages in both directions between two processes; messages that wait for a write share a frame.
Implementations: `grpc_service` (production), `local` (one process, messages copied through the codec).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from runtime.common.errors import UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import Incarnation

GatewayT = TypeVar("GatewayT")


class NobodyListensError(UnavailableError):
    """The host lives and refuses the connection: no process listens at the address."""


class StreamKind(Enum):
    """The pair of components that a stream joins; the dialling side is named first."""

    JOB_MASTER_TO_DISPATCHER = "JOB_MASTER_TO_DISPATCHER"
    TASK_MANAGER_TO_RESOURCE_MANAGER = "TASK_MANAGER_TO_RESOURCE_MANAGER"
    TASK_MANAGER_TO_JOB_MASTER = "TASK_MANAGER_TO_JOB_MASTER"
    JOB_MANAGER_TO_JOB_MANAGER = "JOB_MANAGER_TO_JOB_MANAGER"


@dataclass(frozen=True, slots=True)
class StreamHello:
    """How a dialling process introduces its stream, before any message.

    `number` rises with each stream that `dialer` opens to the same peer (R11); the listener closes older ones of
    the same (kind, dialer) and drops what they had not delivered. `target` is the listener's term as the dialer
    believes it (None: at registration, when it cannot know); `target_incarnation` the process it means ("": any).
    """

    kind: StreamKind
    dialer: Incarnation
    dialer_address: str
    number: int
    target: FencingToken | None
    target_incarnation: str


class MessageStream(Protocol):
    """One end of a stream. Messages arrive in order, each at most once, all of them or the stream ends."""

    @property
    def hello(self) -> StreamHello:
        """The dialer's introduction, the same on both ends."""

    @property
    def last_heard(self) -> float:
        """Monotonic time at which data last arrived."""

    @property
    def last_sent(self) -> float:
        """Monotonic time at which a message was last queued."""

    def send(self, message: Any, /) -> None:
        """Queue a message of `runtime.gateways`. Never blocks, and never waits for further messages.

        One write is in flight; messages that are queued meanwhile go in the next. Raises BackpressureError when the
        bounded outbox is full, MessageTooLargeError above the message size limit, and UnavailableError when the
        stream has ended.
        """

    async def receive(self) -> Sequence[Any]:
        """All messages that have arrived, at least one. Raises UnavailableError at the end of the stream."""

    async def close(self) -> None:
        """Send queued messages for at most one second, then end the stream. Idempotent."""

    def abort(self, reason: str) -> None:
        """End the stream at once, without the queued messages. Both ends see UnavailableError. Idempotent."""


StreamHandler = Callable[[MessageStream], Awaitable[None]]
"""Serves one accepted stream; the stream is closed when it returns or raises."""

ChunkSource = Callable[[str], AsyncIterator[bytes]]
"""key -> the bytes of that object in chunks of 256 KiB to 1 MiB; raises NotFoundError."""

TokenCheck = Callable[[FencingToken | None, FencingToken | None], None]
"""(target, sender) of a call -> None, or raises StaleTokenError. Runs before anything else (R1)."""


class RpcServer(Protocol):
    """The listening half of a process."""

    @property
    def address(self) -> str:
        """host:port that others dial."""

    def add_gateway(self, gateway_type: type[GatewayT], endpoint: GatewayT, *, check: TokenCheck) -> None:
        """Serve all methods of a gateway Protocol. `check` sees (target, sender) before the endpoint does."""

    def remove_gateway(self, gateway_type: type[Any]) -> None:
        """Stop serving a gateway (a term ended); callers get UnavailableError."""

    def add_stream_handler(self, kind: StreamKind, handler: StreamHandler, *, check: TokenCheck) -> None:
        """Accept streams of a kind."""

    def remove_stream_handler(self, kind: StreamKind) -> None:
        """Stop accepting streams of a kind and end the open ones."""

    def add_chunk_source(self, name: str, source: ChunkSource) -> None:
        """Serve large objects by key under `name` (`blobs`): streamed, never as one message."""


class RpcService(Protocol):
    """Transport of one process."""

    @property
    def server(self) -> RpcServer:
        """The listening half, usable after `start`."""

    def connect(
        self,
        gateway_type: type[GatewayT],
        address: str,
        *,
        target: FencingToken | None,
        sender: FencingToken | None,
        timeout: float,
    ) -> GatewayT:
        """A typed client. Each call has a deadline of `timeout` seconds.

        Raises on call: UnavailableError (not executed), OutcomeUnknownError (perhaps executed), or the error
        that the endpoint raised, by class.
        """

    async def open_stream(self, address: str, hello: StreamHello, *, timeout: float) -> MessageStream:
        """Dial a stream. Returns when the listener has accepted it. Raises UnavailableError or StaleTokenError."""

    def fetch_chunks(self, address: str, name: str, key: str, *, timeout: float) -> AsyncIterator[bytes]:
        """Read an object from a peer's chunk source over a channel of its own. `timeout` bounds each chunk."""

    async def identify(self, address: str, *, timeout: float) -> Incarnation:
        """The incarnation of the process that listens there, over a new connection.

        Raises NobodyListensError, and UnavailableError when no answer comes within `timeout`.
        """

    async def start(self) -> None:
        """Bind and listen."""

    async def wait_failed(self) -> None:
        """Wait between start and stop, and raise the failure of a background task.

        The owner of the service runs this: after such a failure no stream can be opened any more.
        """

    async def stop(self, *, grace: float) -> None:
        """Refuse new calls, let running ones end for `grace` seconds, close all streams."""
