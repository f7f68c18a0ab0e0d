"""A store that was restored is said to be a new cluster's only when it is (R35)."""

from __future__ import annotations

import hashlib

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import PermanentError
from runtime.common.ids import Incarnation, JobId
from runtime.highavailability.jobs.job_reader import JobReader
from runtime.highavailability.jobs.job_store_kv import JobStoreSettings, KvLeaderJobStore
from runtime.highavailability.jobs.payloads import Payloads
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.key_value_store import Put, Txn, TxnResult
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership.cluster import cluster_uuid
from runtime.highavailability.records import GraphRecord, OwnerRecord, Payload
from runtime.highavailability.restored_store import RestoredStore
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.control_plane.virtual_time import run_virtual
from tests.kit.etcd.faulty_kv import Fault, FaultyKeyValueStore

KEYS = Keys.of_cluster("restored")
JOB = JobId("a" * 32)


class Disturbed(FaultyKeyValueStore):
    """Another client writes `disturbed`, once, between our read of it and our transaction."""

    disturbed = ""

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        key, self.disturbed = self.disturbed, ""
        if key:
            await super().txn(Txn((), (Put(key, b"another's"),)), timeout=timeout)
        return await super().txn(txn, timeout=timeout)


class World:
    def __init__(self) -> None:
        self.kv = Disturbed(MemoryKeyValueStore(LoopClock()))
        self.payloads = Payloads(MemoryObjectStore())
        reader = JobReader(self.kv, KEYS, self.payloads, timeout=1)
        self.store = RestoredStore(self.kv, KEYS, reader, SeededEntropy(2), timeout=1)

    async def submit(self) -> None:
        term = LeaderTerm(
            KEYS.leader(1), (await self.kv.txn(Txn((), (Put(KEYS.leader(1), b"l"),)), timeout=1)).revision
        )
        leader = KvLeaderJobStore(self.kv, KEYS, self.payloads, term, JobStoreSettings(1), SeededEntropy(1))
        graph = GraphRecord(Payload(hashlib.sha256(b"g").hexdigest(), b"g", ""), "job", 1, "client")
        await leader.submit(JOB, graph, OwnerRecord(Incarnation("1" * 32), "host:1"))


def test_a_uuid_that_was_refused_is_not_said_to_be_the_clusters() -> None:
    async def scenario() -> None:
        world = World()
        world.kv.disturbed = KEYS.cluster
        with pytest.raises(PermanentError, match="stop all processes"):
            await world.store.begin_again()

    run_virtual(scenario())


def test_a_uuid_that_was_written_by_a_try_without_an_answer_is_the_clusters() -> None:  # R2
    async def scenario() -> None:
        world = World()
        world.kv.faults.append(Fault.APPLIED_THEN_LOST)
        uuid = await world.store.begin_again()
        assert await cluster_uuid(world.kv, KEYS, SeededEntropy(3), timeout=1) == uuid

    run_virtual(scenario())


def test_a_job_whose_wish_was_refused_is_not_counted_as_cancelled() -> None:
    async def scenario() -> None:
        world = World()
        await world.submit()
        world.kv.disturbed = KEYS.wanted(JOB)
        with pytest.raises(PermanentError, match="stop all processes"):
            await world.store.cancel_jobs()

    run_virtual(scenario())


def test_a_wish_that_was_written_by_a_try_without_an_answer_counts() -> None:  # R2
    async def scenario() -> None:
        world = World()
        await world.submit()
        world.kv.faults.append(Fault.APPLIED_THEN_LOST)
        assert await world.store.cancel_jobs() == 1

    run_virtual(scenario())
