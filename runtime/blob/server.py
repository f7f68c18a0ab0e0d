"""BlobServer: uploads and downloads of the leader, for REST and (as chunk source `blobs`) for other processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from runtime.blob.retention import parse_blob_key
from runtime.blob.store import BlobStore, MissingBlobs
from runtime.common.errors import BackpressureError, InvalidInputError
from runtime.gateways.blob import BlobKey

CHUNK_SOURCE = "blobs"
"""Name under which RpcServer.add_chunk_source serves `chunk_source`."""

UPLOADS_MAX = 16
DIGESTS_MAX = 10_000


class BlobServer:
    """Uploads and downloads of one store, with bounds on how many are served at once."""

    def __init__(self, store: BlobStore, *, uploads_max: int = UPLOADS_MAX) -> None:
        self._store = store
        self._uploads = asyncio.Semaphore(uploads_max)

    async def upload(self, chunks: AsyncIterator[bytes], *, sha256: str | None) -> BlobKey:
        """Store a stream announced with its digest (None: with none).

        Raises as BlobStore.upload, BackpressureError when busy.
        """
        if self._uploads.locked():
            message = "the blob server takes as many uploads as it can"
            raise BackpressureError(message, retry_after=1.0)
        async with self._uploads:
            return await self._store.upload(chunks, sha256=sha256)

    async def missing(self, digests: Sequence[str]) -> MissingBlobs:
        """Which digests must be uploaded (R19), and keys for the others."""
        if len(digests) > DIGESTS_MAX:
            message = f"{len(digests)} digests asked at once: at most {DIGESTS_MAX}"
            raise InvalidInputError(message)
        return await self._store.missing(digests)

    def download(self, key: BlobKey, /) -> AsyncIterator[bytes]:
        """The object's bytes in chunks. Raises NotFoundError at the first."""
        return self._store.chunks(key)

    async def read_range(self, key: str, *, offset: int, size_bytes: int) -> bytes:
        """A piece of an object, shorter at its end. Raises NotFoundError."""
        return await self._store.read_range(key, offset=offset, size_bytes=size_bytes)

    def chunk_source(self, key: str) -> AsyncIterator[bytes]:
        """The same by the key's text: `server.add_chunk_source(CHUNK_SOURCE, blob_server.chunk_source)`."""
        return self._store.chunks(parse_blob_key(key))
