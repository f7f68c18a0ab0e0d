"""etcd is restored from a snapshot (R35): nothing is decided on it until an operator has said so, by the procedure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.aio.blocking import BlockingIo
from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.blob.directory import LocalDirectory
from runtime.blob.mark_file import MarkFile
from runtime.common.ids import Incarnation, JobId
from runtime.entrypoint import restored_etcd
from runtime.entrypoint.control import embedded_etcd as embedded
from runtime.highavailability.jobs.job_store import Submitted
from runtime.highavailability.jobs.payloads import inline_payload
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.key_value_store import Delete, Put, StoreRestoredError, Txn
from runtime.highavailability.records import GraphRecord, OwnerRecord, TaskManagerRecord
from runtime.highavailability.restored_store import REASON
from runtime.highavailability.services import HighAvailabilityServices, HighAvailabilitySettings, create
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.etcd.server import EtcdProcess, seal_of

pytestmark = [pytest.mark.process, pytest.mark.etcd]

TIMEOUT = 5.0
OLD, NEW = JobId("a" * 32), JobId("b" * 32)
TM = Incarnation("c" * 32)


@dataclass
class Site:
    """A cluster's etcd and storage."""

    etcd: EtcdProcess
    directory: Path

    @property
    def options(self) -> list[str]:
        settings = {
            **self.etcd.options(),
            "high-availability.storageDir": str(self.directory / "storage"),
            "high-availability.lease-timeout": "3 s",
            "security.cluster-key-file": str(self.directory / "run" / "cluster-key"),
        }
        return [part for key, value in settings.items() for part in ("-D", f"{key}={value}")]

    @asynccontextmanager
    async def services(self) -> AsyncIterator[HighAvailabilityServices]:
        seal = seal_of(self.directory / "run")
        settings = HighAvailabilitySettings(
            "default", lease_ttl=2, timeout=TIMEOUT, etcd=self.etcd.settings(), seal=seal
        )
        made = create(
            settings, objects=MemoryObjectStore(), clock=LoopClock(), boot_clock=LoopClock(), entropy=SystemEntropy()
        )
        await made.start()
        try:
            yield made
        finally:
            await made.close()

    async def note(self, services: HighAvailabilityServices) -> None:
        """What the leader does every minute."""
        await services.store_mark(self.file()).note()

    def file(self) -> MarkFile:
        return MarkFile(LocalDirectory(self.directory / "storage"), "default", BlockingIo(), SystemEntropy())

    async def submit(self, services: HighAvailabilityServices, job_id: JobId) -> None:
        key = services.keys.leader(1)
        won = await services.kv.txn(Txn((), (Put(key, b"{}"),)), timeout=TIMEOUT)
        term = LeaderTerm(key, (await services.kv.range(key, is_prefix=False, timeout=TIMEOUT)).kvs[0].create_revision)
        assert won.succeeded
        graph = GraphRecord(inline_payload(b"graph"), "job", 1, "client")
        store = services.leader_job_store(term)
        assert isinstance(await store.submit(job_id, graph, OwnerRecord(TM, "h:1")), Submitted)
        await services.kv.txn(Txn((), (Delete(key),)), timeout=TIMEOUT)

    def save(self) -> Path:
        """A snapshot."""
        snapshot = self.directory / "snapshot.db"
        self.etcd.ctl("snapshot", "save", str(snapshot))
        return snapshot

    def restore(self, snapshot: Path) -> None:
        """As docs/operations.md says."""
        self.etcd.kill()
        data = self.etcd.directory / "etcd"
        shutil.rmtree(data)
        etcdutl = embedded.find_binary().with_name("etcdutl")
        peer = "https://127.0.0.1:2380"
        command = [str(etcdutl), "snapshot", "restore", str(snapshot), f"--data-dir={data}", "--name=embedded"]
        names = [f"--initial-cluster=embedded={peer}", f"--initial-advertise-peer-urls={peer}"]
        subprocess.run([*command, *names], check=True, capture_output=True, timeout=30)
        self.etcd.start()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    process = EtcdProcess(tmp_path)
    process.start()
    yield Site(process, tmp_path)
    process.stop()


