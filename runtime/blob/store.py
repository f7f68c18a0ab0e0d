"""BlobStore: immutable objects `<sha256>-<upload id>` in a storage directory, streamed both ways and verified.

Invariants: an object that can be seen is complete, has its digest and is synced (R20); nothing writes to it again; it
is deleted only by `collect` under R19. Implements the job store's ObjectStore.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO

from runtime.aio.blocking import BlockingIo
from runtime.blob.directory import TMP, StagedFile, StorageDirectory, translated
from runtime.blob.retention import Retention, check_digest, new_upload_id, parse_blob_key
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import InvalidInputError, PermanentError, StorageExhaustedError
from runtime.gateways.blob import BlobKey

CHUNK_BYTES = 512 * 1024
_FOLDER = "blobs"
_DELETES_MAX = 10_000


class DigestMismatchError(PermanentError):
    """Content does not have its announced digest."""


class BlobTooLargeError(InvalidInputError):
    """An object above the size limit was refused; nothing of it is kept."""


@dataclass(frozen=True, slots=True)
class BlobStoreSettings:
    """`object_bytes_max`: `blob.max-size`."""

    object_bytes_max: int
    retention: Retention = field(default_factory=Retention)


@dataclass(frozen=True, slots=True)
class MissingBlobs:
    """`missing` digests must be uploaded; `keys` has an object for each other digest, to which a new job may refer."""

    missing: tuple[str, ...]
    keys: dict[str, str]


References = Callable[[], Awaitable[Collection[str]]]
"""A linearizable read of all object keys to which durable state refers."""


class BlobStore:
    """One storage directory. Every process that shares the directory has its own store on it."""

    def __init__(
        self, directory: StorageDirectory, settings: BlobStoreSettings, io: BlockingIo, clock: Clock, entropy: Entropy
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._io = io
        self._clock = clock
        self._entropy = entropy

    @property
    def url(self) -> str:
        """The directory, for messages."""
        return self._directory.url

    # --- writing -----------------------------------------------------------------------------------------

    async def upload(self, chunks: AsyncIterator[bytes], *, sha256: str | None) -> BlobKey:
        """Store a stream that was announced with its digest. Nothing can be seen before all of it is synced.

        None: a stream whose digest nobody knows before. Raises DigestMismatchError, BlobTooLargeError,
        StorageExhaustedError, UnavailableError, and what `chunks` raises; then nothing is kept.
        """
        upload_id = new_upload_id(self._clock.epoch_millis(), self._entropy)
        what = "the upload" if sha256 is None else f"blob {check_digest(sha256)}"
        with self._naming_room(what):
            staged = await self._io.run(self._directory.stage, upload_id)
            try:
                digest = await self._copy(chunks, staged, what)
                if sha256 is not None and digest != sha256:
                    message = f"upload announced as {sha256} has the digest {digest}"
                    raise DigestMismatchError(message)
                key = BlobKey(digest, upload_id)
                await self._io.run(staged.publish, _name(key))
            except BaseException:
                await self._io.run(staged.discard)
                raise
        return key

    @contextmanager
    def _naming_room(self, what: str) -> Iterator[None]:
        """Add the storage's URL, and the object, to a StorageExhaustedError."""
        try:
            yield
        except StorageExhaustedError as error:
            message = f"storage {self.url} has no room for {what}: {error}"
            raise StorageExhaustedError(message) from error

    async def _copy(self, chunks: AsyncIterator[bytes], staged: StagedFile, what: str) -> str:
        digest = hashlib.sha256()
        size = 0
        waiting = bytearray()
        async for chunk in chunks:
            size += len(chunk)
            if size > self._settings.object_bytes_max:
                message = f"{what} is larger than blob.max-size, {self._settings.object_bytes_max} bytes"
                raise BlobTooLargeError(message)
            waiting += chunk
            if len(waiting) >= CHUNK_BYTES:
                await self._io.run(_hash_and_write, digest.update, staged, bytes(waiting))
                waiting.clear()
        await self._io.run(_hash_and_write, digest.update, staged, bytes(waiting))
        return digest.hexdigest()

    async def write_object(self, data: bytes, /, *, sha256: str = "") -> str:
        """Store bytes, and return the key. Synced on return (R20). `sha256`: their digest, if it is known."""
        if len(data) > self._settings.object_bytes_max:
            message = f"object of {len(data)} bytes is larger than blob.max-size, {self._settings.object_bytes_max}"
            raise BlobTooLargeError(message)
        return await self._io.run(self._write_now, data, sha256, self._clock.epoch_millis())

    def _write_now(self, data: bytes, sha256: str, now_millis: int) -> str:
        key = BlobKey(sha256 or hashlib.sha256(data).hexdigest(), new_upload_id(now_millis, self._entropy))
        with self._naming_room(f"an object of {len(data)} bytes"):
            staged = self._directory.stage(key.upload_id)
            try:
                staged.write(data)
                staged.publish(_name(key))
            except BaseException:
                staged.discard()
                raise
        return str(key)

    # --- reading -----------------------------------------------------------------------------------------

    async def chunks(self, key: BlobKey) -> AsyncIterator[bytes]:
        """The object's bytes. Raises NotFoundError; the caller verifies the digest."""
        file = await self._io.run(self._directory.open, _name(key))
        try:
            while chunk := await self._io.run(_read, file, CHUNK_BYTES):
                yield chunk
        finally:
            await self._io.run(file.close)

    async def read_object(self, key: str, /) -> bytes:
        """A whole object. Raises NotFoundError, DigestMismatchError."""
        blob_key = parse_blob_key(key)
        data = await self._io.run(self._read_all, _name(blob_key))
        if hashlib.sha256(data).hexdigest() != blob_key.sha256:
            message = f"object {key} does not have its digest"
            raise DigestMismatchError(message)
        return data

    def _read_all(self, name: str) -> bytes:
        with self._directory.open(name) as file, translated(f"read of {name}"):
            return file.read()

    async def read_range(self, key: str, *, offset: int, size_bytes: int) -> bytes:
        """A range of an object, shorter at its end. Raises NotFoundError; the caller verifies the content."""
        return await self._io.run(self._read_piece, _name(parse_blob_key(key)), offset, size_bytes)

    def _read_piece(self, name: str, offset: int, size_bytes: int) -> bytes:
        with self._directory.open(name) as file, translated(f"read of {name}"):
            file.seek(offset)
            return file.read(size_bytes)

    # --- R19 ---------------------------------------------------------------------------------------------

    async def missing(self, digests: Sequence[str]) -> MissingBlobs:
        """Which digests must be uploaded, perhaps again, and keys for the others."""
        missing, keys = [], {}
        for digest in dict.fromkeys(digests):
            key = await self._io.run(self._newest, check_digest(digest))
            if key is not None and self._settings.retention.may_be_offered(key, self._clock.epoch_millis()):
                keys[digest] = str(key)
            else:
                missing.append(digest)
        return MissingBlobs(tuple(missing), keys)

    async def not_referable(self, keys: Sequence[str]) -> Sequence[str]:
        """The keys to which a new job may not refer: missing objects, and old uploads. Called at submit."""
        now = self._clock.epoch_millis()
        refused = []
        for text in dict.fromkeys(keys):
            key = parse_blob_key(text)
            is_fresh = self._settings.retention.may_be_referenced(key, now)
            if not is_fresh or not await self._io.run(self._exists, key):
                refused.append(text)
        return refused

    async def collect(self, references: References) -> int:
        """Delete objects older than 2R without references. Returns their number.

        `references` is called after the candidates are listed.
        """
        candidates = await self._io.run(self._old, self._clock.epoch_millis())
        if not candidates:
            return 0
        referenced = frozenset(await references())
        unused = [key for key in candidates if str(key) not in referenced][:_DELETES_MAX]
        for key in unused:
            await self._io.run(self._directory.delete, _name(key))
        return len(unused)

    async def collect_staged(self) -> int:
        """Delete files of unfinished uploads that are older than 2R. Returns their number."""
        return await self._io.run(self._delete_old_staged, self._clock.epoch_millis())

    def _delete_old_staged(self, now_millis: int) -> int:
        old = []
        for file in self._directory.files(TMP):
            try:
                key = parse_blob_key(f"{'0' * 64}-{file.name}")
            except InvalidInputError:
                continue
            if self._settings.retention.may_be_deleted(key, now_millis):
                old.append(file.name)
        for name in old:
            self._directory.delete(f"{TMP}/{name}")
        return len(old)

    def _newest(self, digest: str) -> BlobKey | None:
        # Upload ids begin with the time: the last in name order is the newest.
        names = [file.name for file in self._directory.files(_folder(digest)) if file.name.startswith(f"{digest}-")]
        return parse_blob_key(max(names)) if names else None

    def _exists(self, key: BlobKey) -> bool:
        return any(file.name == str(key) for file in self._directory.files(_folder(key.sha256)))

    def _old(self, now_millis: int) -> list[BlobKey]:
        old = []
        for folder in self._directory.folders(_FOLDER):
            for file in self._directory.files(f"{_FOLDER}/{folder}"):
                key = parse_blob_key(file.name)
                if self._settings.retention.may_be_deleted(key, now_millis):
                    old.append(key)
        return old


def _folder(sha256: str) -> str:
    return f"{_FOLDER}/{sha256[:2]}"


def _name(key: BlobKey) -> str:
    return f"{_folder(key.sha256)}/{key}"


def _read(file: IO[bytes], size_bytes: int) -> bytes:
    with translated("read of a blob"):
        return file.read(size_bytes)


def _hash_and_write(update: Callable[[bytes], None], staged: StagedFile, data: bytes) -> None:
    update(data)
    staged.write(data)
