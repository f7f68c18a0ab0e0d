"""R19: an object to which durable state refers is never collected."""

from __future__ import annotations

import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.highavailability.jobs.job_store import Cleaning, Submitted
from runtime.highavailability.jobs.job_store_kv import JobStoreSettings, KvLeaderJobStore, KvOwnerJobStore
from runtime.highavailability.jobs.payloads import INLINE_BYTES_MAX, Payloads, inline_payload
from runtime.highavailability.jobs.references import referenced_objects
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.key_value_store import Delete, Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.record_codec import UnreadableRecordError
from runtime.highavailability.records import DoneRecord, GraphRecord, OwnerRecord, ResultRecord
from tests.kit.control_plane.memory_objects import MemoryObjectStore

pytestmark = pytest.mark.asyncio

KEYS = Keys.of_cluster("test")
OWNER = OwnerRecord(Incarnation("1" * 32), "host:1")
PADDING = "x" * INLINE_BYTES_MAX


def key_of(number: int) -> str:
    return f"{number:064x}-{number:032x}"


def job(number: int) -> JobId:
    return JobId(f"{number:032x}")


async def test_everything_that_is_referred_to_is_found() -> None:
    kv, objects = MemoryKeyValueStore(LoopClock()), MemoryObjectStore()
    payloads, settings = Payloads(objects), JobStoreSettings(1.0)
    term = LeaderTerm("/leader", (await kv.txn(Txn((), (Put("/leader", b""),)), timeout=1)).revision)
    leader = KvLeaderJobStore(kv, KEYS, payloads, term, settings, SeededEntropy(1))
    owner = KvOwnerJobStore(kv, KEYS, payloads, settings, SeededEntropy(1))

    async def submit(number: int, graph: str) -> int:
        record = GraphRecord(await payloads.store(graph.encode()), "n", 1, "c")
        answer = await leader.submit(job(number), record, OWNER)
        assert isinstance(answer, Submitted)
        return answer.epoch

    small = await submit(1, f'{{"key": "{key_of(1)}"}}')
    large = await submit(2, f'{{"key": "{key_of(2)}", "padding": "{PADDING}"}}')
    await owner.append_events(job(1), small, 0, inline_payload(f'"{key_of(3)}"'.encode()))
    await owner.append_events(job(1), small, 1, inline_payload(PADDING.encode() + b"!"))
    archive = await payloads.store(PADDING.encode() + b"archive")
    await owner.write_result(job(2), large, ResultRecord(JobStatus.FINISHED, b"", archive))
    third = await submit(3, "cleaned")
    await owner.write_result(job(3), third, ResultRecord(JobStatus.FINISHED, b"", await payloads.store(b"a")))
    done = DoneRecord("d", JobStatus.FINISHED, b"", key_of(4), 0, 1, "s")
    await leader.clean([Cleaning(job(3), done, (await leader.results([job(3)]))[job(3)].revision)])

    found = await referenced_objects(leader)
    assert found == {key_of(1), key_of(2), key_of(3), key_of(4), *objects.objects}
    assert len(objects.objects) == 3

    await kv.txn(Txn((), (Put(KEYS.done(job(9)), b"unreadable"),)), timeout=1)
    with pytest.raises(UnreadableRecordError):
        await referenced_objects(leader)
    await kv.txn(Txn((), (Delete(KEYS.done(job(9))), Put(KEYS.graph(job(1)), b"unreadable"))), timeout=1)
    with pytest.raises(UnreadableRecordError):
        await referenced_objects(leader)
