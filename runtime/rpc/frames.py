"""The transports' own messages, and frames: a frame holds all messages that were queued for a stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from runtime.common.errors import InvalidInputError
from runtime.rpc import codec


@dataclass(frozen=True, slots=True)
class ErrorDetails:
    """An error on its way to the caller; see `runtime.rpc.status`."""

    class_name: str
    message: str
    retry_after: float
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """Request to a chunk source for one object."""

    source: str
    key: str


def encode_frame(types: Sequence[int], bodies: Sequence[bytes]) -> bytes:
    """One frame of encoded messages."""
    data: bytes = codec.proto_class("Frame")(types=types, bodies=bodies).SerializeToString()
    return data


def decode_frame(data: bytes) -> Sequence[Any]:
    """The messages of a frame. Raises InvalidInputError."""
    try:
        frame = codec.proto_class("Frame").FromString(data)
    except DecodeError as error:
        message = "received bytes that are no stream frame"
        raise InvalidInputError(message) from error
    types, bodies = frame.types, frame.bodies  # each access makes an object
    if len(types) != len(bodies):
        message = f"received a stream frame of {len(types)} types and {len(bodies)} messages"
        raise InvalidInputError(message)
    return list(map(codec.decode_tagged, types, bodies))
