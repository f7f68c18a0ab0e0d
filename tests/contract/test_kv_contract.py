"""What every KeyValueStore promises: memory and a real etcd run the same tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.highavailability.kv.conditions import absent, present, unchanged
from runtime.highavailability.kv.key_value_store import (
    TXN_OPS_MAX,
    CompactedError,
    Delete,
    Get,
    KeyValueStore,
    LeaseNotFoundError,
    Op,
    Put,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
)
from tests.kit.etcd.server import StoreUnderTest

TIMEOUT = 5.0

pytestmark = pytest.mark.asyncio


class Corner:
    """Short calls on a store, below a root of its own."""

    def __init__(self, kv: KeyValueStore, root: str) -> None:
        self.kv = kv
        self.root = root

    def key(self, name: str) -> str:
        return f"{self.root}{name}"

    async def put(self, name: str, value: bytes = b"", *, lease: int = 0) -> int:
        result = await self.kv.txn(Txn((), (Put(self.key(name), value, lease),)), timeout=TIMEOUT)
        return result.revision

    async def delete(self, name: str) -> int:
        result = await self.kv.txn(Txn((), (Delete(self.key(name)),)), timeout=TIMEOUT)
        return result.revision

    async def txn(self, txn: Txn) -> TxnResult:
        return await self.kv.txn(txn, timeout=TIMEOUT)

    async def all(self, **options: int) -> RangeResult:
        return await self.kv.range(self.root, is_prefix=True, timeout=TIMEOUT, **options)  # type: ignore[arg-type]

    async def names(self) -> list[str]:
        return [kv.key.removeprefix(self.root) for kv in (await self.all()).kvs]

    async def watch(self, start_revision: int, *, batches: int) -> list[WatchBatch]:
        found: list[WatchBatch] = []
        async with asyncio.timeout(TIMEOUT):
            async for batch in self.kv.watch(self.root, start_revision=start_revision):
                found.append(batch)
                if sum(len({event.kv.mod_revision for event in b.events}) for b in found) >= batches:
                    return found
        raise AssertionError(found)


@pytest_asyncio.fixture
async def corner(store: StoreUnderTest) -> AsyncIterator[Corner]:
    yield Corner(store.kv, store.keys.root)


async def test_each_writing_transaction_raises_the_revision_by_one(corner: Corner) -> None:
    first = await corner.put("a", b"1")
    second = await corner.put("b", b"2")
    again = await corner.put("a", b"3")
    assert (second, again) == (first + 1, first + 2)
    kvs = (await corner.all()).kvs
    assert [(kv.value, kv.create_revision, kv.mod_revision, kv.version) for kv in kvs] == [
        (b"3", first, again, 2),
        (b"2", second, second, 1),
    ]


async def test_a_transaction_that_changes_nothing_leaves_the_revision(corner: Corner) -> None:
    revision = await corner.put("a")
    assert await corner.delete("nothing") == revision
    result = await corner.txn(Txn((absent(corner.key("a")),), (Put(corner.key("a"), b""),), (Get(corner.key("a")),)))
    assert (result.succeeded, result.revision) == (False, revision)
    assert result.results[0].kvs[0].mod_revision == revision


async def test_a_deleted_key_starts_again(corner: Corner) -> None:
    await corner.put("a")
    await corner.delete("a")
    revision = await corner.put("a")
    kv = (await corner.all()).kvs[0]
    assert (kv.create_revision, kv.version) == (revision, 1)


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("condition", ["absent", "present", "unchanged", "changed"])
async def test_conditions(corner: Corner, condition: str, *, exists: bool) -> None:
    revision = await corner.put("a") if exists else 0
    key = corner.key("a")
    conditions = {
        "absent": (absent(key), not exists),
        "present": (present(key), exists),
        "unchanged": (unchanged(key, revision), True),
        "changed": (unchanged(key, revision + 1), False),
    }
    compare, expected = conditions[condition]
    result = await corner.txn(Txn((compare,), (Put(corner.key("b"), b"yes"),), (Put(corner.key("b"), b"no"),)))
    assert result.succeeded is expected
    assert (await corner.all()).kvs[-1].value == (b"yes" if expected else b"no")


async def test_nested_transactions_have_guards_of_their_own_and_share_the_revision(corner: Corner) -> None:
    await corner.put("taken")
    nested = tuple(
        Txn((absent(corner.key(name)),), (Put(corner.key(name), b"new"),), (Get(corner.key(name)),))
        for name in ("free", "taken", "other")
    )
    result = await corner.txn(Txn((), nested))
    answers = [answer.txn for answer in result.results if answer.txn]
    assert [answer.succeeded for answer in answers] == [True, False, True]
    assert {answer.revision for answer in answers} == {result.revision}
    assert answers[1].results[0].kvs[0].value == b""
    kvs = {kv.key: kv for kv in (await corner.all()).kvs}
    assert kvs[corner.key("free")].mod_revision == kvs[corner.key("other")].mod_revision == result.revision


async def test_nested_guards_see_the_store_as_it_was_before_the_whole_transaction(corner: Corner) -> None:
    first = Txn((absent(corner.key("a")),), (Put(corner.key("a"), b""),))
    second = Txn((absent(corner.key("a")),), (Put(corner.key("b"), b""),))
    await corner.txn(Txn((), (first, second)))
    assert await corner.names() == ["a", "b"]


async def test_a_get_sees_the_writes_before_it(corner: Corner) -> None:
    result = await corner.txn(Txn((), (Put(corner.key("a"), b"1"), Get(corner.root, is_prefix=True))))
    assert [kv.value for kv in result.results[1].kvs] == [b"1"]


@pytest.mark.parametrize("nested", [False, True])
async def test_no_key_is_written_twice_in_one_transaction(corner: Corner, *, nested: bool) -> None:
    put: Op = Put(corner.key("a"), b"1")
    other: Op = Txn((), (put,)) if nested else put
    with pytest.raises(InvalidInputError):
        await corner.txn(Txn((), (put, other)))
    with pytest.raises(InvalidInputError):
        await corner.txn(Txn((), (Delete(corner.root, is_prefix=True), other)))
    assert await corner.names() == []


async def test_both_branches_may_write_the_same_key(corner: Corner) -> None:
    put = Put(corner.key("a"), b"1")
    await corner.txn(Txn((), (Txn((present(corner.key("a")),), (put,), (put,)),)))
    assert await corner.names() == ["a"]


async def test_the_limit_of_operations(corner: Corner) -> None:
    def nested(count: int) -> Txn:
        return Txn((), tuple(Txn((), (Put(corner.key(f"{index:03d}"), b""),)) for index in range(count)))

    assert (await corner.txn(nested(TXN_OPS_MAX - 1))).succeeded
    with pytest.raises(InvalidInputError):
        await corner.txn(nested(TXN_OPS_MAX))
    with pytest.raises(InvalidInputError):
        await corner.txn(Txn((), tuple(Get(corner.key("a")) for _ in range(TXN_OPS_MAX + 1))))


async def test_a_request_that_is_too_large_is_refused(corner: Corner) -> None:
    with pytest.raises(InvalidInputError):
        await corner.put("a", bytes(1_600_000))


async def test_delete_by_prefix_takes_exactly_that_prefix(corner: Corner) -> None:
    for name in ("jobs/1/graph", "jobs/1/owner", "jobs/10/graph", "jobs/1"):
        await corner.put(name)
    result = await corner.txn(Txn((), (Delete(corner.key("jobs/1/"), is_prefix=True),)))
    assert result.results[0].deleted == 2
    assert await corner.names() == ["jobs/1", "jobs/10/graph"]


async def test_range_in_pages_at_one_revision(corner: Corner) -> None:
    for name in "abcde":
        await corner.put(name)
    first = await corner.all(limit=2)
    assert (len(first.kvs), first.count) == (2, 5)
    await corner.delete("d")
    rest = await corner.kv.range(
        corner.root,
        is_prefix=True,
        timeout=TIMEOUT,
        after_key=first.kvs[-1].key,
        revision=first.revision,
    )
    assert [kv.key.removeprefix(corner.root) for kv in rest.kvs] == ["c", "d", "e"]
    assert await corner.names() == ["a", "b", "c", "e"]


async def test_range_newest_first_and_by_create_revision(corner: Corner) -> None:
    revisions = [await corner.put(name) for name in "cab"]
    await corner.put("c")
    newest = await corner.all(newest_first=True, limit=2)
    assert [kv.key.removeprefix(corner.root) for kv in newest.kvs] == ["b", "a"]
    before = await corner.all(newest_first=True, limit=1, max_create_revision=revisions[2] - 1)
    assert [kv.key.removeprefix(corner.root) for kv in before.kvs] == ["a"]


async def test_range_of_one_key(corner: Corner) -> None:
    await corner.put("a", b"1")
    await corner.put("ab", b"2")
    answer = await corner.kv.range(corner.key("a"), is_prefix=False, timeout=TIMEOUT)
    assert [kv.value for kv in answer.kvs] == [b"1"]
    assert (await corner.kv.range(corner.key("x"), is_prefix=False, timeout=TIMEOUT)).kvs == ()


async def test_watch_from_a_revision_sees_everything_since(corner: Corner) -> None:
    start = await corner.put("a", b"1")
    await corner.put("b", b"2")
    await corner.delete("a")
    batches = await corner.watch(start, batches=3)
    events = [event for batch in batches for event in batch.events]
    assert [(event.kv.key[-1], event.kv.value, event.is_delete) for event in events] == [
        ("a", b"1", False),
        ("b", b"2", False),
        ("a", b"", True),
    ]
    assert [event.kv.mod_revision for event in events] == [start, start + 1, start + 2]


async def test_watch_waits_for_what_comes(corner: Corner) -> None:
    start = await corner.put("before")
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(corner.watch(start + 1, batches=2))
        await asyncio.sleep(0)
        await corner.put("one")
        await corner.put("two")
    names = [event.kv.key.removeprefix(corner.root) for batch in watching.result() for event in batch.events]
    assert names == ["one", "two"]


async def test_all_events_of_one_transaction_come_in_one_batch(corner: Corner) -> None:
    start = await corner.put("x")
    await corner.txn(Txn((), tuple(Put(corner.key(f"{index:02d}"), bytes(3000)) for index in range(50))))
    (batch,) = await corner.watch(start + 1, batches=1)
    assert len(batch.events) == 50
    assert batch.revision == start + 1


async def test_watch_ignores_other_prefixes(corner: Corner) -> None:
    start = await corner.put("x/a")
    await corner.kv.txn(Txn((), (Put(f"{corner.root[:-1]}0", b""),)), timeout=TIMEOUT)
    await corner.put("x/b")
    batches = await corner.watch(start, batches=2)
    assert [event.kv.key[-1] for batch in batches for event in batch.events] == ["a", "b"]


async def test_watch_and_read_of_a_compacted_revision(corner: Corner) -> None:
    start = await corner.put("a", b"1")
    await corner.put("a", b"2")
    last = await corner.put("a", b"2")
    await corner.kv.compact(last, timeout=TIMEOUT)
    await corner.kv.compact(last, timeout=TIMEOUT)
    with pytest.raises(CompactedError):
        await corner.watch(start, batches=1)
    with pytest.raises(CompactedError):
        await corner.all(revision=start)
    assert (await corner.all()).kvs[0].value == b"2"
    await corner.put("b")
    assert len(await corner.watch(last + 1, batches=1)) == 1


async def test_the_end_of_a_lease_deletes_its_keys_in_one_revision(corner: Corner) -> None:
    lease = await corner.kv.grant_lease(60, timeout=TIMEOUT)
    await corner.put("a", lease=lease)
    await corner.put("b", lease=lease)
    start = await corner.put("kept")
    assert [kv.lease for kv in (await corner.all()).kvs] == [lease, lease, 0]
    await corner.kv.revoke_lease(lease, timeout=TIMEOUT)
    await corner.kv.revoke_lease(lease, timeout=TIMEOUT)
    (batch,) = await corner.watch(start + 1, batches=1)
    assert sorted(event.kv.key[-1] for event in batch.events if event.is_delete) == ["a", "b"]
    assert await corner.names() == ["kept"]


async def test_a_lease_that_is_not_renewed_expires(corner: Corner) -> None:
    lease = await corner.kv.grant_lease(2, timeout=TIMEOUT)
    start = await corner.put("a", lease=lease)
    (batch,) = await corner.watch(start + 1, batches=1)
    assert batch.events[0].is_delete
    assert await corner.kv.keep_lease_alive(lease, timeout=TIMEOUT) == 0


async def test_renewal_of_a_lease(corner: Corner) -> None:
    lease = await corner.kv.grant_lease(60, timeout=TIMEOUT)
    assert await corner.kv.keep_lease_alive(lease, timeout=TIMEOUT) == 60
    await corner.kv.revoke_lease(lease, timeout=TIMEOUT)
    assert await corner.kv.keep_lease_alive(lease, timeout=TIMEOUT) == 0


async def test_a_put_under_an_ended_lease_writes_nothing(corner: Corner) -> None:
    lease = await corner.kv.grant_lease(60, timeout=TIMEOUT)
    await corner.kv.revoke_lease(lease, timeout=TIMEOUT)
    with pytest.raises(LeaseNotFoundError):
        await corner.txn(Txn((), (Put(corner.key("a"), b""), Put(corner.key("b"), b"", lease))))
    assert await corner.names() == []


async def test_a_put_without_lease_detaches_the_key(corner: Corner) -> None:
    lease = await corner.kv.grant_lease(60, timeout=TIMEOUT)
    await corner.put("a", lease=lease)
    await corner.put("a")
    await corner.kv.revoke_lease(lease, timeout=TIMEOUT)
    assert await corner.names() == ["a"]


async def test_status(corner: Corner) -> None:
    revision = await corner.put("a")
    status = await corner.kv.status(timeout=TIMEOUT)
    assert status.revision >= revision
    assert 0 < status.size_bytes < status.quota_bytes
    assert status.version


async def test_a_closed_store_ends_its_watches(corner: Corner) -> None:
    start = await corner.put("a")
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(_failure_of(corner.watch(start + 1, batches=1)))
        await asyncio.sleep(0.01)
        await corner.kv.close()
    assert isinstance(watching.result(), UnavailableError)
    with pytest.raises(UnavailableError):
        await corner.put("b")


async def _failure_of(awaitable: object) -> BaseException | None:
    try:
        await awaitable  # type: ignore[misc]
    except UnavailableError as error:
        return error
    return None
