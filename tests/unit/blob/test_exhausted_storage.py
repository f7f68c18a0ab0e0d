"""Full or read-only storage, on real files: an error with path and size, and no half-written file (R20)."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runtime.aio.blocking import BlockingIo
from runtime.aio.entropy import SystemEntropy
from runtime.blob.directory import open_directory, translated
from runtime.blob.store import BlobStore, BlobStoreSettings
from runtime.common.errors import StorageExhaustedError
from tests.kit.control_plane.virtual_time import ManualClock

pytestmark = pytest.mark.asyncio

NOBODY = 65534
ROOM = 64 * 1024


@contextmanager
def room_for(size_bytes: int) -> Iterator[None]:
    """Files of this process cannot grow beyond that size: a write stops in its middle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def nobody() -> Iterator[None]:
    """Permissions do not bind root."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlobStore]:
    io = BlockingIo()
    settings = BlobStoreSettings(object_bytes_max=1024 * 1024)
    yield BlobStore(open_directory(str(tmp_path / "storage")), settings, io, ManualClock(), SystemEntropy())
    io.close()


def files(store: BlobStore) -> list[Path]:
    return [path for path in Path(store.url).rglob("*") if path.is_file()]


async def test_an_object_without_room_is_refused_with_path_and_size_and_leaves_nothing(store: BlobStore) -> None:
    with room_for(ROOM):
        with pytest.raises(StorageExhaustedError, match=f"storage {store.url} has no room for an object of 100000 byt"):
            await store.write_object(bytes(100_000))
        assert files(store) == []
        small = await store.write_object(bytes(1000))
    assert await store.read_object(small) == bytes(1000)
    large = await store.write_object(bytes(100_000))
    assert await store.read_object(large) == bytes(100_000)


async def test_an_upload_without_room_leaves_nothing(store: BlobStore) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield bytes(ROOM)
        yield bytes(ROOM)

    digest = hashlib.sha256(bytes(2 * ROOM)).hexdigest()
    with room_for(ROOM), pytest.raises(StorageExhaustedError, match=f"has no room for blob {digest}"):
        await store.upload(chunks(), sha256=digest)
    assert files(store) == []


@pytest.fixture
def protected(store: BlobStore) -> BlobStore:
    """A store whose folders this process may not write."""
    for folder in (Path(store.url), *Path(store.url).iterdir()):
        folder.chmod(0o555)
    return store


async def test_a_directory_that_must_not_be_written_to_says_so(protected: BlobStore) -> None:
    with nobody(), pytest.raises(StorageExhaustedError, match=r"object of 5 bytes: .* does not allow it"):
        await protected.write_object(b"small")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "is full"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "no file of this size"),
        (errno.EROFS, "is read-only"),
    ],
)
async def test_what_storage_without_room_says(number: int, words: str) -> None:
    with pytest.raises(StorageExhaustedError, match=words), translated("write"):
        raise OSError(number, "")
