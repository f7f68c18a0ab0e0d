"""Leadership and registrations over every store: what virtual time proves for memory holds for a real etcd."""

from __future__ import annotations

import asyncio

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.aio.scope import Scope
from runtime.common.ids import Incarnation
from runtime.highavailability.kv.conditions import absent
from runtime.highavailability.kv.group_commit import GroupCommitStore
from runtime.highavailability.kv.key_value_store import Get, KeyValueStore, Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.leadership.election import LeadershipEpoch
from runtime.highavailability.records import JobMasterRecord, LeaderRecord
from runtime.highavailability.services import HighAvailabilityServices, HighAvailabilitySettings, create
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.etcd.server import EtcdProcess, StoreUnderTest

pytestmark = pytest.mark.asyncio

PATIENCE = 10.0
TTL = 2


class Terms:
    """Who leads, in order."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, LeadershipEpoch]] = []
        self._changed = asyncio.Event()

    async def lead(self, name: str, epoch: LeadershipEpoch, end: asyncio.Event) -> None:
        self.seen.append((name, epoch))
        self._changed.set()
        await end.wait()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.seen) < count:
                self._changed.clear()
                await self._changed.wait()


async def lease_runs_out(kv: KeyValueStore, key: str) -> None:
    """Grant a lease, keep it not, and wait until its key is gone."""
    lease = await kv.grant_lease(TTL, timeout=PATIENCE)
    await kv.txn(Txn((), (Put(key, b"", lease),)), timeout=PATIENCE)
    async with asyncio.timeout(PATIENCE):
        while (await kv.range(key, is_prefix=False, timeout=PATIENCE)).kvs:
            await asyncio.sleep(0.05)


def process(cluster_id: str, etcd: EtcdProcess | None, memory: MemoryKeyValueStore) -> HighAvailabilityServices:
    """What one process of the cluster would make."""
    driver = etcd.settings() if etcd is not None else None
    settings = HighAvailabilitySettings(cluster_id, lease_ttl=TTL, timeout=3.0, etcd=driver)
    store = memory if etcd is None else None
    return create(
        settings,
        objects=MemoryObjectStore(),
        clock=LoopClock(),
        boot_clock=LoopClock(),
        entropy=SystemEntropy(),
        store=store,
    )


@pytest.mark.parametrize("kind", ["memory", pytest.param("etcd", marks=pytest.mark.etcd)])
async def test_two_processes_of_one_cluster(kind: str, request: pytest.FixtureRequest) -> None:
    etcd = request.getfixturevalue("etcd") if kind == "etcd" else None
    memory = MemoryKeyValueStore(LoopClock())
    cluster_id = SystemEntropy().hex_id()
    first, second = (process(cluster_id, etcd, memory) for _ in range(2))
    await first.start()
    await second.start()
    assert first.cluster == second.cluster
    terms, end_first, never = Terms(), asyncio.Event(), asyncio.Event()
    retrieval = second.leader_retrieval()
    async with Scope("test") as scope:
        scope.spawn("retrieval", retrieval.run())
        record = LeaderRecord(Incarnation("1" * 32), "host:1", "rest:1")
        leading = scope.start(
            "first", first.leader_election(record).run(lambda epoch: terms.lead("first", epoch, end_first))
        )
        await terms.wait_for(1)
        other = LeaderRecord(Incarnation("2" * 32), "host:2", "rest:2")
        scope.spawn("second", second.leader_election(other).run(lambda epoch: terms.lead("second", epoch, never)))
        leader = await retrieval.leader.wait_until(lambda leader: leader is not None)
        assert leader is not None
        assert (leader.record, leader.token) == (record, terms.seen[0][1].token)

        job_master = JobMasterRecord(Incarnation("3" * 32), "host:3", 10, 0, "ready", "0.1.0")
        registration = second.job_master_registration(job_master)
        scope.spawn("registration", registration.run())
        await registration.registered.wait_until(bool)
        async for job_masters in first.follow_job_masters():
            assert dict(job_masters) == {job_master.incarnation: job_master}
            break
        assert await first.revoke_job_master(job_master.incarnation)

        await lease_runs_out(first.kv, f"/{cluster_id}-witness")
        # What is kept alive stays when a younger lease of the same length has ended.
        assert terms.seen[0][1].is_valid
        end_first.set()
        await leading
        await terms.wait_for(2)
        assert [name for name, _ in terms.seen] == ["first", "second"]
        assert terms.seen[0][1].epoch < terms.seen[1][1].epoch
        await retrieval.leader.wait_until(lambda leader: leader is not None and leader.record == other)
        scope.cancel_all()
    await first.close()
    await second.close()
    await memory.close()


async def test_group_commit_over_every_store(store: StoreUnderTest) -> None:
    kv = GroupCommitStore(store.kv)
    await kv.open()

    async def create(name: str) -> bool:
        key = f"{store.keys.root}{name}"
        return (await kv.txn(Txn((absent(key),), (Put(key, b""),), (Get(key),)), timeout=PATIENCE)).succeeded

    async with asyncio.TaskGroup() as tasks:
        fresh = [tasks.create_task(create(f"{index}")) for index in range(300)]
        again = [tasks.create_task(create(f"{index}")) for index in range(10)]
    assert all(task.result() for task in fresh)
    assert not any(task.result() for task in again)
    # The memory store answers at once, so no queue forms there.
    assert kv.commits < 20 or isinstance(store.kv, MemoryKeyValueStore)
    await _check_count(store.kv, store.keys.root, 300)
    await kv.stop()


async def _check_count(kv: KeyValueStore, root: str, count: int) -> None:
    assert (await kv.range(root, is_prefix=True, timeout=PATIENCE)).count == count
