"""What others write into a real etcd is not believed (R38); what the release before wrote is, if asked for (D-029)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.ids import ClusterUuid, Incarnation, JobId
from runtime.highavailability.jobs.job_store import Submitted
from runtime.highavailability.jobs.payloads import inline_payload
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.key_value_store import Delete, Put, Txn, WatchEvent
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
from runtime.highavailability.record_seal import RecordSeal
from runtime.highavailability.records import (
    GraphRecord,
    JobMasterRecord,
    LeaderRecord,
    OwnerRecord,
    StoredJob,
    WantedRecord,
)
from runtime.highavailability.services import HighAvailabilityServices, HighAvailabilitySettings, create
from runtime.security.cluster_key import ClusterKey
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.etcd.server import EtcdProcess

pytestmark = [pytest.mark.etcd, pytest.mark.asyncio]

TIMEOUT = 5.0
KEY = ClusterKey(bytes(range(32)))
JOB, OTHER = JobId("a" * 32), JobId("b" * 32)
OWNER = OwnerRecord(Incarnation("c" * 32), "h:1")
GRAPH = GraphRecord(inline_payload(b"graph"), "job", 1, "client")


@pytest.fixture
def cluster_id() -> str:
    return SystemEntropy().hex_id()


@asynccontextmanager
async def process(
    etcd: EtcdProcess, cluster_id: str, seal: RecordSeal | None
) -> AsyncIterator[HighAvailabilityServices]:
    """Of the cluster, or somebody else, or one of the release before."""
    settings = HighAvailabilitySettings(cluster_id, lease_ttl=60, timeout=TIMEOUT, etcd=etcd.settings(), seal=seal)
    made = create(
        settings, objects=MemoryObjectStore(), clock=LoopClock(), boot_clock=LoopClock(), entropy=SystemEntropy()
    )
    try:
        await made.start()
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def ours_and_his(etcd: EtcdProcess, cluster_id: str) -> AsyncIterator[tuple[HighAvailabilityServices, ...]]:
    async with process(etcd, cluster_id, RecordSeal(KEY)) as ours, process(etcd, cluster_id, None) as his:
        yield ours, his


async def put(services: HighAvailabilityServices, key: str, value: bytes) -> int:
    return (await services.kv.txn(Txn((), (Put(key, value),)), timeout=TIMEOUT)).revision


async def raw(his: HighAvailabilityServices, key: str) -> bytes:
    return (await his.kv.range(key, is_prefix=False, timeout=TIMEOUT)).kvs[0].value


async def submit(services: HighAvailabilityServices, job_id: JobId) -> None:
    key = services.keys.leader(1)
    term = LeaderTerm(key, await put(services, key, encode_record(LeaderRecord(OWNER.incarnation, "h:1", ""))))
    assert isinstance(await services.leader_job_store(term).submit(job_id, GRAPH, OWNER), Submitted)
    await services.kv.txn(Txn((), (Delete(key),)), timeout=TIMEOUT)


async def jobs(services: HighAvailabilityServices) -> dict[JobId, StoredJob]:
    return {job.job_id: job for job in (await services.job_reader().jobs())[0]}


async def test_a_job_that_somebody_else_has_put_there_has_no_graph(
    etcd: EtcdProcess, cluster_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ours_and_his(etcd, cluster_id) as (ours, his):
        await submit(ours, JOB)
        key = ours.keys.graph(OTHER)
        await put(his, key, encode_record(GRAPH))
        with caplog.at_level(logging.ERROR):
            found = await jobs(ours)
        assert (found[JOB].graph, found[JOB].owner, found[JOB].problem) == (GRAPH, OWNER, "")
        assert found[OTHER].graph.graph.sha256 == ""
        assert found[OTHER].problem.startswith(f"{key} is refused: it carries no seal of this cluster")
        assert f"'{key}' in etcd is refused" in caplog.text


async def test_a_record_that_was_changed_or_copied_is_refused(etcd: EtcdProcess, cluster_id: str) -> None:
    """The graph of one job as that of another, and an owner that leads elsewhere."""
    async with ours_and_his(etcd, cluster_id) as (ours, his):
        await submit(ours, JOB)
        keys = ours.keys
        await put(his, keys.graph(OTHER), await raw(his, keys.graph(JOB)))
        await put(his, keys.owner(JOB), (await raw(his, keys.owner(JOB))).replace(b"h:1", b"h:2"))
        await put(his, keys.wanted(JOB), encode_record(WantedRecord(wants_cancel=True, client="")))
        found = await jobs(ours)
        assert f"{keys.graph(OTHER)} is refused: its seal is not that of this cluster" in found[OTHER].problem
        assert f"{keys.owner(JOB)} is refused: its seal" in found[JOB].problem
        assert (found[JOB].owner, found[JOB].wanted) == (None, None)


async def test_the_leader_that_somebody_else_has_put_there_is_told_to_nobody(
    etcd: EtcdProcess, cluster_id: str
) -> None:
    """Or it would collect tokens. The true one, which is younger, is told when the forged key is gone (R31)."""
    async with ours_and_his(etcd, cluster_id) as (ours, his):
        forged, true = LeaderRecord(Incarnation("d" * 32), "evil:1", ""), LeaderRecord(OWNER.incarnation, "h:1", "")
        await put(his, ours.keys.leader(1), encode_record(forged))
        retrieval = ours.leader_retrieval()
        following = asyncio.create_task(retrieval.run())
        heard = asyncio.create_task(retrieval.leader.wait_until(lambda one: one is not None))
        await put(ours, ours.keys.leader(2), encode_record(true))
        etcd.ctl("del", ours.keys.leader(1))
        async with asyncio.timeout(TIMEOUT):
            leader = await heard
        following.cancel()
        assert leader is not None
        assert leader.record == true


async def test_what_a_watch_tells_is_looked_at_too(etcd: EtcdProcess, cluster_id: str) -> None:
    async with ours_and_his(etcd, cluster_id) as (ours, his):
        key, record = ours.keys.owner(JOB), encode_record(OWNER)
        begin = await put(ours, key, record)
        await put(his, key, record)
        await ours.kv.txn(Txn((), (Delete(key),)), timeout=TIMEOUT)
        events: list[WatchEvent] = []
        async with asyncio.timeout(TIMEOUT), aclosing(ours.kv.watch(key, start_revision=begin)) as watch:
            while len(events) < 3:
                events += (await anext(watch)).events
        assert decode_record(OwnerRecord, events[0].kv.value, key=key) == OWNER
        with pytest.raises(UnreadableRecordError, match="is refused"):
            decode_record(OwnerRecord, events[1].kv.value, key=key)
        assert (events[2].is_delete, events[2].kv.value) == (True, b"")


async def test_a_process_that_somebody_else_has_registered_gets_nothing(etcd: EtcdProcess, cluster_id: str) -> None:
    async with ours_and_his(etcd, cluster_id) as (ours, his):
        record = JobMasterRecord(Incarnation("d" * 32), "evil:1", capacity=100, jobs=0, state="ready", version="1")
        await put(his, ours.keys.job_master(record.incarnation), encode_record(record))
        found = await anext(aiter(ours.follow_job_masters()))
        assert (found[record.incarnation].address, found[record.incarnation].capacity) == ("", 0)


async def test_names_that_are_no_text_hold_nobody_up(etcd: EtcdProcess, cluster_id: str) -> None:
    async with ours_and_his(etcd, cluster_id) as (ours, his):
        await submit(ours, JOB)
        for prefix in (ours.keys.jobs, ours.keys.leaders, ours.keys.job_masters, ours.keys.task_managers):
            await put(his, f"{prefix}\udcff\udcfe", b"\xff")
        assert set(await jobs(ours)) == {JOB}
        assert "\udcff\udcfe" in await anext(aiter(ours.follow_job_masters())), "it is there, and cannot be reached"


async def test_a_process_with_another_key_does_not_start(etcd: EtcdProcess, cluster_id: str) -> None:
    async with process(etcd, cluster_id, RecordSeal(KEY)):
        with pytest.raises(UnreadableRecordError, match=r"/cluster is refused: .*security\.cluster-key-file"):
            async with process(etcd, cluster_id, RecordSeal(ClusterKey(bytes(32)))):
                raise AssertionError


async def test_records_of_the_release_before_are_used_when_that_is_asked_for(
    etcd: EtcdProcess, cluster_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    """D-029: everything is stopped, or replaced one by one: the release before reads what this one writes."""
    upgrading = RecordSeal(KEY, accepts_unsealed=True)
    async with process(etcd, cluster_id, None) as before:
        cluster: ClusterUuid = before.cluster
        await submit(before, JOB)
        with pytest.raises(UnreadableRecordError, match=r"/cluster is refused: it carries no seal.*Upgrades"):
            async with process(etcd, cluster_id, RecordSeal(KEY)):
                raise AssertionError
        async with process(etcd, cluster_id, upgrading) as after:
            assert after.cluster == cluster
            assert "records in etcd are used without a seal too" in caplog.text
            await submit(after, OTHER)
            assert {job.problem for job in (await jobs(after)).values()} == {""}
            assert await jobs(before) == await jobs(after)
    async with process(etcd, cluster_id, RecordSeal(KEY)) as later:
        assert later.cluster == cluster, "its record was sealed meanwhile"
        found = await jobs(later)
        assert found[OTHER].problem == ""
        assert "carries no seal" in found[JOB].problem
