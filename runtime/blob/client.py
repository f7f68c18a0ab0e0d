"""BlobSharedClient: objects for a JobMaster process or a TaskManager, through a local cache.

It reads from storage, or, where this process does not see the storage, from the leader's BlobServer. Concurrent callers
share one download. The digest is verified. R20: with `Patience` the client asks unreachable storage again without
limit, and raises only when "not found" or a wrong digest comes twice, ten seconds apart. Without `Patience` it raises
every failure, for callers that repeat by themselves and report the reason meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from runtime.aio.blocking import BlockingIo
from runtime.aio.retry import RetryPolicy
from runtime.aio.scope import ServiceScope
from runtime.blob.cache import BlobCache
from runtime.blob.directory import translated
from runtime.blob.retention import parse_blob_key
from runtime.blob.server import CHUNK_SOURCE
from runtime.blob.store import BlobStore, DigestMismatchError
from runtime.common.entropy import Entropy
from runtime.common.errors import BugError, FlinklikeError, NotFoundError, RetryableError, UnavailableError

logger = logging.getLogger(__name__)

_WRITE_BYTES = 512 * 1024


class ChunkFetcher(Protocol):
    """The part of RpcService that the client needs."""

    def fetch_chunks(self, address: str, name: str, key: str, *, timeout: float) -> AsyncIterator[bytes]:
        """Read an object from a peer's chunk source."""


@dataclass(frozen=True, slots=True)
class Patience:
    """`second_look` is the pause before a refusal is believed, in seconds."""

    second_look: float = 10.0
    retry: RetryPolicy = RetryPolicy(delay_initial=0.2, delay_max=5.0)  # noqa: RUF009 - frozen


@dataclass(frozen=True, slots=True)
class BlobClientSettings:
    """`chunk_timeout` bounds the wait for each chunk; `patience` None: one try for each request."""

    cache_directory: Path
    cache_bytes_max: int
    patience: Patience | None
    chunk_timeout: float = 30.0


