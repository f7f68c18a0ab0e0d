"""Objects in memory, where a test needs no storage directory."""

from __future__ import annotations

import hashlib

from runtime.common.errors import NotFoundError


class MemoryObjectStore:
    """An ObjectStore."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def write_object(self, data: bytes, /) -> str:
        """Keep the bytes; upload ids count up."""
        key = f"{hashlib.sha256(data).hexdigest()}-{len(self.objects):032x}"
        self.objects[key] = data
        return key

    async def read_object(self, key: str, /) -> bytes:
        """The bytes."""
        if key not in self.objects:
            message = f"there is no object {key}"
            raise NotFoundError(message)
        return self.objects[key]
