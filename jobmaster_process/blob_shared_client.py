"""The JobMaster process's BlobSharedClient: job graphs that did not travel inline, through a local cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from runtime.aio.blocking import BlockingIo
from runtime.blob.client import BlobClientSettings, BlobSharedClient
from runtime.blob.store import BlobStore
from runtime.common.entropy import Entropy
from runtime.rpc.service import RpcService


def make_blob_shared_client(
    cache_directory: Path,
    *,
    cache_bytes_max: int,
    store: BlobStore,
    rpc: RpcService,
    blob_address: Callable[[], str | None],
    io: BlockingIo,
    entropy: Entropy,
) -> BlobSharedClient:
    """Storage first, then the leader's BlobServer at `blob_address`; one try each, because the runners are patient."""
    return BlobSharedClient(
        BlobClientSettings(cache_directory, cache_bytes_max, patience=None),
        store,
        rpc,
        blob_address,
        io,
        entropy,
    )


class SharedGraphs:
    """`GraphSource` over the client. A graph is read once here, so the cache serves concurrent readers only."""

    def __init__(self, blobs: BlobSharedClient) -> None:
        self._blobs = blobs

    async def __call__(self, key: str, _sha256: str, /) -> bytes:
        """The graph's bytes; the runner verifies them, and asks again (R20)."""
        return await self._blobs.read(key)