@pytest.mark.asyncio
async def test_a_process_that_has_seen_more_decides_nothing(site: Site) -> None:
    async with site.services() as services:
        await site.submit(services, OLD)
        snapshot = site.save()
        await site.submit(services, NEW)
        site.restore(snapshot)
        with pytest.raises(
            StoreRestoredError, match=r"stop all processes of the cluster and run bin/restored-etcd\.sh"
        ):
            await services.job_reader().jobs()
        with pytest.raises(StoreRestoredError):
            await services.kv.txn(Txn((), (Put("/a", b"{}"),)), timeout=TIMEOUT)
        with pytest.raises(StoreRestoredError):
            await services.kv.grant_lease(5, timeout=TIMEOUT)


@pytest.mark.asyncio
async def test_an_etcd_that_is_another_cluster_is_found_though_its_revision_is_higher(site: Site) -> None:
    async with site.services() as services:
        await site.note(services)
        snapshot = site.save()
        site.restore(snapshot)
        async with site.services() as later:
            for _ in range(20):
                await later.kv.txn(Txn((), (Put("/a", b"{}"),)), timeout=TIMEOUT)
            with pytest.raises(StoreRestoredError, match="was cluster"):
                await later.store_mark(site.file()).check()
        with pytest.raises(StoreRestoredError, match="was cluster"):
            await services.job_reader().jobs()


@pytest.mark.asyncio
async def test_after_the_procedure_jobs_without_a_result_are_to_be_cancelled(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    async with site.services() as services:
        await site.submit(services, OLD)
        record = TaskManagerRecord(TM, "tm", "a:1", "b:2", "boot", 4)
        await services.task_manager_registry().register(record)
        snapshot = site.save()
        await site.submit(services, NEW)
        await site.note(services)
        before = services.cluster
    site.restore(snapshot)
    assert "bin/restored-etcd.sh" in refused_by_a_job_manager(site)

    assert await run(site) == 0
    assert "1 unfinished jobs will be cancelled" in capsys.readouterr().out
    async with site.services() as services:
        await services.store_mark(site.file()).check()
        assert services.cluster != before
        (job,), _ = await services.job_reader().jobs()
        assert job.wanted is not None
        assert (job.job_id, job.wanted.wants_cancel, job.wanted.reason) == (OLD, True, REASON)
        assert not await services.task_manager_registry().task_managers()


@pytest.mark.asyncio
async def test_jobs_go_on_where_nothing_has_happened_since(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    async with site.services() as services:
        await site.submit(services, OLD)
        await site.note(services)
    site.restore(site.save())
    assert await run(site, "--keep-jobs") == 0
    assert "unfinished jobs go on" in capsys.readouterr().out
    async with site.services() as services:
        (job,), _ = await services.job_reader().jobs()
        assert job.wanted is None


@pytest.mark.asyncio
async def test_nothing_is_changed_while_processes_run(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    async with site.services() as services:
        key = services.keys.job_master(TM)
        await services.kv.txn(Txn((), (Put(key, b"{}"),)), timeout=TIMEOUT)
        before = services.cluster
        assert await run(site) == 1
        assert "1 JobManager and JobMaster processes of the cluster run" in capsys.readouterr().err
        await services.check_cluster()
        assert services.cluster == before


async def run(site: Site, *arguments: str) -> int:
    """The command, in a thread, for it has a loop of its own."""
    return await BlockingIo().run(restored_etcd.main, [*arguments, *site.options])


def refused_by_a_job_manager(site: Site) -> str:
    """What a JobManager says that ends at once."""
    environment = {**os.environ, "FLINKLIKE_RUN_DIR": str(site.directory / "run")}
    command = [sys.executable, "-m", "runtime.entrypoint.job_manager", *site.options, "-D", "rest.port=0"]
    ports = ["-D", "jobmanager.rpc.port=0", "-D", "security.authentication=none"]
    done = subprocess.run([*command, *ports], capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert done.returncode == 1, done.stderr
    return done.stdout + done.stderr
