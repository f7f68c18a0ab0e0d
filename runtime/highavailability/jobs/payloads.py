"""Bytes of a record: inline up to 32 KiB, else an immutable object, written and synced before its pointer (R20)."""

from __future__ import annotations

import hashlib
from typing import Protocol

from runtime.common.errors import PermanentError
from runtime.highavailability.records import Payload

INLINE_BYTES_MAX = 32 * 1024


class PayloadCorruptError(PermanentError):
    """The bytes behind a pointer do not have the digest that was recorded."""


class ObjectStore(Protocol):
    """Immutable objects: `runtime.blob.store.BlobStore`."""

    async def write_object(self, data: bytes, /, *, sha256: str = "") -> str:
        """Store and sync; the new object's key, `<sha256>-<upload id>`. `sha256`: the digest, where it is known."""

    async def read_object(self, key: str, /) -> bytes:
        """Raises NotFoundError when storage says that there is no such object."""


def inline_payload(data: bytes) -> Payload:
    """Data of any size, not stored yet."""
    return Payload(hashlib.sha256(data).hexdigest(), data, "")


class Payloads:
    """Makes payloads and reads them back."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def store(self, data: bytes) -> Payload:
        """A payload that may be written into a key now."""
        return await self.spill(inline_payload(data))

    async def spill(self, payload: Payload) -> Payload:
        """The same payload, moved out of line if it is too large. Idempotent."""
        if payload.object_key or len(payload.inline) <= INLINE_BYTES_MAX:
            return payload
        return Payload(payload.sha256, b"", await self._objects.write_object(payload.inline, sha256=payload.sha256))

    async def load(self, payload: Payload) -> bytes:
        """The bytes. Raises NotFoundError, PayloadCorruptError."""
        data = await self._objects.read_object(payload.object_key) if payload.object_key else payload.inline
        if hashlib.sha256(data).hexdigest() != payload.sha256:
            message = f"{payload.object_key or 'inline payload'} does not have the recorded digest {payload.sha256}"
            raise PayloadCorruptError(message)
        return data
