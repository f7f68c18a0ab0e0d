"""What a TaskManager asks a Spark Connect server for: to interrupt a session's operations, and to end a session.

The session is a client's in another process, which may be dead. So that this process needs no PySpark, the two requests
are written here, field by field as in Spark's `connect/base.proto`.
"""

from __future__ import annotations

from pathlib import Path

import grpc

from runtime.common.errors import UnavailableError

_SERVICE = "/spark.connect.SparkConnectService"
_TIMEOUT = 5.0
_LENGTH_DELIMITED, _VARINT = 2, 0
_SESSION_ID, _USER_CONTEXT, _CLIENT_TYPE, _INTERRUPT_TYPE = 1, 2, 3, 4
_USER_ID = 1
_ALL = 1
_CLIENT = "flinklike-taskmanager"


class SparkConnectServer:
    """`endpoint`: host:port. `token`: "" for a server that asks for none. `ca`: "" for the authorities of this host."""

    def __init__(self, endpoint: str, *, has_tls: bool, token: str, ca: str = "") -> None:
        self._endpoint = endpoint
        self._credentials = grpc.ssl_channel_credentials(Path(ca).read_bytes() if ca else None) if has_tls else None
        self._metadata = [("authorization", f"Bearer {token}")] if token else []

    async def interrupt(self, user_id: str, session_id: str) -> None:
        """End all operations of a session. Raises UnavailableError."""
        await self._call("Interrupt", _request(user_id, session_id) + _number(_INTERRUPT_TYPE, _ALL))

    async def release(self, user_id: str, session_id: str) -> None:
        """End a session with all that it has at the server. Idempotent. Raises UnavailableError."""
        await self._call("ReleaseSession", _request(user_id, session_id))

    async def _call(self, method: str, request: bytes) -> None:
        try:
            async with self._channel() as channel:
                path = f"{_SERVICE}/{method}"
                call = channel.unary_unary(path, request_serializer=bytes, response_deserializer=bytes)
                await call(request, timeout=_TIMEOUT, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            message = f"the Spark Connect server at {self._endpoint} does not answer: {error.code().name}"
            raise UnavailableError(message) from error

    def _channel(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._endpoint)
        return grpc.aio.secure_channel(self._endpoint, self._credentials)


def _request(user_id: str, session_id: str) -> bytes:
    user = _text(_USER_ID, user_id)
    return _text(_SESSION_ID, session_id) + _bytes(_USER_CONTEXT, user) + _text(_CLIENT_TYPE, _CLIENT)


def _text(field: int, text: str) -> bytes:
    return _bytes(field, text.encode())


def _bytes(field: int, data: bytes) -> bytes:
    assert len(data) < 128, data  # one byte holds the length
    return bytes([field << 3 | _LENGTH_DELIMITED, len(data)]) + data


def _number(field: int, value: int) -> bytes:
    return bytes([field << 3 | _VARINT, value])
