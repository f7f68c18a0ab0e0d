"""gRPC's asyncio server, with a fix: no call of a stranger can end it (R52).

`grpc.aio` decodes the path of each call in the task that accepts calls, so one path that is not UTF-8 ended the server,
and the process did not notice. Here paths are registered, and gRPC's core compares them byte by byte; a call with
another path is answered with UNIMPLEMENTED, and its path is not decoded. If the accepting task ends nevertheless,
`on_crash` is called. Metadata of strangers is not logged. The fix uses internals of grpcio, whose version is pinned;
the contract tests find a change of them.
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
"""Beginning of the message that gRPC logs, with a traceback, for each malformed name or value in metadata."""
_NO_INTERCEPTORS: tuple[Any, ...] = ()


logging.getLogger(cygrpc.__name__).addFilter(lambda record: not str(record.msg).startswith(_NO_TEXT))


class _AcceptingServer(cygrpc.AioServer):  # type: ignore[misc]  # has no stubs
    """`AioServer` awaits each `_request_*` method once for a call; here each of them serves its path for ever."""

    def attend(self, handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]], on_crash: Callable[[str], None]) -> None:
        """Register the handlers. Called once, before `start`."""
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
    """A server of these `handlers`, by path. `on_crash` is called with a sentence when it accepts no more calls."""
    server = _Server(options)
    server.attend(handlers, on_crash)
    mended: Any = server
    return cast("grpc.aio.Server", mended)
