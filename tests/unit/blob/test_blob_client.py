"""BlobSharedClient: one download for many, a bounded cache, storage first, patience with storage that is away (R20)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.aio.blocking import BlockingIo
from runtime.aio.entropy import SystemEntropy
from runtime.aio.retry import RetryPolicy
from runtime.blob.client import BlobClientSettings, BlobSharedClient, Patience
from runtime.blob.directory import LocalDirectory
from runtime.blob.server import CHUNK_SOURCE, BlobServer
from runtime.blob.store import BlobStore, BlobStoreSettings, DigestMismatchError
from runtime.common.errors import BugError, InvalidInputError, NotFoundError, UnavailableError
from tests.kit.control_plane.virtual_time import ManualClock

pytestmark = pytest.mark.asyncio

CACHE_MAX = 1000


class Fetcher:
    """RpcService.fetch_chunks as the test wants it; `served` counts."""

    def __init__(self, source: Callable[[str], AsyncIterator[bytes]]) -> None:
        self._source = source
        self.served = 0
        self.failures: list[Exception] = []
        self.may_serve = asyncio.Event()
        self.may_serve.set()
        self.damage = b""

    async def fetch_chunks(self, address: str, name: str, key: str, *, timeout: float) -> AsyncIterator[bytes]:
        assert (address, name, timeout) == ("leader:1", CHUNK_SOURCE, 30.0)
        self.served += 1
        await self.may_serve.wait()
        if self.failures:
            raise self.failures.pop(0)
        async for chunk in self._source(key):
            yield chunk
        if self.damage:
            damage, self.damage = self.damage, b""
            yield damage


class Box:
    """The leader's storage, and a client that sees it or not."""

    def __init__(self, tmp_path: Path, io: BlockingIo) -> None:
        self._tmp_path = tmp_path
        self.io = io
        settings = BlobStoreSettings(object_bytes_max=10**6)
        self.store = BlobStore(LocalDirectory(tmp_path / "storage"), settings, io, ManualClock(), SystemEntropy())
        self.fetcher = Fetcher(BlobServer(self.store).chunk_source)
        self.address: str | None = "leader:1"
        self.clients: list[BlobSharedClient] = []

    async def client(self, *, store: BlobStore | None = None, is_patient: bool = True) -> BlobSharedClient:
        settings = BlobClientSettings(
            cache_directory=self._tmp_path / "cache",
            cache_bytes_max=CACHE_MAX,
            patience=Patience(0.01, RetryPolicy(delay_initial=0.001, delay_max=0.001)) if is_patient else None,
        )
        client = BlobSharedClient(settings, store, self.fetcher, lambda: self.address, self.io, SystemEntropy())
        await client.start()
        self.clients.append(client)
        return client

    def cached(self) -> set[str]:
        return {path.name for path in (self._tmp_path / "cache").iterdir()}


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[Box]:
    io = BlockingIo()
    box = Box(tmp_path, io)
    yield box
    for client in box.clients:
        await client.stop()
    io.close()


async def test_storage_first(box: Box) -> None:
    client = await box.client(store=box.store)
    key = await client.write(b"data")
    assert await client.read(key) == b"data"
    assert box.fetcher.served == 0
    async with client.file(key) as path:
        assert path.read_bytes() == b"data"
    assert client.downloads == 1


async def test_the_server_when_storage_is_not_shared(box: Box, tmp_path: Path) -> None:
    key = await box.store.write_object(b"data")
    blind = await box.client()
    assert await blind.read(key) == b"data"
    with pytest.raises(UnavailableError):
        await blind.write(b"x")
    other = LocalDirectory(tmp_path / "other")
    settings = BlobStoreSettings(object_bytes_max=10**6)
    elsewhere = BlobStore(other, settings, box.io, ManualClock(), SystemEntropy())
    second = await box.store.write_object(b"more")
    assert await (await box.client(store=elsewhere)).read(second) == b"more"


async def test_one_download_for_all_who_ask_at_the_same_time(box: Box) -> None:
    key = await box.store.write_object(b"data")
    client = await box.client()
    box.fetcher.may_serve.clear()
    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(client.read(key)) for _ in range(20)]
        gives_up = tasks.create_task(client.read(key))
        while not box.fetcher.served:
            await asyncio.sleep(0)
        gives_up.cancel()
        await asyncio.sleep(0)
        box.fetcher.may_serve.set()
    assert {reader.result() for reader in readers} == {b"data"}
    assert box.fetcher.served == 1


async def test_who_began_the_download_may_leave_it_to_the_others(box: Box) -> None:
    key = await box.store.write_object(b"data")
    client = await box.client()
    box.fetcher.may_serve.clear()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(client.read(key))
        second = tasks.create_task(client.read(key))
        while not box.fetcher.served:
            await asyncio.sleep(0)
        first.cancel()
        box.fetcher.may_serve.set()
    assert second.result() == b"data"


async def test_the_cache_is_bounded_and_forgets_what_was_used_least_recently(box: Box) -> None:
    keys = [await box.store.write_object(bytes([index]) * 300) for index in range(4)]
    client = await box.client()
    for key in keys[:3]:
        await client.read(key)
    await client.read(keys[0])
    await client.read(keys[3])
    assert box.cached() == {keys[0], keys[2], keys[3]}
    await client.read(keys[1])
    assert box.fetcher.served == 5


