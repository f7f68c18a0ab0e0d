"""gRPC's asyncio server, mended: whatever a stranger calls, it goes on (R52).

`grpc.aio` takes the path of each call for text in the task that accepts calls, so one path that is none ended the whole
server, without a word to the process. Paths are registered instead, and told apart by gRPC's core, byte by byte; what
has another one is answered with UNIMPLEMENTED, and its path is not looked at. Should accepting end all the same, the
process hears it. What strangers put into metadata fills no log. This rests on internals of grpcio, whose version is
pinned; the contract tests find a change of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import grpc.aio
from grpc._cython import cygrpc
from grpc.aio._server import Server

_UNKNOWN = ""
_NO_TEXT = "Invalid encoding on"
"""How gRPC begins what it logs, with a traceback, of each name and value in the metadata that is no text."""
_NO_INTERCEPTORS: tuple[Any, ...] = ()


logging.getLogger(cygrpc.__name__).addFilter(lambda record: not str(record.msg).startswith(_NO_TEXT))


class _AcceptingServer(cygrpc.AioServer):  # type: ignore[misc]  # has no stubs
    """`AioServer` accepts by awaiting a call of each of these; here they serve for ever, each its own path."""

    def attend(self, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]], on_crash: Callable[[str], None]) -> None:
        """Before `start`, once."""
        self._calls: set[asyncio.Task[None]] = set()
        self._on_crash = on_crash
        self._by_path = cygrpc._MethodResolver([], dict(handlers))  # noqa: SLF001
        self._by_no_path = cygrpc._MethodResolver([], {})  # noqa: SLF001
        self.add_registered_method_handlers(dict(handlers))

    async def _request_registered_call(self, method: bytes) -> None:
        path = method.decode()
        while True:
            self._serve(path, self._by_path, await super()._request_registered_call(method))

    async def _request_call(self) -> None:
        while True:
            self._serve(_UNKNOWN, self._by_no_path, await super()._request_call())

    def _serve(self, path: str, resolver: Any, state: Any) -> None:
        loop = asyncio.get_running_loop()
        answered = cygrpc._handle_rpc(path, resolver, _NO_INTERCEPTORS, state, loop, False)  # noqa: FBT003, SLF001
        task = loop.create_task(cygrpc._schedule_rpc_coro(answered, state, loop, path))  # noqa: SLF001
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    def _serving_task_crash_handler(self, task: asyncio.Task[None]) -> None:
        super()._serving_task_crash_handler(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_crash(f"the gRPC server takes no more calls: {type(error).__name__}: {error}")


class _Server(Server):
    def __init__(self, options: Sequence[tuple[str, Any]]) -> None:
        self._loop = cygrpc.get_working_loop()
        self._server = _AcceptingServer(self._loop, None, [], None, tuple(options), None)

    def attend(self, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]], on_crash: Callable[[str], None]) -> None:
        self._server.attend(handlers, on_crash)


def mended_server(
    handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]],
    options: Sequence[tuple[str, Any]],
    on_crash: Callable[[str], None],
) -> grpc.aio.Server:
    """A server of these `handlers`, by path. `on_crash` is called with a sentence if it accepts no more."""
    server = _Server(options)
    server.attend(handlers, on_crash)
    mended: Any = server
    return cast("grpc.aio.Server", mended)
