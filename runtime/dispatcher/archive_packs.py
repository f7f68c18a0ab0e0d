"""Archives of finished jobs, many in one immutable object: one file and one sync for a whole batch."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.blob.pack import PackedArchive, read_packed, write_pack
from runtime.blob.store import BlobStore
from runtime.dispatcher.services import ArchivePointer


class BlobArchivePacks:
    """Implements `ArchivePacks` on the blob store."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    async def pack(self, archives: Sequence[bytes], /) -> Sequence[ArchivePointer]:
        """Write one object, which is synced before this returns (R20)."""
        if not archives:
            return []
        packed = await write_pack(self._store, archives)
        return [ArchivePointer(one.key, one.offset, one.size_bytes, one.sha256) for one in packed]

    async def unpack(self, pointer: ArchivePointer, /) -> bytes:
        """Read one archive. Raises NotFoundError, DigestMismatchError."""
        place = PackedArchive(pointer.key, pointer.offset, pointer.size_bytes, pointer.sha256)
        return await read_packed(self._store, place)
