"""The cleaner over a real store of jobs and a real directory: packs are bounded, and no archive stops it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.aio.blocking import BlockingIo
from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.blob.directory import open_directory
from runtime.blob.store import BlobStore, BlobStoreSettings
from runtime.common.errors import UnavailableError
from runtime.common.fencing import FencingToken
from runtime.common.ids import ClusterUuid, Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.dispatcher.archive_packs import BlobArchivePacks
from runtime.dispatcher.cleanup import JobCleaner
from runtime.dispatcher.core import events as ev
from runtime.dispatcher.core.jobs import JobRegistry
from runtime.dispatcher.core.retention import Retention
from runtime.dispatcher.core.shown_summary import initial_summary
from runtime.dispatcher.core.submits import JobRegistryLimits
from runtime.dispatcher.services import ArchivePointer, DispatcherServices
from runtime.dispatcher.settings import DispatcherSettings
from runtime.dispatcher.stored_jobs import encode_summary
from runtime.highavailability.jobs.job_store_kv import JobStoreSettings, KvLeaderJobStore, KvOwnerJobStore
from runtime.highavailability.jobs.payloads import Payloads
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.records import GraphRecord, OwnerRecord, Payload, ResultRecord
from runtime.history.pack import EndedJob
from tests.kit.control_plane.process_events import process_registered
from tests.kit.control_plane.virtual_time import ManualClock

OWNER = Incarnation("1" * 32)
RETENTION = Retention(100, 3_600_000)


@dataclass
class Box:
    """One term with its jobs, over one directory."""

    services: DispatcherServices
    owner_store: KvOwnerJobStore
    registry: JobRegistry
    pack_bytes_max: int
    clock: ManualClock
    jobs: dict[JobId, Payload] = field(default_factory=dict)

    async def finish(self, number: int, archive: bytes) -> JobId:
        """A job that has ended with this archive."""
        job_id = JobId(f"{number:032x}")
        source = ev.JobSource(job_id, "d", "job", b"{}", "", 1000, "tests")
        payload = await self.services.payloads.store(b"{}")
        submitted = await self.services.store.submit(
            job_id, GraphRecord(payload, "job", 1000, "tests"), OwnerRecord(OWNER, "h:1")
        )
        epoch = getattr(submitted, "epoch", 0)
        ended = initial_summary(source)
        ended = type(ended)(
            ended.job_id, "job", JobStatus.FINISHED, epoch, 1, 1000, 2000, 2000, ended.tasks, ""
        )  # fmt: skip
        stored: Payload = await self.services.payloads.store(archive)
        self.jobs[job_id] = stored
        await self.owner_store.write_result(
            job_id, epoch, ResultRecord(JobStatus.FINISHED, encode_summary(ended), stored)
        )
        self.registry.handle(ev.SubmitRequested(number, source))
        self.registry.handle(ev.SubmitStored(job_id, epoch, ""))
        self.registry.handle(ev.SummariesReceived((ended,)))
        return job_id

    @cached_property
    def _cleaner(self) -> JobCleaner:
        settings = DispatcherSettings(
            limits=JobRegistryLimits(100, 100),
            shown=RETENTION,
            remembered=RETENTION,
            heartbeat_interval=1.0,
            heartbeat_timeout=5.0,
            rpc_timeout=5.0,
            pack_bytes_max=self.pack_bytes_max,
        )
        return JobCleaner(settings, self.services, self.registry, lambda event: _handle(self.registry, event))

    async def clean(self) -> int:
        """Run the cleaner once."""
        return await self._cleaner.clean()

    async def pointer(self, job_id: JobId) -> ArchivePointer:
        """Where the archive of a cleaned job lies."""
        done = await self.services.store.done(job_id)
        assert done is not None
        return ArchivePointer(done.archive_key, done.archive_offset, done.archive_size_bytes, done.archive_sha256)


def _handle(registry: JobRegistry, event: ev.DispatcherEvent) -> None:
    registry.handle(event)


@pytest_asyncio.fixture
async def box(tmp_path: Path) -> AsyncIterator[Box]:
    clock, entropy, io = LoopClock(), SystemEntropy(), BlockingIo()
    blobs = BlobStore(
        open_directory(tmp_path.as_uri()), BlobStoreSettings(object_bytes_max=100_000), io, clock, entropy
    )
    kv, keys, payloads = MemoryKeyValueStore(clock), Keys.of_cluster("test"), Payloads(blobs)
    manual = ManualClock()
    won = await kv.txn(Txn((), (Put(keys.leader(1), b"1"),)), timeout=5.0)
    settings = JobStoreSettings(5.0)
    term = LeaderTerm(keys.leader(1), won.revision)
    services = DispatcherServices(
        store=KvLeaderJobStore(kv, keys, payloads, term, settings, entropy),
        payloads=payloads,
        archives=BlobArchivePacks(blobs),
        blobs=blobs,
        clock=manual,
        entropy=entropy,
        token=FencingToken(ClusterUuid("c" * 32), won.revision),
        incarnation=OWNER,
        address="h:1",
        stops=None,
    )
    registry = JobRegistry(JobRegistryLimits(100, 100), RETENTION)
    registry.handle(process_registered(OWNER, "h:1", 100, "v"))
    yield Box(services, KvOwnerJobStore(kv, keys, payloads, settings, entropy), registry, 50_000, manual)
    await kv.close()
    io.close()


@pytest.mark.asyncio
async def test_packs_are_bounded_by_bytes(box: Box) -> None:
    jobs = [await box.finish(number, bytes([number]) * 20_000) for number in range(5)]
    assert await box.clean() == 5
    pointers = [await box.pointer(job_id) for job_id in jobs]
    assert len({pointer.key for pointer in pointers}) == 3, "two archives fit into one object"
    for number, pointer in enumerate(pointers):
        assert await box.services.archives.unpack(pointer) == bytes([number]) * 20_000


@pytest.mark.asyncio
async def test_an_archive_with_an_object_of_its_own_keeps_it(box: Box) -> None:
    small, large = await box.finish(1, b"s"), await box.finish(2, b"l" * 90_000)
    assert await box.clean() == 2
    assert (await box.pointer(large)).offset == 0
    assert await box.services.archives.unpack(await box.pointer(large)) == b"l" * 90_000
    assert await box.services.archives.unpack(await box.pointer(small)) == b"s"
    assert (await box.pointer(small)).key != (await box.pointer(large)).key


@pytest.mark.asyncio
async def test_an_archive_that_cannot_be_stored_stops_nobody(box: Box) -> None:
    box.pack_bytes_max = 1 << 30
    jobs = [await box.finish(number, bytes([number]) * 30_000) for number in range(4)]
    assert await box.clean() == 4, "their pack is above blob.max-size"
    assert {(await box.pointer(job_id)).key for job_id in jobs} == {""}
    assert box.registry.dirty_count() == 0


def stored_at(tmp_path: Path, box: Box, job_id: JobId) -> Path:
    """The file of a job's archive."""
    (found,) = [path for path in tmp_path.rglob("*") if path.name == box.jobs[job_id].object_key]
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize("is_spoiled", [True, False])
async def test_an_archive_that_storage_denies_is_looked_for_twice(box: Box, tmp_path: Path, is_spoiled: bool) -> None:
    """The other jobs do not wait for that archive (R20)."""
    denied, other = await box.finish(1, b"d" * 40_000), await box.finish(2, b"o" * 40_000)
    path = stored_at(tmp_path, box, denied)
    if is_spoiled:
        path.write_bytes(b"x")
    else:
        path.unlink()
    assert await box.clean() == 1
    assert await box.services.archives.unpack(await box.pointer(other)) == b"o" * 40_000
    box.clock.advance(9.9)
    assert (await box.clean(), box.registry.dirty_count()) == (0, 1)
    box.clock.advance(0.2)
    assert (await box.clean(), box.registry.dirty_count()) == (1, 0)
    assert (await box.pointer(denied)).key == ""


