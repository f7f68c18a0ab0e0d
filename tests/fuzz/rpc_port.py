"""A gRPC port: messages of a process that has the credential, for each method, and what is no call (R39, R46, R52)."""

from __future__ import annotations

import asyncio
import base64
import struct
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from runtime.aio.clock import LoopClock
from runtime.gateways.dispatcher import DispatcherGateway, JobRequest
from runtime.rpc import codec
from runtime.rpc.grpc_channels import (
    CHUNK_PATH,
    CREDENTIAL_KEY,
    HELLO_KEY,
    IDENTITY_PATH,
    SENDER_KEY,
    STREAM_PATH,
    TARGET_KEY,
)
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.settings import RpcSettings
from runtime.rpc.switchboard import known_methods
from runtime.security.tokens import ClusterToken
from tests.fuzz.port import AS_IT_IS, PATIENCE, Ear, asked
from tests.fuzz.surface import MIB, Surface
from tests.kit.control_plane.rpc_wire import KIND, LISTENER, accept_all, drain, hello, no_chunks
from tests.kit.rest.fakes import JOB
from tests.kit.rest.server import ObedientDispatcher
from tests.kit.strangers.h2_floods import (
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
    literal,
    request_headers,
)

_T = TypeVar("_T")
_CREDENTIAL = "the-credential-of-this-cluster"
_PATHS = (STREAM_PATH, CHUNK_PATH, IDENTITY_PATH, *sorted(known_methods()))
_BEGIN = PREFACE + frame(SETTINGS, 0, 0)
_DATA = 0
_FRAME_MAX = 16_384
_SEES_TO_IT_EVERY = 100


class _Served:
    """The service of one process, on a loop of its own, and another process that may speak with it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        settings = RpcSettings(LISTENER, ClusterToken(_CREDENTIAL))
        self._service = self._do(self._started(settings))
        self.port = int(self._service.server.address.rpartition(":")[2])

    def _do(self, what: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(PATIENCE)

    async def _started(self, settings: RpcSettings) -> GrpcRpcService:
        service = GrpcRpcService(settings, LoopClock())
        await service.start()
        service.server.add_gateway(DispatcherGateway, ObedientDispatcher(), check=accept_all)
        service.server.add_stream_handler(KIND, drain, check=accept_all)
        service.server.add_chunk_source("blobs", no_chunks)
        return service

    def check(self) -> None:
        """It serves who has the credential. Raises what keeps it from that."""
        who = self._do(self._service.identify(self._service.server.address, timeout=PATIENCE))
        assert who == LISTENER, who


def _call(number: int, message: bytes) -> bytes:
    """A call of that method, with all that is shown to it, and one message."""
    headers = request_headers(_PATHS[number % len(_PATHS)].encode()) + literal(
        CREDENTIAL_KEY.encode(), _CREDENTIAL.encode()
    )
    headers += b"".join(literal(key.encode(), b"7@" + b"c" * 32) for key in (TARGET_KEY, SENDER_KEY))
    headers += literal(HELLO_KEY.encode(), _in_base64(codec.encode(hello())))
    body = b"\x00" + struct.pack(">I", len(message)) + message
    pieces = [body[at : at + _FRAME_MAX] for at in range(0, len(body), _FRAME_MAX)]
    data = b"".join(frame(_DATA, 0, 1, piece) for piece in pieces)
    return _BEGIN + frame(HEADERS, END_HEADERS, 1, headers) + data + frame(_DATA, END_STREAM, 1)


def _in_base64(data: bytes) -> bytes:
    return base64.b64encode(data).rstrip(b"=")


def _begin() -> Callable[[bytes], object]:
    served, ear, fed = _Served(), Ear(), 0

    def feed(data: bytes) -> object:
        nonlocal fed
        fed += 1
        is_as_it_is = data[:1] == bytes([AS_IT_IS])
        sent = data[1:] if is_as_it_is else _call(data[0] if data else 0, data[1:])
        answer = asked(served.port, sent, is_all=True)
        if fed % _SEES_TO_IT_EVERY == 0:
            served.check()
        ear.check()
        return _kinds(answer)

    return feed


def _kinds(answer: bytes) -> str:
    """Of the frames that came."""
    kinds, at = list[str](), 0
    while at + 9 <= len(answer):
        kinds.append(str(answer[at + 3]))
        at += 9 + int.from_bytes(answer[at : at + 3], "big")
    return " ".join(kinds)


def _seeds() -> Sequence[bytes]:
    asks = codec.encode(JobRequest(JOB))
    calls = [bytes([number]) + asks for number in range(len(_PATHS))]
    stranger = frame(HEADERS, END_HEADERS, 1, request_headers())
    raw = [
        _BEGIN,
        *(_call(number, asks) for number in range(len(_PATHS))),
        _BEGIN + stranger + frame(RST_STREAM, 0, 1, bytes(4)),
        _BEGIN + frame(HEADERS, 0, 1, request_headers()) + frame(CONTINUATION, END_HEADERS, 1, literal(b"a", b"b")),
        bytes.fromhex("1603010200010001fc0303") + bytes(range(256)),
    ]
    return [*calls, *(bytes([AS_IT_IS]) + one for one in raw)]


SURFACES = (
    Surface(
        "rpc-port",
        _begin,
        _seeds,
        (),
        prefix=1,
        tokens=(
            frame(SETTINGS, 0, 0),
            frame(HEADERS, END_HEADERS, 3, request_headers()),
            frame(_DATA, END_STREAM, 1, bytes(5)),
            frame(RST_STREAM, 0, 1, bytes(4)),
            frame(CONTINUATION, 0, 1, literal(b"a", b"b")),
            literal(b"grpc-encoding", b"gzip"),
            literal(b"grpc-timeout", b"1n"),
            literal(b"bad-bin", b"!!"),
        ),
        cpu_seconds=3.0,  # with that of the server's threads, which may be busy with the connection before
        peak_bytes=64 * MIB,
    ),
)
