"""The parts of a process that use the storage directory: blobs, large records, archives, the store's mark."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from runtime.aio.blocking import BlockingIo
from runtime.blob.directory import open_directory
from runtime.blob.mark_file import MarkFile
from runtime.blob.server import BlobServer
from runtime.blob.storage_probe import StorageProbe
from runtime.blob.store import BlobStore, BlobStoreSettings, BlobTooLargeError, DigestMismatchError
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import InvalidInputError, MessageTooLargeError
from runtime.config.configuration import Configuration
from runtime.config.layout import Layout
from runtime.config.options.high_availability import BLOB_MAX_SIZE, HA_CLUSTER_ID
from runtime.config.options.history import ARCHIVE_MAX_SIZE
from runtime.gateways.blob import BlobKey
from runtime.highavailability.jobs.references import referenced_objects
from runtime.highavailability.services import HighAvailabilityServices
from runtime.history.writer import HistoryWriter


def open_blob_store(
    configuration: Configuration, layout: Layout, io: BlockingIo, clock: Clock, entropy: Entropy
) -> BlobStore:
    """The store on high-availability.storageDir."""
    settings = BlobStoreSettings(object_bytes_max=configuration.get(BLOB_MAX_SIZE))
    return BlobStore(open_directory(layout.storage_url(configuration)), settings, io, clock, entropy)


def storage_probe(configuration: Configuration, layout: Layout, io: BlockingIo, entropy: Entropy) -> StorageProbe:
    """R20, on high-availability.storageDir."""
    return StorageProbe(open_directory(layout.storage_url(configuration)), io, entropy)


def mark_file(configuration: Configuration, layout: Layout, io: BlockingIo, entropy: Entropy) -> MarkFile:
    """R35, on high-availability.storageDir."""
    directory = open_directory(layout.storage_url(configuration))
    return MarkFile(directory, configuration.get(HA_CLUSTER_ID), io, entropy)


COLLECTION_PERIOD = 3600.0
"""Seconds. Objects are collected when they are two days old, so a shorter period gains nothing."""


class BlobCollector:
    """R19, for the leader: deletes objects to which nothing refers. A reconciler."""

    def __init__(self, store: BlobStore, ha: HighAvailabilityServices) -> None:
        self._store = store
        self._ha = ha

    async def activate(self) -> int:
        """Collect, and return the number of deleted objects."""
        await self._store.collect_staged()
        return await self._store.collect(self._referenced)

    async def _referenced(self) -> frozenset[str]:
        """Of jobs, and of uploaded programs (R54)."""
        of_jars = await self._ha.jar_store().object_keys()
        return of_jars | await referenced_objects(self._ha.job_reader())


def history_writer(
    configuration: Configuration, layout: Layout, io: BlockingIo, clock: Clock, entropy: Entropy
) -> HistoryWriter:
    """The history of this cluster (D-115). Its directory is opened when it is written: nothing else waits for it."""
    return HistoryWriter(
        partial(open_directory, layout.history_url(configuration)),
        open_directory(layout.storage_url(configuration)),
        configuration.get(HA_CLUSTER_ID),
        io,
        clock,
        entropy,
        bytes_max=configuration.get(ARCHIVE_MAX_SIZE),
    )


class StoredGraphs:
    """`GraphSource` of a process that sees the storage: graphs that are not inline."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    async def __call__(self, key: str, _sha256: str, /) -> bytes:
        """The graph's bytes; the reader verifies them."""
        return await self._store.read_object(key)


class RestBlobs:
    """The BlobServer as REST's `BlobEndpoint` (`runtime.rest.context`)."""

    def __init__(self, server: BlobServer) -> None:
        self._server = server

    async def missing(self, digests: Sequence[tuple[str, int]], /) -> tuple[dict[str, BlobKey], Sequence[str]]:
        """Keys of those that may be referenced (R19), and digests that must be uploaded."""
        found = await self._server.missing([sha256 for sha256, _size in digests])
        return {sha256: _blob_key(key) for sha256, key in found.keys.items()}, found.missing

    async def upload(self, sha256: str | None, chunks: AsyncIterator[bytes], /) -> BlobKey:
        """Store and verify; None: whatever the digest is. Raises InvalidInputError and MessageTooLargeError: both are
        the client's errors.
        """
        try:
            return await self._server.upload(chunks, sha256=sha256)
        except DigestMismatchError as error:
            raise InvalidInputError(str(error)) from error
        except BlobTooLargeError as error:
            raise MessageTooLargeError(str(error)) from error

    def download(self, key: BlobKey, /) -> AsyncIterator[bytes]:
        """The object's bytes."""
        return self._server.download(key)

    async def read_range(self, key: str, /, *, offset: int, size_bytes: int) -> bytes:
        """A piece of an object."""
        return await self._server.read_range(key, offset=offset, size_bytes=size_bytes)


def _blob_key(text: str) -> BlobKey:
    sha256, _, upload_id = text.partition("-")
    return BlobKey(sha256, upload_id)
