"""Messages between TaskManager and Spark host: length-prefixed JSON objects over a socket pair. No pickle.

Request: {"id", "operation", "arguments"}; reply: {"id", "value"} or {"id", "error", "kind"}; news of the host:
{"event", ...}.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

from runtime.common.errors import BugError
from runtime.common.json_text import parse_json

FRAME_SIZE_MAX = 4 * 1024 * 1024
_HEADER = struct.Struct("!I")

Frame = dict[str, Any]


class FrameError(BugError):
    """The other side does not speak this protocol, or a message is above the limit."""


def encode(message: Mapping[str, Any]) -> bytes:
    """One frame. Raises FrameError when it is too large."""
    body = json.dumps(message, separators=(",", ":")).encode()
    _check_size(len(body))
    return _HEADER.pack(len(body)) + body


def decode_body(body: bytes) -> Frame:
    """The message of one frame's body. Raises FrameError."""
    try:
        message = parse_json(body)
    except ValueError as error:
        text = "a frame does not hold JSON"
        raise FrameError(text) from error
    if not isinstance(message, dict):
        text = f"a frame holds a {type(message).__name__}, expected an object"
        raise FrameError(text)
    return message


def _check_size(size: int) -> None:
    if size > FRAME_SIZE_MAX:
        text = f"a frame of {size} bytes is above the limit of {FRAME_SIZE_MAX}"
        raise FrameError(text)


async def read_frame(reader: asyncio.StreamReader) -> Frame | None:
    """The next message, or None at the end of the stream."""
    try:
        (size,) = _HEADER.unpack(await reader.readexactly(_HEADER.size))
        _check_size(size)
        return decode_body(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def receive_frame(connection: socket.socket) -> Frame | None:
    """The next message on a blocking socket, or None at its end."""
    header = _receive_exactly(connection, _HEADER.size)
    if header is None:
        return None
    (size,) = _HEADER.unpack(header)
    _check_size(size)
    body = _receive_exactly(connection, size)
    return None if body is None else decode_body(body)


def _receive_exactly(connection: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size > 0:
        try:
            part = connection.recv(size)
        except ConnectionError:
            return None
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
