"""Archive packs: many small archives in one object, so that the cleaner syncs one file for many jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.blob.store import BlobStore, DigestMismatchError


@dataclass(frozen=True, slots=True)
class PackedArchive:
    """The place of one archive in a pack: the fields of a DoneRecord."""

    key: str
    offset: int
    size_bytes: int
    sha256: str


async def write_pack(store: BlobStore, archives: Sequence[bytes]) -> Sequence[PackedArchive]:
    """Write all archives into one synced object. Returns their places in the same order."""
    assert archives, "an empty pack"
    key = await store.write_object(b"".join(archives))
    packed, offset = [], 0
    for archive in archives:
        packed.append(PackedArchive(key, offset, len(archive), hashlib.sha256(archive).hexdigest()))
        offset += len(archive)
    return packed


async def read_packed(store: BlobStore, archive: PackedArchive) -> bytes:
    """Read one archive. Raises NotFoundError, DigestMismatchError."""
    data = await store.read_range(archive.key, offset=archive.offset, size_bytes=archive.size_bytes)
    if hashlib.sha256(data).hexdigest() != archive.sha256:
        message = f"archive at {archive.offset} of {archive.key} does not have its digest"
        raise DigestMismatchError(message)
    return data
