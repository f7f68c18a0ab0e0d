"""The two requests that a TaskManager writes itself are those of Spark's protocol."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from runtime.common.errors import UnavailableError
from runtime.rpc.spark_connect import SparkConnectServer

SERVICE = "spark.connect.SparkConnectService"


def messages() -> Any:
    for name in ("grpc_status", "google.rpc", "zstandard"):
        pytest.importorskip(name, reason="pip install -r requirements/connect.txt")
    return importlib.import_module("pyspark.sql.connect.proto.base_pb2")


def asked(work: Callable[[SparkConnectServer], Awaitable[None]]) -> tuple[str, bytes, dict[str, str]]:
    """The method, body and metadata of the request that a server gets."""
    seen: list[tuple[str, bytes, dict[str, str]]] = []

    class Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # it takes none at run time
        def service(self, details: Any) -> Any:
            async def answer(request: bytes, _context: object) -> bytes:
                seen.append((details.method, request, dict(details.invocation_metadata)))
                return b""

            return grpc.unary_unary_rpc_method_handler(answer)

    async def run() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((Handler(),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await work(SparkConnectServer(f"127.0.0.1:{port}", has_tls=False, token="t-1"))
        await server.stop(None)

    asyncio.run(run())
    (found,) = seen
    return found


def test_a_release() -> None:
    method, body, metadata = asked(lambda server: server.release("flinklike", "s-1"))
    assert method == f"/{SERVICE}/ReleaseSession"
    assert metadata["authorization"] == "Bearer t-1"
    request = messages().ReleaseSessionRequest.FromString(body)
    assert (request.session_id, request.user_context.user_id) == ("s-1", "flinklike")


def test_an_interrupt_is_of_all_operations() -> None:
    method, body, _ = asked(lambda server: server.interrupt("flinklike", "s-1"))
    assert method == f"/{SERVICE}/Interrupt"
    proto = messages()
    request = proto.InterruptRequest.FromString(body)
    assert (request.session_id, request.user_context.user_id) == ("s-1", "flinklike")
    assert request.interrupt_type == proto.InterruptRequest.INTERRUPT_TYPE_ALL


def test_a_server_that_is_away_is_named() -> None:
    away = SparkConnectServer("127.0.0.1:1", has_tls=False, token="")
    with pytest.raises(UnavailableError, match=r"the Spark Connect server at 127\.0\.0\.1:1 does not answer"):
        asyncio.run(away.release("flinklike", "s-1"))
