"""Objects in memory, where a test needs no storage directory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from runtime.blob.storage_probe import StorageNotSharedError
from runtime.common.errors import NotFoundError
from runtime.common.ids import Incarnation
from runtime.dispatcher.services import ArchivePointer


class MemoryObjectStore:
    """An ObjectStore."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def write_object(self, data: bytes, /, *, sha256: str = "") -> str:
        """Keep the bytes; upload ids count up."""
        key = f"{sha256 or hashlib.sha256(data).hexdigest()}-{len(self.objects):032x}"
        self.objects[key] = data
        return key

    async def read_object(self, key: str, /) -> bytes:
        """The bytes."""
        if key not in self.objects:
            message = f"there is no object {key}"
            raise NotFoundError(message)
        return self.objects[key]


class MemoryPacks:
    """ArchivePacks in memory, and BlobReferences."""

    def __init__(self) -> None:
        self.objects: list[bytes] = []
        self.missing: set[str] = set()

    async def not_referable(self, keys: Sequence[str], /) -> Sequence[str]:
        return [key for key in keys if key in self.missing]

    async def pack(self, archives: Sequence[bytes], /) -> Sequence[ArchivePointer]:
        pointers, offset, key = [], 0, f"pack-{len(self.objects)}"
        for data in archives:
            pointers.append(ArchivePointer(key, offset, len(data), hashlib.sha256(data).hexdigest()))
            offset += len(data)
        self.objects.append(b"".join(archives))
        return pointers

    async def unpack(self, pointer: ArchivePointer, /) -> bytes:
        number = int(pointer.key.removeprefix("pack-"))
        if number >= len(self.objects):
            raise NotFoundError(pointer.key)
        return self.objects[number][pointer.offset : pointer.offset + pointer.size_bytes]


class SharedStorage:
    """Both halves of R20 in memory. A process with `is_blind` sees another storage."""

    def __init__(self, challenges: dict[str, str], *, is_blind: bool = False) -> None:
        self._files: dict[str, str] = {} if is_blind else challenges

    async def challenge(self, incarnation: Incarnation, term: int, nonce: str, /) -> None:
        self._files[f"{incarnation}.{term}.challenge"] = nonce

    async def answer(self, incarnation: Incarnation, term: int, /) -> None:
        nonce = self._files.get(f"{incarnation}.{term}.challenge")
        if nonce is None:
            raise NotFoundError(incarnation)
        self._files[f"{incarnation}.{term}.answer"] = nonce

    async def check(self, incarnation: Incarnation, term: int, nonce: str, /) -> None:
        if self._files.get(f"{incarnation}.{term}.answer") != nonce:
            message = "high-availability.storageDir must be shared by all hosts"
            raise StorageNotSharedError(message)
