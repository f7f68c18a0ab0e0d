"""The uploaded programs of the cluster (R54): records in the store, bytes in the blob store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.gateways.blob import BlobKey
from runtime.highavailability.jars import StoredJar
from runtime.highavailability.records import JarRecord
from runtime.jobgraph.graph import Artifact
from runtime.rest.context import BlobEndpoint, LeaderComponents
from runtime.rest.uploads import programs
from runtime.rest.uploads.known_scripts import KnownScripts
from runtime.rest.uploads.zip_directory import ReadRange, read_member, read_members

JARS_MAX = 1000
_MANIFEST = "META-INF/MANIFEST.MF"


@dataclass(frozen=True, slots=True)
class Program:
    """An uploaded program that a new job may refer to: the archive or script, and the script within an archive."""

    archive: Artifact
    script: Artifact | None = None


class Library:
    """Of the leader; made for each request. `scripts`: what runs have read before."""

    def __init__(
        self, components: LeaderComponents, clock: Clock, entropy: Entropy, scripts: KnownScripts | None = None
    ) -> None:
        self._scripts = scripts or KnownScripts()
        self._jars = components.jars
        self._blobs: BlobEndpoint = components.blobs
        self._clock = clock
        self._entropy = entropy

    async def all(self) -> list[StoredJar]:
        """All of them, the newest first."""
        return sorted(await self._jars.all(), key=lambda one: one.record.uploaded_millis if one.record else 0)[::-1]

    async def get(self, jar_id: str) -> StoredJar:
        """One of them. Raises NotFoundError."""
        found = await self._jars.get(jar_id)
        if found is None:
            raise not_found(jar_id)
        return found

    async def delete(self, jar_id: str) -> None:
        """Forget it. Jobs that run it keep its bytes."""
        await self._jars.delete(jar_id)

    async def add(self, name: str, chunks: AsyncIterator[bytes], *, namespace: str, uploader: str) -> JarRecord:
        """Store a program: its bytes first, then what is in them, then its record (R20)."""
        name = programs.check_name(name)
        await self._jars.check_room(JARS_MAX)  # before its bytes come; what counts is the look with the write
        sizes: list[int] = [0]
        key = await self._blobs.upload(None, _counted(chunks, sizes))
        size = sizes[0]
        if not size:
            message = f"{name} is empty"
            raise InvalidInputError(message)
        record = JarRecord(
            jar_id=programs.new_id(self._entropy.hex_id(), namespace=namespace, name=name, sha256=key.sha256),
            name=name,
            key=str(key),
            size_bytes=size,
            uploaded_millis=self._clock.epoch_millis(),
            namespace=namespace,
            uploader=uploader,
            entries=await self._entries(name, str(key), size),
        )
        await self._jars.add(record, jars_max=JARS_MAX)
        return record

    async def open(self, record: JarRecord, entry: str) -> Program:
        """What a run of `entry` refers to. Raises InvalidInputError when the archive has no such script."""
        archive = _artifact(record.name, await self._fresh(record), record.size_bytes)
        if programs.is_jar(record.name) or not programs.is_zip(record.name) or programs.is_pipeline(entry):
            return Program(archive)
        content = self._scripts.get(archive.sha256, entry)
        if content is None:
            content = await self._script(record, entry)
            self._scripts.add(archive.sha256, entry, content)
        script = Artifact.of_bytes(entry.rpartition("/")[2], content)
        if script.is_pending:
            key = await self._blobs.upload(script.sha256, _once(content))
            script = _artifact(script.name, key, len(content))
        return Program(archive, script)

    async def _script(self, record: JarRecord, entry: str) -> bytes:
        read = self._reader(record.key)
        member = (await read_members(read, record.size_bytes)).get(entry)
        if member is None or not entry.endswith(programs.SCRIPT):
            message = (
                f"entryClass {entry[:120]!r}: {record.name} has no such script; expected module:pipeline, or one of "
                f"{', '.join(record.entries[:10]) or 'its scripts, of which it has none'}"
            )
            raise InvalidInputError(message)
        return await read_member(read, member)

    async def _fresh(self, record: JarRecord) -> BlobKey:
        """A key to which a new job may refer (R19): that of the record for a day, then that of a copy."""
        sha256, _, upload_id = record.key.partition("-")
        keys, missing = await self._blobs.missing([(sha256, record.size_bytes)])
        if not missing:
            return keys[sha256]
        return await self._blobs.upload(sha256, self._blobs.download(BlobKey(sha256, upload_id)))

    async def _entries(self, name: str, key: str, size: int) -> tuple[str, ...]:
        if not programs.is_zip(name):
            return programs.entries_of(name, [])
        read = self._reader(key)
        members = await read_members(read, size)
        manifest = members.get(_MANIFEST) if programs.is_jar(name) else None
        text = (await read_member(read, manifest)).decode("utf-8", "replace") if manifest else ""
        return await asyncio.to_thread(programs.entries_of, name, list(members), text)

    def _reader(self, key: str) -> ReadRange:
        return partial(_read, self._blobs, key)


def not_found(jar_id: str) -> NotFoundError:
    """As of one that is in another namespace."""
    return NotFoundError(f"there is no uploaded program {jar_id[:200]}: GET /jars lists them")


async def _read(blobs: BlobEndpoint, key: str, offset: int, size_bytes: int) -> bytes:
    return await blobs.read_range(key, offset=offset, size_bytes=size_bytes)


async def _counted(chunks: AsyncIterator[bytes], sizes: list[int]) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        sizes[0] += len(chunk)
        yield chunk


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _artifact(name: str, key: BlobKey, size_bytes: int) -> Artifact:
    return Artifact(name=name, sha256=key.sha256, size_bytes=size_bytes, key=str(key))
