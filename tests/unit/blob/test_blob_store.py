"""The blob store: complete or not there, verified, bounded, collected by R19; packs and the storage probe."""

from __future__ import annotations

import asyncio
import errno
import hashlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import fsspec
import pytest

from runtime.aio.blocking import BlockingIo
from runtime.aio.entropy import SeededEntropy, SystemEntropy
from runtime.blob.directory import StorageDirectory, open_directory, translated
from runtime.blob.pack import PackedArchive, read_packed, write_pack
from runtime.blob.retention import REFERENCE_MILLIS, Retention, parse_blob_key
from runtime.blob.server import BlobServer
from runtime.blob.storage_probe import StorageNotSharedError, StorageProbe
from runtime.blob.store import (
    CHUNK_BYTES,
    BlobStore,
    BlobStoreSettings,
    BlobTooLargeError,
    DigestMismatchError,
)
from runtime.common.errors import (
    BackpressureError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
)
from runtime.common.ids import Incarnation
from tests.kit.control_plane.virtual_time import ManualClock

pytestmark = pytest.mark.asyncio

HOUR = 3600.0
SIZE_MAX = 3 * CHUNK_BYTES


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


class Box:
    """A store on a directory, with a clock that the test sets."""

    def __init__(self, url: str, io: BlockingIo) -> None:
        self.directory: StorageDirectory = open_directory(url)
        self.clock = ManualClock()
        self.io = io
        settings = BlobStoreSettings(object_bytes_max=SIZE_MAX)
        self.store = BlobStore(self.directory, settings, io, self.clock, SystemEntropy())

    def names(self) -> list[str]:
        """Every object, and what is staged."""
        names = [
            file.name for folder in self.directory.folders("blobs") for file in self.directory.files(f"blobs/{folder}")
        ]
        return sorted(names + [f"tmp/{file.name}" for file in self.directory.files("tmp")])


@pytest.fixture
def io() -> Iterator[BlockingIo]:
    blocking = BlockingIo()
    yield blocking
    blocking.close()


@pytest.fixture(params=["local", "remote"])
def box(request: pytest.FixtureRequest, tmp_path: Path, io: BlockingIo) -> Iterator[Box]:
    """A local path, and an fsspec URL (fsspec's memory file system)."""
    if request.param == "local":
        yield Box(str(tmp_path / "storage"), io)
        return
    url = f"memory://{tmp_path.name}"
    yield Box(url, io)
    with suppress(FileNotFoundError):
        fsspec.filesystem("memory").rm(f"/{tmp_path.name}", recursive=True)


async def read_all(store: BlobStore, key: str) -> bytes:
    return b"".join([chunk async for chunk in store.chunks(parse_blob_key(key))])


