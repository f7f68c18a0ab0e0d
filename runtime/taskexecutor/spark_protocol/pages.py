"""Bounds of Spark's own pages, between the TaskManager, the Spark host and the JVM (R58)."""

from __future__ import annotations

import base64
import struct
from typing import Any

BODY_BYTES_MAX = 32 << 20
"""Of a body as Spark makes it."""
PACKED_BYTES_MAX = 2 << 20
"""Of head and packed body: in base64 it fits into a frame between TaskManager and Spark host."""
ANSWER_MILLIS_MAX = 45_000
"""The first page, and the first answer of the REST API, load hundreds of classes: 18 s on a busy machine."""
ASK_SECONDS = 48.0
ASKED_AT_ONCE_MAX = 4
IDLE_MILLIS = 10 * 60 * 1000
HEAD_BYTES_MAX = 16 << 10
_HEAD_LENGTH = struct.Struct("!I")


def read(value: Any) -> tuple[bytes, bytes]:
    """(head, packed body) of what the Spark host says, whose JVM runs code of jobs (R52). Raises ValueError."""
    told = base64.b64decode(str(value).encode("ascii"), validate=True)
    if not _HEAD_LENGTH.size <= len(told) <= PACKED_BYTES_MAX:
        message = f"{len(told)} bytes are no page"
        raise ValueError(message)
    (length,) = _HEAD_LENGTH.unpack_from(told)
    if not 0 < length <= min(HEAD_BYTES_MAX, len(told) - _HEAD_LENGTH.size):
        message = f"a head of {length} bytes is none"
        raise ValueError(message)
    body = _HEAD_LENGTH.size + length
    return told[_HEAD_LENGTH.size : body], told[body:]
