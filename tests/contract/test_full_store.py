"""etcd at its quota (R32): "database space exceeded" leaves the outcome open, and what is answered 507 never runs."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import StorageExhaustedError
from runtime.common.ids import Incarnation, JobId
from runtime.highavailability.jobs.job_store import Submitted
from runtime.highavailability.jobs.job_store_kv import JobStoreSettings, KvLeaderJobStore
from runtime.highavailability.jobs.payloads import Payloads
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm, absent, gets, settle
from runtime.highavailability.kv.group_commit import GroupCommitStore
from runtime.highavailability.kv.key_value_store import Delete, KeyValueStore, Put, Txn
from runtime.highavailability.records import GraphRecord, OwnerRecord, Payload
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.etcd.faulty_kv import Fault, FaultyKeyValueStore
from tests.kit.etcd.server import EtcdProcess

pytestmark = [pytest.mark.asyncio, pytest.mark.etcd]

TIMEOUT = 10.0
QUOTA = 4_000_000
SUBMITS = 32
KEYS = Keys.of_cluster("full")
OWNER = OwnerRecord(Incarnation("1" * 32), "host:1")
TERM = LeaderTerm(KEYS.leader(1), 0)


@dataclass
class Full:
    """An etcd whose next writes pass its quota, and a leader."""

    kv: KeyValueStore
    term: LeaderTerm

    def leader(self, kv: KeyValueStore | None = None) -> KvLeaderJobStore:
        payloads = Payloads(MemoryObjectStore())
        return KvLeaderJobStore(kv or self.kv, KEYS, payloads, self.term, JobStoreSettings(TIMEOUT), SeededEntropy(1))

    async def overflow(self) -> None:
        """Write until etcd has raised its alarm: from then on nothing is executed that needs space."""
        for _ in range(100):
            try:
                await self.kv.txn(Txn((), (Put("/filler", bytes(200_000)),)), timeout=TIMEOUT)
            except StorageExhaustedError:
                return
        pytest.fail("etcd has no quota")


@pytest_asyncio.fixture
async def full(tmp_path: Path) -> AsyncIterator[Full]:
    process = EtcdProcess(tmp_path, extra_arguments=(f"--quota-backend-bytes={QUOTA}", "--backend-batch-limit=1"))
    process.start()
    kv = process.store()
    try:
        await kv.open(timeout=TIMEOUT)
        won = await kv.txn(Txn((), (Put(TERM.key, b"leader"),)), timeout=TIMEOUT)
        # Just below the quota, which etcd counts in the pages of its file.
        while (await kv.status(timeout=TIMEOUT)).size_bytes < QUOTA - 200_000:
            await kv.txn(Txn((), (Put("/filler", bytes(20_000)),)), timeout=TIMEOUT)
        yield Full(kv, LeaderTerm(TERM.key, won.revision))
    finally:
        await kv.close()
        process.stop()


def graph_of(number: int) -> GraphRecord:
    data = bytes([number]) * 30_000
    return GraphRecord(Payload(hashlib.sha256(data).hexdigest(), data, ""), "job", 1, "client")


def job_of(number: int) -> JobId:
    return JobId(f"{number:032x}")


async def submit(leader: KvLeaderJobStore, number: int) -> bool:
    """False: answered 507."""
    try:
        return isinstance(await leader.submit(job_of(number), graph_of(number), OWNER), Submitted)
    except StorageExhaustedError:
        return False


@pytest.mark.parametrize("is_grouped", [False, True], ids=["alone", "group-commit"])
async def test_a_submit_that_is_answered_507_is_not_stored(full: Full, is_grouped: bool) -> None:
    grouped = GroupCommitStore(full.kv, in_flight_max=4)
    await grouped.open()
    leader = full.leader(grouped if is_grouped else None)
    answers: list[bool] = []
    while not answers or all(answers[-SUBMITS:]):
        first = len(answers)
        answers += await asyncio.gather(*(submit(leader, first + number) for number in range(SUBMITS)))
    stored = {job.job_id for job in (await leader.jobs())[0]}
    assert stored == {job_of(number) for number, is_accepted in enumerate(answers) if is_accepted}
    assert not all(answers), "the store was never full"
    await grouped.stop()


async def test_an_earlier_try_that_may_still_be_executed_is_waited_for(full: Full) -> None:
    """The answer to the first try is lost, the second one is refused for lack of space: nothing is known yet."""
    await full.overflow()
    faulty = FaultyKeyValueStore(full.kv)
    faulty.faults.append(Fault.LOST_BEFORE)
    submitting = asyncio.create_task(submit(full.leader(faulty), 1))
    async with asyncio.timeout(TIMEOUT):
        while len(faulty.sent) < 4:
            await asyncio.sleep(0.01)
    assert not submitting.done(), "nobody knows what becomes of the first try"
    status = await full.kv.status(timeout=TIMEOUT)
    await full.kv.compact(status.revision, timeout=TIMEOUT)
    await full.kv.txn(Txn((), (Delete("/filler"),)), timeout=TIMEOUT)
    await full.kv.compact((await full.kv.status(timeout=TIMEOUT)).revision, timeout=TIMEOUT)
    await full.kv.defragment(timeout=TIMEOUT)
    async with asyncio.timeout(TIMEOUT):
        assert await submitting
    assert await full.leader().job(job_of(1)) is not None


async def test_a_look_at_the_outcome_that_fails_settles_nothing(full: Full) -> None:
    await full.overflow()
    faulty = FaultyKeyValueStore(full.kv)
    txn = Txn((absent("/b"),), (Put("/b", b"x"),), gets("/b"))
    settling = asyncio.create_task(settle(faulty, txn, timeout=TIMEOUT, entropy=SeededEntropy(1)))
    async with asyncio.timeout(TIMEOUT):
        while not faulty.sent:
            await asyncio.sleep(0)
        faulty.is_reachable = False
        while faulty.calls_refused < 3:
            await asyncio.sleep(0.01)
        assert not settling.done()
        faulty.is_reachable = True
        with pytest.raises(StorageExhaustedError):
            await settling
    assert faulty.sent == [txn], "it was not sent again"