class BlobSharedClient:
    """Usable between `start` and `stop`. `store` None: everything comes from the BlobServer."""

    def __init__(
        self,
        settings: BlobClientSettings,
        store: BlobStore | None,
        fetcher: ChunkFetcher,
        blob_address: Callable[[], str | None],
        io: BlockingIo,
        entropy: Entropy,
    ) -> None:
        self._settings = settings
        self._store = store
        self._fetcher = fetcher
        self._blob_address = blob_address
        self._io = io
        self._entropy = entropy
        self._cache = BlobCache(settings.cache_directory, size_bytes_max=settings.cache_bytes_max)
        self._downloads: dict[str, asyncio.Task[FlinklikeError | None]] = {}
        self._scope = ServiceScope("blob-client")
        self.downloads = 0
        """Downloads begun."""

    async def start(self) -> None:
        """Take over the files in the cache directory."""
        await self._io.run(self._cache.scan)
        await self._scope.open()
        await self._evict()

    async def stop(self) -> None:
        """Cancel downloads. Idempotent."""
        await self._scope.close()

    async def wait_failed(self) -> None:
        """Wait between `start` and `stop`, and raise what has ended the downloads."""
        await self._scope.wait_failed()

    async def acquire(self, key: str) -> Path:
        """The object as a local file that stays until `release`. The caller must not write to it.

        Raises NotFoundError, DigestMismatchError, UnavailableError when the client is stopped; without patience also
        RetryableError while storage is away.
        """
        parse_blob_key(key)
        self._cache.pin(key)
        try:
            while key not in self._cache:
                await self._downloaded(key)
            if not await self._io.run(_is_there, self._cache.path(key)):
                self._cache.forget(key)
                await self._downloaded(key)
        except BaseException:
            self._cache.unpin(key)
            raise
        return self._cache.path(key)

    async def release(self, key: str) -> None:
        """The file is not needed any more; once for each `acquire`."""
        self._cache.unpin(key)
        await self._evict()

    @asynccontextmanager
    async def file(self, key: str) -> AsyncIterator[Path]:
        """`acquire` and `release` around a block."""
        path = await self.acquire(key)
        try:
            yield path
        finally:
            await self.release(key)

    async def read(self, key: str) -> bytes:
        """A whole object that fits into memory (job graphs, archives). Raises as `acquire`."""
        async with self.file(key) as path:
            return await self._io.run(_read, path)

    async def write(self, data: bytes) -> str:
        """BlobWriter: store and sync; the key. Raises UnavailableError where there is no storage."""
        if self._store is None:
            message = "this process does not see the cluster's storage and cannot write objects"
            raise UnavailableError(message)
        return await self._store.write_object(data)

    # --- downloads ---------------------------------------------------------------------------------------

    async def _downloaded(self, key: str) -> None:
        task = self._downloads.get(key)
        if task is None:
            task = self._scope.start(f"download {key[:8]}", self._download_outcome(key))
            self._downloads[key] = task
            task.add_done_callback(lambda _: self._downloads.pop(key, None))
        # A cancelled caller does not cancel the download of the others.
        await asyncio.wait([task])
        if task.cancelled():
            message = f"the blob client was stopped before object {key} was here"
            raise UnavailableError(message)
        failure = task.result()
        if failure is not None:
            raise failure

    async def _download_outcome(self, key: str) -> FlinklikeError | None:
        """The failure of a download as a value: it must not end the scope that all downloads share."""
        try:
            size = await self._fetch_patiently(key, self._settings.patience)
            self._cache.add(key, size)
            await self._evict()
        except FlinklikeError as error:
            return error
        except Exception as error:
            # The boundary of one download: all of them share one scope, which must outlive each of them.
            logger.exception("download of object %s failed", key)
            return BugError(f"the download of object {key} failed: {type(error).__name__}: {error}")
        else:
            return None

    async def _fetch_patiently(self, key: str, patience: Patience | None) -> int:
        refusals = 0
        attempt = 0
        reason: FlinklikeError
        while True:
            try:
                return await self._fetch(key)
            except (NotFoundError, DigestMismatchError) as error:
                refusals += 1
                if patience is None or refusals == 2:
                    raise
                delay, reason = patience.second_look, error
            except RetryableError as error:
                if patience is None:
                    raise
                delay, reason = patience.retry.delay(attempt, self._entropy), error
                attempt += 1
            logger.warning("object %s cannot be read yet: %s", key, reason)
            await asyncio.sleep(delay)

    async def _fetch(self, key: str) -> int:
        self.downloads += 1
        if self._store is not None:
            with suppress(NotFoundError):
                return await self._save(key, self._store.chunks(parse_blob_key(key)))
        address = self._blob_address()
        if address is None:
            message = "not in the storage that this process sees, and no leader is known to ask"
            if self._store is not None:
                raise NotFoundError(message)
            raise UnavailableError(message)
        chunks = self._fetcher.fetch_chunks(address, CHUNK_SOURCE, key, timeout=self._settings.chunk_timeout)
        return await self._save(key, chunks)

    async def _save(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        """Write into a partial file, verify, rename. Without a sync: the cache may be lost."""
        partial = self._cache.partial(key)
        digest = hashlib.sha256()
        size = 0
        file = await self._io.run(_create, partial)
        try:
            async for chunk in chunks:
                size += len(chunk)
                for start in range(0, len(chunk), _WRITE_BYTES):
                    await self._io.run(_append, file, digest.update, chunk[start : start + _WRITE_BYTES])
            await self._io.run(_close, file)
            if digest.hexdigest() != parse_blob_key(key).sha256:
                message = f"object {key} came with the digest {digest.hexdigest()}"
                raise DigestMismatchError(message)
            await self._io.run(_rename, partial, self._cache.path(key))
        except BaseException:
            await self._io.run(_remove, file, partial)
            raise
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()
        return size

    async def _evict(self) -> None:
        evicted = self._cache.evict()
        if evicted:
            await self._io.run(_unlink_all, evicted)


def _create(path: Path) -> BinaryIO:
    with translated(f"write of {path}"):
        return path.open("wb")


def _append(file: BinaryIO, update: Callable[[bytes], None], data: bytes) -> None:
    update(data)
    with translated("write into the blob cache"):
        file.write(data)


def _close(file: BinaryIO) -> None:
    # What is still buffered is written now: a full disk shows here at the latest.
    with translated("write into the blob cache"):
        file.close()


def _rename(path: Path, target: Path) -> None:
    with translated(f"write of {target}"):
        path.rename(target)


def _is_there(path: Path) -> bool:
    with translated(f"read of {path}"):
        return path.is_file()


def _read(path: Path) -> bytes:
    with translated(f"read of {path}"):
        return path.read_bytes()


def _remove(file: BinaryIO, path: Path) -> None:
    # A failure is being handled: its error counts. The next start removes the file.
    with suppress(OSError):
        file.close()
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _unlink_all(paths: list[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            logger.warning("%s cannot be removed from the blob cache: %s", path, error)
