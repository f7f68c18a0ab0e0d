"""The TaskManager's key in etcd: there before its first slot report, gone after its slots are reaped (R13)."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.aio.entropy import SystemEntropy
from runtime.common.ids import Incarnation
from runtime.gateways.resource_manager import SlotReport
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv import Delete, KeyValueStore, Put, Txn
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import LeaderRecord, TaskManagerRecord
from runtime.highavailability.registration import TaskManagerRegistry
from tests.kit.etcd import EtcdProcess
from tests.kit.task_executor_cluster import until_gone
from tests.kit.task_manager_process import TaskManager, ended, task_manager
from tests.kit.task_messages import incarnation, job_id

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.asyncio]

TIMEOUT = 5.0


@dataclass
class Cluster:
    """A TaskManager and the etcd that both it and its leader use."""

    manager: TaskManager
    kv: KeyValueStore
    keys: Keys

    async def registered(self) -> dict[Incarnation, TaskManagerRecord]:
        registry = TaskManagerRegistry(self.kv, self.keys, SystemEntropy(), timeout=TIMEOUT)
        return dict(await registry.task_managers())

    async def put(self, key: str, value: bytes = b"{}") -> None:
        await self.kv.txn(Txn((), (Put(key, value),)), timeout=TIMEOUT)

    async def delete(self, key: str) -> None:
        await self.kv.txn(Txn((), (Delete(key),)), timeout=TIMEOUT)

    async def lead(self, address: str) -> None:
        await self.put(self.keys.leader(1), encode_record(LeaderRecord(incarnation(1), address, "")))


@asynccontextmanager
async def cluster(
    tmp_path: Path, etcd: EtcdProcess, cluster_id: str, prepare: Callable[[Path], None] = lambda _: None
) -> AsyncIterator[Cluster]:
    kv = etcd.store()
    await kv.open(timeout=TIMEOUT)
    prepare(tmp_path)
    options = (
        "high-availability.type=etcd",
        f"high-availability.etcd.endpoints={etcd.endpoint}",
        f"high-availability.cluster-id={cluster_id}",
        "high-availability.etcd.allow-unsafe-version=true",
    )
    try:
        async with task_manager(tmp_path, *options) as manager:
            yield Cluster(manager, kv, Keys.of_cluster(cluster_id))
    finally:
        await kv.close()


async def test_the_key_is_there_before_the_first_report_and_gone_after_the_stop(
    tmp_path: Path, etcd: EtcdProcess
) -> None:
    async with cluster(tmp_path, etcd, "tm-stop") as made:
        assert not made.manager.leader.streams, "nobody leads yet"
        await made.lead(made.manager.leader.address)
        await made.manager.leader.wait_for(SlotReport, timeout=30)
        [(name, record)] = (await made.registered()).items()
        registration = made.manager.registration
        assert name == record.incarnation == registration.incarnation
        assert (record.address, record.guard_address) == (registration.address, registration.guard_address)
        assert made.manager.dial_guard() == f"{record.incarnation} {record.boot_id}\n"
        made.manager.process.send_signal(signal.SIGTERM)
        assert (await ended(made.manager))[0] == 143
        assert not await made.registered()


async def test_the_key_of_a_killed_one_stays_for_whoever_proves_its_death(tmp_path: Path, etcd: EtcdProcess) -> None:
    async with cluster(tmp_path, etcd, "tm-kill") as made:
        await made.lead(made.manager.leader.address)
        await made.manager.leader.wait_for(SlotReport, timeout=30)
        os.kill(made.manager.main_pid(), signal.SIGKILL)
        await ended(made.manager)
        [record] = (await made.registered()).values()
        assert record.guard_address == made.manager.registration.guard_address
        with pytest.raises(ConnectionRefusedError):
            made.manager.dial_guard()


async def test_it_follows_the_leader(tmp_path: Path, etcd: EtcdProcess) -> None:
    async with cluster(tmp_path, etcd, "tm-follow") as made:
        await made.lead(made.manager.leader.address)
        await made.manager.leader.wait_for(SlotReport, timeout=30)
        await made.delete(made.keys.leader(1))
        made.manager.leader.stream.abort("this leader is gone")
        await made.lead(made.manager.leader.address)
        await made.manager.leader.wait_for(SlotReport, 2)


async def test_leftover_partitions_of_a_job_with_a_graph_and_no_result_are_kept(
    tmp_path: Path, etcd: EtcdProcess
) -> None:
    dead = "d" * 32
    exchange = tmp_path / "run/exchange" / dead

    def leave(_: Path) -> None:
        (tmp_path / f"run/work/tm-{dead}").mkdir(parents=True)
        (tmp_path / f"run/work/tm-{dead}/lock").touch()
        for number in (1, 2, 3):
            (exchange / job_id(number) / "p").mkdir(parents=True)

    keys = Keys.of_cluster("tm-leftovers")
    kv = etcd.store()
    await kv.open(timeout=TIMEOUT)
    for key in (keys.graph(job_id(1)), keys.graph(job_id(2)), keys.result(job_id(2))):
        await kv.txn(Txn((), (Put(key, b"{}"),)), timeout=TIMEOUT)
    await kv.close()
    async with cluster(tmp_path, etcd, "tm-leftovers", leave):
        await until_gone(exchange / job_id(3), timeout=30)
        assert [path.name for path in exchange.iterdir()] == [job_id(1)]
