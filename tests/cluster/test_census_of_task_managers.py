"""A census over the local transport, with real TaskExecutors and registrations in a memory store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.aio.retry import RetryPolicy
from runtime.aio.scope import Scope
from runtime.common.errors import StaleTokenError
from runtime.common.ids import Incarnation
from runtime.gateways.job_master import JobCensus
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership.registration import TaskManagerRegistry, follow_task_managers
from runtime.highavailability.record_codec import encode_record
from runtime.highavailability.records import TaskManagerRecord
from runtime.jobmaster.census_taker import CensusSettings, CensusTaker
from tests.kit.control_plane.plane import eventually
from tests.kit.control_plane.task_executor_cluster import CLUSTER, TaskExecutorCluster, task_executor_cluster
from tests.kit.control_plane.task_messages import attempt_id, deploy, incarnation, job_id

pytestmark = pytest.mark.asyncio

KEYS = Keys.of_cluster("test")


class Registrations:
    """The TaskManagers' keys, and a census taker that reads them."""

    def __init__(self, cluster: TaskExecutorCluster) -> None:
        clock, entropy = LoopClock(), SeededEntropy(2)
        self.kv = kv = MemoryKeyValueStore(clock)
        self.registry = TaskManagerRegistry(kv, KEYS, entropy, timeout=5.0)
        self.seen: list[Mapping[Incarnation, str]] = []
        settings = CensusSettings(incarnation(2), CLUSTER, 0.2, RetryPolicy(delay_initial=0.01, delay_max=0.05))
        self.taker = CensusTaker(
            settings,
            cluster.job_master.rpc,
            lambda: follow_task_managers(kv, KEYS, timeout=5.0, entropy=entropy),
            clock=clock,
            entropy=entropy,
        )

    async def register(self, number: int, address: str) -> None:
        record = TaskManagerRecord(incarnation(number), f"tm-{number}", address, "", "", 2)
        await self.registry.register(record)


async def test_everyone_who_is_registered_is_asked_and_answers(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        registrations = Registrations(cluster)
        await cluster.activate()
        cluster.job_master.send(deploy(1, 0))
        await cluster.job_master.wait_reports(1)
        await registrations.register(3, cluster.rpc.server.address)
        async with Scope("test") as scope:
            taking = scope.start("census", registrations.taker.take(job_id(1), 8, registrations.seen.append))
            census = await cluster.job_master.wait_for(JobCensus)
            assert (census.epoch, [held.attempt_id for held in census.attempts]) == (8, [attempt_id(1, 0)])
            assert registrations.seen == [{incarnation(3): cluster.rpc.server.address}]
            taking.cancel()


async def test_one_that_cannot_be_reached_is_asked_again_until_it_is_gone(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        registrations = Registrations(cluster)
        await registrations.register(3, cluster.rpc.server.address)
        await registrations.register(4, "nobody:1")
        async with Scope("test") as scope:
            taking = scope.start("census", registrations.taker.take(job_id(1), 8, registrations.seen.append))
            assert (await cluster.job_master.wait_for(JobCensus)).attempts == ()
            await registrations.registry.unregister(incarnation(4))
            await eventually(lambda: len(registrations.seen) == 2)
            assert set(registrations.seen[-1]) == {incarnation(3)}
            taking.cancel()


async def test_one_whose_record_cannot_be_read_is_asked_when_it_can(tmp_path: Path) -> None:  # R31
    async with task_executor_cluster(tmp_path) as cluster:
        registrations = Registrations(cluster)
        unreadable = Put(KEYS.task_manager(incarnation(3)), b'{"v": 99, "record": {}}')
        await registrations.kv.txn(Txn((), (unreadable,)), timeout=5)
        async with Scope("test") as scope:
            taking = scope.start("census", registrations.taker.take(job_id(1), 8, registrations.seen.append))
            await eventually(lambda: registrations.seen == [{incarnation(3): ""}])
            record = TaskManagerRecord(incarnation(3), "tm-3", cluster.rpc.server.address, "", "", 2)
            await registrations.kv.txn(Txn((), (Put(unreadable.key, encode_record(record)),)), timeout=5)
            assert (await cluster.job_master.wait_for(JobCensus)).epoch == 8
            taking.cancel()


async def test_an_owner_that_is_over_learns_it(tmp_path: Path) -> None:
    async with task_executor_cluster(tmp_path) as cluster:
        registrations = Registrations(cluster)
        await registrations.register(3, cluster.rpc.server.address)
        cluster.request(1, epoch=9)
        await cluster.job_master.wait(lambda: cluster.offered() == [1])
        with pytest.raises(ExceptionGroup) as caught:
            await registrations.taker.take(job_id(1), 8, registrations.seen.append)
        assert caught.group_contains(StaleTokenError)