# --- uploads ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, SIZE_MAX])
async def test_upload_and_download(box: Box, size: int) -> None:
    data = bytes(index % 251 for index in range(1000)) * (size // 1000 + 1)
    data = data[:size]
    chunks = [data[start : start + 100_000] for start in range(0, size, 100_000)]
    key = await box.store.upload(stream(*chunks), sha256=digest_of(data))
    assert box.names() == [str(key)]
    assert await read_all(box.store, str(key)) == data
    assert await box.store.read_object(str(key)) == data


async def test_an_object_in_memory(box: Box) -> None:
    key = await box.store.write_object(b"graph")
    assert key.startswith(f"{digest_of(b'graph')}-")
    assert await box.store.read_object(key) == b"graph"
    assert await box.store.write_object(b"graph") != key
    with pytest.raises(BlobTooLargeError):
        await box.store.write_object(bytes(SIZE_MAX + 1))


async def test_a_truncated_upload_leaves_nothing(box: Box) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(CHUNK_BYTES)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await box.store.upload(broken(), sha256=digest_of(bytes(2 * CHUNK_BYTES)))
    with pytest.raises(DigestMismatchError):
        await box.store.upload(stream(b"half"), sha256=digest_of(b"half and half"))
    assert box.names() == []


async def test_a_cancelled_upload_leaves_nothing(box: Box) -> None:
    has_begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield bytes(CHUNK_BYTES)
        has_begun.set()
        await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(box.store.upload(endless(), sha256="0" * 64))
        await has_begun.wait()
        task.cancel()
    assert box.names() == []


async def test_an_oversized_upload_ends_early_and_leaves_nothing(box: Box) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += CHUNK_BYTES
            yield bytes(CHUNK_BYTES)

    with pytest.raises(BlobTooLargeError, match=r"blob\.max-size"):
        await box.store.upload(endless(), sha256="0" * 64)
    assert sent == SIZE_MAX + CHUNK_BYTES
    assert box.names() == []


@pytest.mark.parametrize("digest", ["", "x" * 64, "A" * 64, "../../etc/passwd", "0" * 63])
async def test_a_digest_is_a_digest(box: Box, digest: str) -> None:
    with pytest.raises(InvalidInputError):
        await box.store.upload(stream(b""), sha256=digest)
    with pytest.raises(InvalidInputError):
        await box.store.missing([digest])
    with pytest.raises(InvalidInputError):
        await box.store.read_object(f"{digest}-{'0' * 32}")


async def test_what_is_not_there_is_not_found(box: Box) -> None:
    key = f"{'0' * 64}-{'0' * 32}"
    with pytest.raises(NotFoundError):
        await read_all(box.store, key)
    with pytest.raises(NotFoundError):
        await box.store.read_object(key)


async def test_a_damaged_object_is_recognised(tmp_path: Path, io: BlockingIo) -> None:
    box = Box(str(tmp_path), io)
    key = await box.store.write_object(b"right")
    (tmp_path / "blobs" / key[:2] / key).write_bytes(b"wrong")
    with pytest.raises(DigestMismatchError):
        await box.store.read_object(key)


async def test_storage_that_fails_is_away() -> None:
    with pytest.raises(UnavailableError), translated("write"):
        raise OSError(errno.EIO, "")


async def test_an_unusable_directory_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for url in (str(tmp_path / "file" / "below"), "nosuchscheme://x"):
        with pytest.raises(UnavailableError):
            open_directory(url)


# --- R19, by a clock set by hand ----------------------------------------------------------------------------


async def nothing() -> Sequence[str]:
    return ()


async def test_missing_names_what_must_be_uploaded(box: Box) -> None:
    here, absent = digest_of(b"here"), digest_of(b"absent")
    key = await box.store.upload(stream(b"here"), sha256=here)
    answer = await box.store.missing([here, absent, here])
    assert (answer.missing, answer.keys) == ((absent,), {here: str(key)})


async def test_after_a_day_an_object_is_missing_and_a_new_upload_is_another_object(box: Box) -> None:
    digest = digest_of(b"data")
    old = await box.store.upload(stream(b"data"), sha256=digest)
    box.clock.advance(22 * HOUR)
    assert (await box.store.missing([digest])).missing == ()
    assert await box.store.not_referable([str(old)]) == []
    # Offered no more, so that whoever was told of it a moment ago can still submit.
    box.clock.advance(1.5 * HOUR)
    assert (await box.store.missing([digest])).missing == (digest,)
    assert await box.store.not_referable([str(old)]) == []
    box.clock.advance(0.5 * HOUR)
    assert await box.store.not_referable([str(old)]) == [str(old)]
    new = await box.store.upload(stream(b"data"), sha256=digest)
    assert new != old
    assert (await box.store.missing([digest])).keys == {digest: str(new)}
    assert await box.store.read_object(str(old)) == b"data"


async def test_what_is_not_there_is_not_referable(box: Box) -> None:
    key = await box.store.write_object(b"data")
    gone = f"{'0' * 64}-{key[65:]}"
    assert await box.store.not_referable([key, gone]) == [gone]


async def test_only_unreferenced_objects_older_than_2r_are_deleted(box: Box) -> None:
    used = await box.store.write_object(b"used")
    unused = await box.store.write_object(b"unused")
    box.clock.advance(2 * 24 * HOUR)
    assert await box.store.collect(nothing) == 0
    box.clock.advance(1)
    young = await box.store.write_object(b"young")

    async def references() -> Sequence[str]:
        return (used,)

    assert await box.store.collect(references) == 1
    assert box.names() == sorted([used, young])
    with pytest.raises(NotFoundError):
        await box.store.read_object(unused)
    assert await box.store.collect(references) == 0


async def test_references_are_read_only_if_something_could_be_deleted_and_a_failure_deletes_nothing(box: Box) -> None:
    async def fails() -> Sequence[str]:
        raise UnavailableError

    key = await box.store.write_object(b"data")
    assert await box.store.collect(fails) == 0
    box.clock.advance(49 * HOUR)
    with pytest.raises(UnavailableError):
        await box.store.collect(fails)
    assert box.names() == [key]


async def test_what_can_be_deleted_can_no_longer_be_referenced() -> None:
    retention = Retention()
    clock = ManualClock()
    key = parse_blob_key(f"{'0' * 64}-{clock.millis:012x}{'f' * 20}")
    for age in range(0, 3 * REFERENCE_MILLIS, REFERENCE_MILLIS // 8):
        # Two hosts whose clocks differ by less than R.
        for skew in (-REFERENCE_MILLIS + 1, 0, REFERENCE_MILLIS - 1):
            now = clock.millis + age
            assert not (retention.may_be_deleted(key, now) and retention.may_be_referenced(key, now + skew))


async def test_uploads_that_never_ended_are_swept(box: Box) -> None:
    staged = box.directory.stage(f"{box.clock.millis:012x}{'0' * 20}")
    staged.write(b"x")
    assert await box.store.collect_staged() == 0
    box.clock.advance(49 * HOUR)
    assert await box.store.collect_staged() == 1
    staged.discard()
    assert box.names() == []


# --- server, packs, probe -----------------------------------------------------------------------------------


async def test_the_server_bounds_uploads_and_questions(box: Box) -> None:
    server = BlobServer(box.store, uploads_max=1)
    may_end = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"slow"
        await may_end.wait()

    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(server.upload(slow(), sha256=digest_of(b"slow")))
        await asyncio.sleep(0)
        with pytest.raises(BackpressureError):
            await server.upload(stream(b"x"), sha256=digest_of(b"x"))
        may_end.set()
    key = first.result()
    assert [chunk async for chunk in server.chunk_source(str(key))] == [b"slow"]
    assert [chunk async for chunk in server.download(key)] == [b"slow"]
    with pytest.raises(InvalidInputError):
        await server.missing([digest_of(b"x")] * 10_001)
    with pytest.raises(InvalidInputError):
        server.chunk_source("../secret")


async def test_many_archives_in_one_object(box: Box) -> None:
    archives = [b"first", b"", bytes(100_000), b"last"]
    packed = await write_pack(box.store, archives)
    assert len(box.names()) == 1
    assert [await read_packed(box.store, archive) for archive in packed] == archives
    wrong = PackedArchive(packed[0].key, 1, 5, packed[0].sha256)
    with pytest.raises(DigestMismatchError):
        await read_packed(box.store, wrong)


PROCESS = Incarnation("1" * 32)


async def test_shared_storage_passes_the_probe(box: Box, io: BlockingIo) -> None:
    leader = StorageProbe(box.directory, io, SeededEntropy(1))
    process = StorageProbe(box.directory, io, SeededEntropy(2))
    await leader.challenge(PROCESS, 7, "nonce")
    await process.answer(PROCESS, 7)
    await leader.check(PROCESS, 7, "nonce")
    assert box.directory.files("probe") == []


async def test_a_leader_that_does_not_know_that_it_is_over_disturbs_no_probe(box: Box, io: BlockingIo) -> None:
    old, leader, process = (StorageProbe(box.directory, io, SeededEntropy(number)) for number in (1, 2, 3))
    await old.challenge(PROCESS, 7, "old")
    await leader.challenge(PROCESS, 8, "new")
    await process.answer(PROCESS, 8)
    with pytest.raises(StorageNotSharedError):
        await old.check(PROCESS, 7, "old")
    await leader.check(PROCESS, 8, "new")


async def test_an_answer_that_comes_late_is_taken_at_the_next_look(box: Box, io: BlockingIo) -> None:
    leader, process = (StorageProbe(box.directory, io, SeededEntropy(number)) for number in (1, 2))
    await leader.challenge(PROCESS, 7, "nonce")
    with pytest.raises(StorageNotSharedError):
        await leader.check(PROCESS, 7, "nonce")
    await process.answer(PROCESS, 7)
    await leader.check(PROCESS, 7, "nonce")


async def test_storage_that_is_not_shared_is_found(tmp_path: Path, io: BlockingIo) -> None:
    leader = StorageProbe(open_directory(str(tmp_path / "a")), io, SeededEntropy(1))
    process = StorageProbe(open_directory(str(tmp_path / "b")), io, SeededEntropy(2))
    await leader.challenge(PROCESS, 7, "nonce")
    with pytest.raises(StorageNotSharedError, match="storageDir"):
        await process.answer(PROCESS, 7)
    with pytest.raises(StorageNotSharedError, match="storageDir"):
        await leader.check(PROCESS, 7, "nonce")
