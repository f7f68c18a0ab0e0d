"""Both REST clients over the real REST application, in this process, with faults on the way.

One suite drives either client: `ClientBox.call("status", job_id)`. A fault is taken for each request from the front of
`Wire.faults`; when there is none left, requests simply arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from typing import Any

import httpx
from starlette.types import ASGIApp

from airflow_flinklike.client import AsyncFlinklikeClient, FlinklikeClient
from runtime.rest.app import create_app
from runtime.rest.context import RestContext
from tests.kit.rest.fakes import RestFakes, shown

TOKEN = "the-cluster-token"


class Fault(Enum):
    """What happens to a request instead of being answered."""

    NONE = "none"
    REFUSED = "nothing listens there"
    CONNECT_TIMEOUT = "the host does not answer"
    LOST_BEFORE = "the connection breaks before the request is executed"
    LOST_AFTER = "the request is executed and its answer lost"


@dataclass(slots=True)
class Wire:
    """What happens between clients and the application, and what was seen there."""

    app: ASGIApp
    faults: list[Fault | httpx.Response] = field(default_factory=list)
    is_down: Callable[[httpx.Request], bool] = lambda _: False
    seen: list[httpx.Request] = field(default_factory=list)
    largest_chunk: int = 0

    def paths(self) -> list[str]:
        """`METHOD path` of every request, in order."""
        return [f"{request.method} {request.url.path}" for request in self.seen]

    async def handle(self, request: httpx.Request) -> httpx.Response:
        """Carry one request to the application, or fail it."""
        self.seen.append(request)
        chunks = [chunk async for chunk in _chunks_of(request)]
        self.largest_chunk = max([self.largest_chunk, *map(len, chunks)])
        fault = Fault.REFUSED if self.is_down(request) else self.faults.pop(0) if self.faults else Fault.NONE
        if isinstance(fault, httpx.Response):
            return fault
        if fault is Fault.REFUSED:
            raise httpx.ConnectError("[Errno 111] Connection refused", request=request)
        if fault is Fault.CONNECT_TIMEOUT:
            raise httpx.ConnectTimeout("timed out", request=request)
        if fault is Fault.LOST_BEFORE:
            raise httpx.ReadError("connection reset", request=request)
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
        arriving = httpx.Request(request.method, request.url, headers=request.headers, stream=_Pieces(chunks))
        response = await transport.handle_async_request(arriving)
        if fault is Fault.LOST_AFTER:
            raise httpx.RemoteProtocolError("server disconnected", request=request)
        return response


class AsyncWire(httpx.AsyncBaseTransport):
    """For the asyncio client."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One request."""
        return await self._wire.handle(request)


class _Pieces(httpx.AsyncByteStream):
    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


async def _chunks_of(request: httpx.Request) -> AsyncIterator[bytes]:
    """The body as the client sends it. An error while it is read is the client's own: the server never sees it."""
    if isinstance(request.stream, httpx.SyncByteStream):
        for chunk in request.stream:
            yield chunk
    else:
        async for chunk in request.stream:
            yield chunk


class SyncWire(httpx.BaseTransport):
    """For the blocking client: runs the application on a loop of its own for each request."""

    def __init__(self, wire: Wire, runner: asyncio.Runner) -> None:
        self._wire = wire
        self._runner = runner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request; the answer is read whole."""

        async def answer() -> httpx.Response:
            response = await self._wire.handle(request)
            return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())

        return self._runner.run(answer())


@dataclass(slots=True)
class _Stage:
    """The fakes that the one application of this process shows now: building one takes a tenth of a second."""

    fakes: RestFakes

    def context(self) -> RestContext:
        """A context that always asks the fakes of the moment."""
        return replace(self.fakes.context(), leader=lambda: self.fakes.context().leader())


@cache
def _stage() -> tuple[_Stage, ASGIApp]:
    made = _Stage(RestFakes())
    return made, create_app(made.context(), sign_in=shown(TOKEN), content_length_max=1 << 20, hosts={"test"})


def stage(fakes: RestFakes) -> ASGIApp:
    """The application over these fakes, until others are put there."""
    found, app = _stage()
    found.fakes = fakes
    return app


class ClientBox:
    """One client of one kind, the fakes behind the application, and the pauses that the client made."""

    def __init__(self, kind: str, runner: asyncio.Runner) -> None:
        self.fakes = RestFakes()
        self.kind = kind
        self._runner = runner
        self.wire = Wire(stage(self.fakes))
        self.pauses: list[float] = []
        self._client: FlinklikeClient | AsyncFlinklikeClient = self.connect()

    def connect(
        self, addresses: Sequence[str] = ("http://one:1",), token: str | None = TOKEN, *, retry_for: float = 60.0
    ) -> FlinklikeClient | AsyncFlinklikeClient:
        """Replace the client."""
        if self.kind == "sync":
            self._client = FlinklikeClient(
                addresses,
                token,
                retry_for=retry_for,
                transport=SyncWire(self.wire, self._runner),
                sleep=self.pauses.append,
            )
        else:
            self._client = AsyncFlinklikeClient(
                addresses, token, retry_for=retry_for, transport=AsyncWire(self.wire), sleep=self._sleep
            )
        return self._client

    def call(self, method: str, *arguments: Any, **more: Any) -> Any:
        """Call a method of the client and wait for its answer."""
        answer = getattr(self._client, method)(*arguments, **more)
        return answer if self.kind == "sync" else self._runner.run(_awaited(answer))

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


async def _awaited(answer: Any) -> Any:
    return await answer