async def test_what_is_in_use_stays(box: Box) -> None:
    keys = [await box.store.write_object(bytes([index]) * 600) for index in range(3)]
    client = await box.client()
    first = await client.acquire(keys[0])
    again = await client.acquire(keys[0])
    second = await client.acquire(keys[1])
    assert first == again
    assert first.exists()
    assert second.exists()
    assert box.cached() == set(keys[:2])
    await client.release(keys[0])
    assert first.exists()
    await client.release(keys[0])
    assert not first.exists()
    assert second.exists()
    assert box.cached() == {keys[1]}
    await client.release(keys[1])


async def test_an_object_larger_than_the_cache_can_be_used(box: Box) -> None:
    key = await box.store.write_object(bytes(CACHE_MAX + 1))
    client = await box.client()
    assert len(await client.read(key)) == CACHE_MAX + 1
    assert box.cached() == set()


async def test_a_wrong_digest_is_refused_after_a_second_look(box: Box) -> None:
    key = await box.store.write_object(b"data")
    client = await box.client()
    box.fetcher.damage = b"!"
    assert await client.read(key) == b"data"
    assert box.fetcher.served == 2
    other = await box.store.write_object(b"other")
    box.fetcher = Fetcher(lambda _: _stream(b"wrong"))
    with pytest.raises(DigestMismatchError):
        await (await box.client()).read(other)
    assert box.fetcher.served == 2
    assert box.cached() == {key}


async def test_not_found_is_believed_the_second_time(box: Box) -> None:
    client = await box.client()
    with pytest.raises(NotFoundError):
        await client.read(f"{'0' * 64}-{'0' * 32}")
    assert box.fetcher.served == 2
    key = await box.store.write_object(b"data")
    box.fetcher.failures.append(NotFoundError("late"))
    assert await client.read(key) == b"data"


async def test_storage_that_is_away_is_asked_again(box: Box) -> None:
    key = await box.store.write_object(b"data")
    client = await box.client()
    box.fetcher.failures += [UnavailableError("the storage is away")] * 5
    box.address = None
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(client.read(key))
        while client.downloads < 2:
            await asyncio.sleep(0)
        assert not reader.done()
        box.address = "leader:1"
    assert reader.result() == b"data"
    assert box.fetcher.served == 6


async def test_without_patience_a_failure_is_told_at_once(box: Box) -> None:
    key = await box.store.write_object(b"data")
    client = await box.client(is_patient=False)
    box.fetcher.failures += [UnavailableError("the storage is away"), NotFoundError("none")]
    with pytest.raises(UnavailableError, match="away"):
        await client.read(key)
    with pytest.raises(NotFoundError):
        await client.read(key)
    assert await client.read(key) == b"data"
    assert client.downloads == 3


async def test_a_new_process_takes_over_the_cache(box: Box, tmp_path: Path) -> None:
    keys = [await box.store.write_object(bytes([index]) * 400) for index in range(2)]
    client = await box.client()
    for key in keys:
        await client.read(key)
    await client.stop()
    (tmp_path / "cache" / f"{keys[0]}.part").write_bytes(b"half")
    (tmp_path / "cache" / keys[0]).unlink()
    served = box.fetcher.served
    again = await box.client()
    assert await again.read(keys[1]) == bytes([1]) * 400
    assert box.fetcher.served == served
    assert box.cached() == {keys[1]}


async def test_a_file_that_vanished_from_the_cache_is_fetched_again(box: Box, tmp_path: Path) -> None:
    key = await box.store.write_object(b"data")
    client = await box.client()
    await client.read(key)
    (tmp_path / "cache" / key).unlink()
    assert await client.read(key) == b"data"


async def test_a_stopped_client_says_so(box: Box) -> None:
    key = await box.store.write_object(b"data")
    client = await box.client()
    box.fetcher.may_serve.clear()
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(_failure_of(client, key))
        while not box.fetcher.served:
            await asyncio.sleep(0)
        await client.stop()
    assert reader.result() is UnavailableError
    assert box.cached() == set()


async def test_a_key_is_a_key(box: Box) -> None:
    with pytest.raises(InvalidInputError):
        await (await box.client()).read("../../secret")


async def _failure_of(client: BlobSharedClient, key: str) -> type[Exception] | None:
    try:
        await client.read(key)
    except UnavailableError as error:
        return type(error)
    return None


async def _stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def test_a_disk_that_is_full_at_the_close_is_waited_for(box: Box, tmp_path: Path) -> None:
    key = await box.store.write_object(b"data")
    client = await box.client(store=box.store)
    # Takes every buffered write, and has no space when the buffer is written at the close.
    (tmp_path / "cache" / f"{key}.part").symlink_to("/dev/full")
    assert await client.read(key) == b"data"
    assert client.downloads == 2


async def test_an_error_nobody_expected_ends_one_download_only(box: Box) -> None:
    key = await box.store.write_object(b"data")
    client = await box.client()
    box.fetcher.failures.append(ValueError("no error of ours"))
    with pytest.raises(BugError, match="no error of ours"):
        await client.read(key)
    assert await client.read(key) == b"data"