@pytest.mark.asyncio
async def test_an_archive_that_is_there_at_the_second_look_is_kept(box: Box, tmp_path: Path) -> None:  # R20
    job_id = await box.finish(1, b"d" * 40_000)
    path = stored_at(tmp_path, box, job_id)
    aside = path.rename(tmp_path / "aside")
    assert await box.clean() == 0
    aside.rename(path)
    box.clock.advance(10.0)
    assert await box.clean() == 1
    assert await box.services.archives.unpack(await box.pointer(job_id)) == b"d" * 40_000


@pytest.mark.asyncio
async def test_storage_that_is_away_costs_nobody_its_archive(box: Box, tmp_path: Path) -> None:  # R20
    """The cleaner may look for an archive any number of times."""
    job_id = await box.finish(1, b"d" * 40_000)
    path = stored_at(tmp_path, box, job_id)
    aside = path.rename(tmp_path / "aside")
    path.mkdir()
    for _ in range(3):
        with pytest.raises(UnavailableError):
            await box.clean()
        box.clock.advance(10.0)
    path.rmdir()
    aside.rename(path)
    assert await box.clean() == 1
    assert await box.services.archives.unpack(await box.pointer(job_id)) == b"d" * 40_000


@pytest.mark.asyncio
async def test_a_job_is_in_the_history_before_it_is_cleaned(box: Box) -> None:
    """D-115: small and large archives, and a job whose archive is lost."""
    written: list[tuple[JobId, bytes, bool]] = []

    class Told:
        async def write(self, jobs: Sequence[EndedJob], /) -> None:
            for job in jobs:
                is_cleaned = await box.services.store.done(job.summary.job_id) is not None
                written.append((job.summary.job_id, job.archive, is_cleaned))

    box.services = replace(box.services, history=Told())
    small, large = await box.finish(1, b"s"), await box.finish(2, b"l" * 90_000)
    assert await box.clean() == 2
    assert sorted(written) == [(small, b"s", False), (large, b"l" * 90_000, False)]
