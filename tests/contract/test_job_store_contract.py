"""The transactions of protocol.md 2, over every KeyValueStore: each guard broken alone, each answer lost."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import StaleTokenError, StorageExhaustedError, UnavailableError
from runtime.common.ids import Incarnation, JobId
from runtime.common.states import JobStatus
from runtime.highavailability.jobs.job_store import (
    AlreadyStored,
    Assigned,
    Cleaning,
    LeaderJobStore,
    OwnerJobStore,
    Submitted,
)
from runtime.highavailability.jobs.job_store_kv import JobStoreSettings, KvLeaderJobStore, KvOwnerJobStore
from runtime.highavailability.jobs.payloads import INLINE_BYTES_MAX, Payloads, inline_payload
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.key_value_store import Delete, Op, Put, Txn
from runtime.highavailability.records import (
    ClientRecord,
    DoneRecord,
    GraphRecord,
    OwnerRecord,
    Payload,
    ResultRecord,
    StoredJob,
    WantedRecord,
)
from tests.kit.control_plane.memory_objects import MemoryObjectStore
from tests.kit.etcd.faulty_kv import Fault, FaultyKeyValueStore
from tests.kit.etcd.server import StoreUnderTest

TIMEOUT = 5.0
JOB = JobId("a" * 32)
OTHER_JOB = JobId("b" * 32)
OWNER = OwnerRecord(Incarnation("1" * 32), "host:1")
SECOND_OWNER = OwnerRecord(Incarnation("2" * 32), "host:2")
WANTED = WantedRecord(wants_cancel=True, client="me")

LOSSES = [
    pytest.param([Fault.NONE], id="no-fault"),
    pytest.param([Fault.LOST_BEFORE], id="lost-before"),
    pytest.param([Fault.APPLIED_THEN_LOST], id="applied-then-lost"),
    pytest.param([Fault.APPLIED_THEN_LOST, Fault.LOST_BEFORE, Fault.REFUSED], id="lost-again-and-again"),
]

pytestmark = pytest.mark.asyncio


def inline(data: bytes) -> Payload:
    return Payload(hashlib.sha256(data).hexdigest(), data, "")


def graph_of(data: bytes = b"graph") -> GraphRecord:
    return GraphRecord(inline(data), "job", 1, "client")


def result_of(status: JobStatus = JobStatus.FINISHED, archive: bytes = b"archive") -> ResultRecord:
    return ResultRecord(status, b"summary", inline(archive))


def done_of(status: JobStatus = JobStatus.FINISHED) -> DoneRecord:
    return DoneRecord(hashlib.sha256(b"graph").hexdigest(), status, b"summary", "key", 0, 7, "sha")


@dataclass
class Box:
    """Both faces of the job store over a store that can lose answers."""

    kv: FaultyKeyValueStore
    keys: Keys
    objects: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    lease: int = 0
    term: LeaderTerm = field(default_factory=lambda: LeaderTerm("", 0))

    async def win(self) -> KvLeaderJobStore:
        """Be elected, as the election would do it."""
        self.lease = await self.kv.grant_lease(60, timeout=TIMEOUT)
        key = self.keys.leader(self.lease)
        self.term = LeaderTerm(key, await self.write(Put(key, b"leader", self.lease)))
        return self.leader(self.term)

    def leader(self, term: LeaderTerm) -> KvLeaderJobStore:
        return KvLeaderJobStore(
            self.kv, self.keys, Payloads(self.objects), term, JobStoreSettings(TIMEOUT), SeededEntropy(1)
        )

    def owner(self) -> KvOwnerJobStore:
        return KvOwnerJobStore(self.kv, self.keys, Payloads(self.objects), JobStoreSettings(TIMEOUT), SeededEntropy(1))

    async def write(self, *ops: Op) -> int:
        return (await self.kv.txn(Txn((), ops), timeout=TIMEOUT)).revision

    async def lose_term(self) -> None:
        await self.kv.revoke_lease(self.lease, timeout=TIMEOUT)

    async def names(self) -> list[str]:
        found = await self.kv.range(self.keys.root, is_prefix=True, timeout=TIMEOUT)
        names = [kv.key.removeprefix(self.keys.root) for kv in found.kvs]
        return [name for name in names if not name.startswith("leader/")]

    async def submitted(self, leader: LeaderJobStore) -> int:
        """A job with an owner; its epoch."""
        answer = await leader.submit(JOB, graph_of(), OWNER)
        assert isinstance(answer, Submitted)
        return answer.epoch


@pytest_asyncio.fixture
async def box(store: StoreUnderTest) -> Box:
    return Box(FaultyKeyValueStore(store.kv), store.keys)


async def job_of(reader: LeaderJobStore) -> StoredJob:
    job = await reader.job(JOB)
    assert job is not None
    return job


async def cleaning_of(leader: LeaderJobStore, job_id: JobId) -> Cleaning:
    found = (await leader.results([job_id])).get(job_id)
    return Cleaning(job_id, done_of(), 0 if found is None else found.revision)


def lose(box: Box, faults: list[Fault]) -> None:
    box.kv.sent.clear()
    box.kv.faults.extend(faults)


def assert_repeated_identically(box: Box) -> None:
    assert all(txn == box.kv.sent[0] for txn in box.kv.sent)


# --- submit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", LOSSES)
@pytest.mark.parametrize("owner", [OWNER, None], ids=["with-owner", "without"])
async def test_submit_is_one_transaction(box: Box, owner: OwnerRecord | None, faults: list[Fault]) -> None:
    leader = await box.win()
    lose(box, faults)
    answer = await leader.submit(JOB, graph_of(), owner)
    assert_repeated_identically(box)
    job = await job_of(leader)
    assert answer == Submitted(job.graph_revision, job.epoch)
    assert job.epoch == (job.graph_revision if owner else 0)
    assert (job.graph, job.owner) == (graph_of(), owner)
    assert await box.names() == [f"jobs/{JOB}/graph", *([f"jobs/{JOB}/owner"] if owner else [])]


async def test_submit_guard_graph_absent(box: Box) -> None:
    leader = await box.win()
    await box.submitted(leader)
    assert await leader.submit(JOB, graph_of(), OWNER) == AlreadyStored(graph_of().graph.sha256, is_done=False)
    other = await leader.submit(JOB, graph_of(b"other"), OWNER)
    assert other == AlreadyStored(graph_of().graph.sha256, is_done=False)


async def test_submit_guard_done_absent(box: Box) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    await box.owner().write_result(JOB, epoch, result_of())
    await leader.clean([await cleaning_of(leader, JOB)])
    assert await leader.submit(JOB, graph_of(), OWNER) == AlreadyStored(done_of().graph_digest, is_done=True)
    assert await box.names() == [f"done/{JOB}"]


async def test_submit_guard_leader_epoch(box: Box) -> None:
    leader = await box.win()
    await box.lose_term()
    with pytest.raises(StaleTokenError):
        await leader.submit(JOB, graph_of(), OWNER)
    assert await box.names() == []


async def test_submit_that_was_applied_under_a_term_that_is_over_has_succeeded(box: Box) -> None:
    leader = await box.win()
    original = box.kv.txn

    async def lose_answer_and_term(txn: Txn, /, *, timeout: float) -> object:
        try:
            return await original(txn, timeout=timeout)
        finally:
            await box.lose_term()

    box.kv.txn = lose_answer_and_term  # type: ignore[method-assign, assignment]  # the fault of this test
    lose(box, [Fault.APPLIED_THEN_LOST])
    answer = await leader.submit(JOB, graph_of(), OWNER)
    assert isinstance(answer, Submitted)
    assert answer.epoch == (await job_of(leader)).epoch


async def test_what_is_surely_not_executed_is_said_so(box: Box) -> None:
    leader = await box.win()
    lose(box, [Fault.REFUSED])
    with pytest.raises(UnavailableError):
        await leader.submit(JOB, graph_of(), OWNER)
    assert len(box.kv.sent) == 1


async def test_a_large_graph_is_an_object_before_its_pointer(box: Box) -> None:
    leader = await box.win()
    large = bytes(INLINE_BYTES_MAX + 1)
    lose(box, [Fault.LOST_BEFORE])
    await leader.submit(JOB, graph_of(large), None)
    job = await job_of(leader)
    assert job.graph.graph.inline == b""
    assert box.objects.objects[job.graph.graph.object_key] == large
    assert len(box.objects.objects) == 1
    assert await leader.load(job.graph.graph) == large
    assert all(large[:100] not in put.value for txn in box.kv.sent for put in txn.success if isinstance(put, Put))


async def test_submit_heeds_the_quota(box: Box) -> None:
    await box.win()

    def full() -> None:
        raise StorageExhaustedError

    leader = KvLeaderJobStore(
        box.kv,
        box.keys,
        Payloads(box.objects),
        box.term,
        JobStoreSettings(TIMEOUT),
        SeededEntropy(1),
        check_capacity=full,
    )
    with pytest.raises(StorageExhaustedError):
        await leader.submit(JOB, graph_of(), None)


# --- assign -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", LOSSES)
async def test_assign_and_reassign(box: Box, faults: list[Fault]) -> None:
    leader = await box.win()
    await leader.submit(JOB, graph_of(), None)
    lose(box, faults)
    first = await leader.assign(JOB, OWNER, previous_epoch=0)
    assert_repeated_identically(box)
    stored = await job_of(leader)
    assert first == Assigned(stored.epoch)
    assert first.epoch > stored.graph_revision, "not written with the graph"
    lose(box, faults)
    second = await leader.assign(JOB, SECOND_OWNER, previous_epoch=first.epoch)
    stored = await job_of(leader)
    assert second == Assigned(stored.epoch)
    assert first.epoch < second.epoch


async def test_assign_guard_owner_as_read(box: Box) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    assert await leader.assign(JOB, SECOND_OWNER, previous_epoch=0) is None
    assert await leader.assign(JOB, SECOND_OWNER, previous_epoch=epoch + 1) is None
    assert (await job_of(leader)).owner == OWNER


async def test_assign_guard_graph_present(box: Box) -> None:
    leader = await box.win()
    assert await leader.assign(JOB, OWNER, previous_epoch=0) is None
    assert await box.names() == []


async def test_assign_guard_result_absent(box: Box) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    await box.owner().write_result(JOB, epoch, result_of())
    assert await leader.assign(JOB, SECOND_OWNER, previous_epoch=epoch) is None


async def test_assign_guard_leader_epoch(box: Box) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    await box.lose_term()
    with pytest.raises(StaleTokenError):
        await leader.assign(JOB, SECOND_OWNER, previous_epoch=epoch)
    assert (await job_of(leader)).epoch == epoch


# --- events and result --------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", LOSSES)
async def test_events_in_order(box: Box, faults: list[Fault]) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    owner = box.owner()
    large = bytes(INLINE_BYTES_MAX + 1)
    for number, events in enumerate([b"first", large, b"third"]):
        lose(box, faults)
        await owner.append_events(JOB, epoch, number, inline_payload(events))
        assert_repeated_identically(box)
    assert list(await owner.events(JOB)) == [b"first", large, b"third"]
    assert (await job_of(leader)).events == 3


@pytest.mark.parametrize("faults", LOSSES)
async def test_result_once(box: Box, faults: list[Fault]) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    lose(box, faults)
    await box.owner().write_result(JOB, epoch, result_of())
    assert_repeated_identically(box)
    assert (await job_of(leader)).result == result_of()
    with pytest.raises(StaleTokenError):
        await box.owner().write_result(JOB, epoch, result_of(JobStatus.FAILED))
    assert (await job_of(leader)).result == result_of()


Write = Callable[[OwnerJobStore, int], Awaitable[None]]
OWNER_WRITES = [
    pytest.param(lambda owner, epoch: owner.append_events(JOB, epoch, 0, inline_payload(b"events")), id="events"),
    pytest.param(lambda owner, epoch: owner.write_result(JOB, epoch, result_of(JobStatus.FAILED)), id="result"),
]


@pytest.mark.parametrize("write", OWNER_WRITES)
async def test_owner_guard_epoch(box: Box, write: Write) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    await leader.assign(JOB, SECOND_OWNER, previous_epoch=epoch)
    before = await box.names()
    with pytest.raises(StaleTokenError):
        await write(box.owner(), epoch)
    assert await box.names() == before


@pytest.mark.parametrize("write", OWNER_WRITES)
async def test_owner_guard_result_absent(box: Box, write: Write) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    await box.owner().write_result(JOB, epoch, result_of())
    before = await box.names()
    with pytest.raises(StaleTokenError):
        await write(box.owner(), epoch)
    assert await box.names() == before


@pytest.mark.parametrize("write", OWNER_WRITES)
async def test_owner_of_an_unknown_job(box: Box, write: Write) -> None:
    with pytest.raises(StaleTokenError):
        await write(box.owner(), 1)
    assert await box.names() == []


async def test_owner_needs_no_leader(box: Box) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    await box.lose_term()
    await box.owner().append_events(JOB, epoch, 0, inline_payload(b"events"))
    await box.owner().write_result(JOB, epoch, result_of())


async def test_result_whose_answer_was_lost_and_whose_job_was_cleaned_meanwhile(box: Box) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    original = box.kv.txn

    async def clean_after_loss(txn: Txn, /, *, timeout: float) -> object:
        box.kv.txn = original  # type: ignore[method-assign]
        try:
            return await original(txn, timeout=timeout)
        finally:
            await leader.clean([await cleaning_of(leader, JOB)])

    lose(box, [Fault.APPLIED_THEN_LOST])
    box.kv.txn = clean_after_loss  # type: ignore[method-assign, assignment]  # the fault of this test
    await box.owner().write_result(JOB, epoch, result_of())
    assert await box.names() == [f"done/{JOB}"]


# --- wishes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", LOSSES)
async def test_want(box: Box, faults: list[Fault]) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    lose(box, faults)
    assert await leader.want(JOB, WANTED)
    job = await job_of(leader)
    assert (job.wanted, job.epoch) == (WANTED, epoch)


async def test_want_guards(box: Box) -> None:
    leader = await box.win()
    assert not await leader.want(JOB, WANTED)
    epoch = await box.submitted(leader)
    await box.owner().write_result(JOB, epoch, result_of())
    assert not await leader.want(JOB, WANTED)
    assert (await job_of(leader)).wanted is None


@pytest.mark.parametrize("faults", LOSSES)
async def test_the_last_promise_counts(box: Box, faults: list[Fault]) -> None:
    leader = await box.win()
    assert not await leader.promise(JOB, ClientRecord(7))
    epoch = await box.submitted(leader)
    assert (await job_of(leader)).client is None
    assert await leader.promise(JOB, ClientRecord(7))
    lose(box, faults)
    assert await leader.promise(JOB, ClientRecord(8))
    (found,), _ = await leader.jobs()
    assert (found.client, found.wanted, found.epoch) == (ClientRecord(8), None, epoch)


async def test_promise_guards(box: Box) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    await box.owner().write_result(JOB, epoch, result_of())
    assert not await leader.promise(JOB, ClientRecord(7))
    await leader.clean([await cleaning_of(leader, JOB)])
    assert not await leader.promise(JOB, ClientRecord(7))
    assert await box.names() == [f"done/{JOB}"]


async def test_promise_guard_leader_epoch(box: Box) -> None:
    leader = await box.win()
    await box.submitted(leader)
    await box.lose_term()
    with pytest.raises(StaleTokenError):
        await leader.promise(JOB, ClientRecord(7))
    assert (await job_of(leader)).client is None


async def test_want_guard_leader_epoch(box: Box) -> None:
    leader = await box.win()
    await box.submitted(leader)
    await box.lose_term()
    with pytest.raises(StaleTokenError):
        await leader.want(JOB, WANTED)
    assert (await job_of(leader)).wanted is None


@pytest.mark.parametrize("faults", LOSSES)
async def test_end_without_owner(box: Box, faults: list[Fault]) -> None:
    leader = await box.win()
    await leader.submit(JOB, graph_of(), None)
    lose(box, faults)
    assert await leader.end_without_owner(JOB, result_of(JobStatus.CANCELED))
    assert (await job_of(leader)).result == result_of(JobStatus.CANCELED)
    assert not await leader.end_without_owner(JOB, result_of(JobStatus.CANCELED))
    assert await leader.assign(JOB, OWNER, previous_epoch=0) is None


async def test_end_without_owner_guards(box: Box) -> None:
    leader = await box.win()
    canceled = result_of(JobStatus.CANCELED)
    assert not await leader.end_without_owner(JOB, canceled)
    await box.submitted(leader)
    assert not await leader.end_without_owner(JOB, canceled)
    await leader.submit(OTHER_JOB, graph_of(), None)
    await box.lose_term()
    with pytest.raises(StaleTokenError):
        await leader.end_without_owner(OTHER_JOB, canceled)
    assert not any(name.endswith("/result") for name in await box.names())


async def test_the_leader_ends_a_job_that_its_owner_has_let_go_of(box: Box) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    failed = result_of(JobStatus.FAILED)
    assert not await leader.end_without_owner(JOB, failed, previous_epoch=epoch + 1)
    assert await leader.end_without_owner(JOB, failed, previous_epoch=epoch)
    with pytest.raises(StaleTokenError):
        await box.owner().write_result(JOB, epoch, result_of())
    assert (await job_of(leader)).result == failed


# --- clean --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", LOSSES)
async def test_clean_many_in_one_transaction(box: Box, faults: list[Fault]) -> None:
    leader = await box.win()
    jobs = [JobId(f"{index:032x}") for index in range(60)]
    for job_id in jobs:
        answer = await leader.submit(job_id, graph_of(), OWNER)
        assert isinstance(answer, Submitted)
        await box.owner().write_result(job_id, answer.epoch, result_of())
    cleanings = [await cleaning_of(leader, job_id) for job_id in jobs]
    lose(box, faults)
    cleaned = await leader.clean(cleanings)
    assert_repeated_identically(box)
    assert len(box.kv.sent) == len([fault for fault in faults if fault is not Fault.NONE]) + 1
    assert await box.names() == [f"done/{job_id}" for job_id in jobs]
    assert await leader.clean(cleanings) == cleaned
    assert set(cleaned) == set(jobs)


async def test_clean_guard_result_present(box: Box) -> None:
    leader = await box.win()
    await box.submitted(leader)
    other = await leader.submit(OTHER_JOB, graph_of(), OWNER)
    assert isinstance(other, Submitted)
    await box.owner().write_result(OTHER_JOB, other.epoch, result_of())
    cleanings = [await cleaning_of(leader, job_id) for job_id in (JOB, OTHER_JOB)]
    assert set(await leader.clean(cleanings)) == {OTHER_JOB}
    assert await box.names() == [f"done/{OTHER_JOB}", f"jobs/{JOB}/graph", f"jobs/{JOB}/owner"]


async def test_clean_guard_leader_epoch(box: Box) -> None:
    leader = await box.win()
    epoch = await box.submitted(leader)
    await box.owner().write_result(JOB, epoch, result_of())
    before = await box.names()
    cleaning = await cleaning_of(leader, JOB)
    await box.lose_term()
    with pytest.raises(StaleTokenError):
        await leader.clean([cleaning])
    with pytest.raises(StaleTokenError):
        await leader.forget_done([(JOB, 1)])
    assert await box.names() == before


async def test_done_jobs_newest_first_and_retention(box: Box) -> None:
    leader = await box.win()
    jobs = [JobId(f"{index:032x}") for index in (3, 1, 2)]
    revisions: dict[JobId, int] = {}
    for job_id in jobs:
        answer = await leader.submit(job_id, graph_of(), OWNER)
        assert isinstance(answer, Submitted)
        await box.owner().write_result(job_id, answer.epoch, result_of())
        revisions |= await leader.clean([await cleaning_of(leader, job_id)])
    assert [job_id for job_id, _ in await leader.done_jobs(limit=2)] == [jobs[2], jobs[1]]
    assert await leader.done(jobs[0]) == done_of()
    many = [*jobs, *(JobId(f"{index:032x}") for index in range(10, 160))]
    assert await leader.dones(many) == dict.fromkeys(jobs, done_of())
    await leader.forget_done([(job_id, revisions[job_id]) for job_id in jobs[:2]])
    assert await box.names() == [f"done/{jobs[2]}"]


# --- reading ------------------------------------------------------------------------------------------------


async def test_jobs_are_read_at_one_revision_over_many_pages(box: Box) -> None:
    leader = await box.win()
    jobs = [JobId(f"{index:032x}") for index in range(300)]
    for job_id in jobs:
        await leader.submit(job_id, graph_of(), OWNER)
    found, revision = await leader.jobs()
    assert [job.job_id for job in found] == jobs
    assert all(job.owner == OWNER and job.epoch == job.graph_revision <= revision for job in found)


async def test_a_record_that_cannot_be_read_spoils_only_its_job(box: Box) -> None:
    leader = await box.win()
    await box.submitted(leader)
    await leader.submit(OTHER_JOB, graph_of(), None)
    await box.write(Put(box.keys.graph(JOB), b"\xff not a record"))
    jobs, _ = await leader.jobs()
    assert [job.job_id for job in jobs] == [JOB, OTHER_JOB]
    assert box.keys.graph(JOB) in jobs[0].problem
    assert jobs[0].owner == OWNER
    assert jobs[1].problem == ""
    await box.write(Delete(box.keys.graph(JOB)))
    assert "without a graph" in (await job_of(leader)).problem
