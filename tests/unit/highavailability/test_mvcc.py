"""The multi-version store: what etcd refuses, and reads of the past."""

from __future__ import annotations

import pytest

from runtime.common.errors import InvalidInputError
from runtime.highavailability.kv.core.mvcc import MvccStore
from runtime.highavailability.kv.key_value_store import Delete, Get, LeaseNotFoundError, Put, Txn


@pytest.fixture
def store() -> MvccStore:
    made = MvccStore(quota_bytes=1 << 20)
    for key in ("a/1", "a/2", "b"):
        made.txn(Txn((), success=(Put(key, b"first"),)), leases=())
    return made


def test_a_put_under_a_lease_that_has_ended_changes_nothing(store: MvccStore) -> None:
    with pytest.raises(LeaseNotFoundError, match="put of c: lease 7 has ended"):
        store.txn(Txn((), success=(Put("b", b"second"), Put("c", b"", lease=7))), leases=())
    assert store.revision == 4


def test_what_is_to_come_can_be_neither_read_nor_forgotten(store: MvccStore) -> None:
    with pytest.raises(InvalidInputError, match="read of b at revision 9, the store is at 4"):
        store.range("b", is_prefix=False, limit=0, after_key="", revision=9, max_create_revision=0, newest_first=False)
    with pytest.raises(InvalidInputError, match="compaction to revision 9, the store is at 4"):
        store.compact(9)
    assert not list(store.changes("", 9))


def test_a_read_of_the_past_leaves_out_what_came_later_or_had_gone(store: MvccStore) -> None:
    store.txn(Txn((), success=(Delete("a/1"), Get("b"))), leases=())

    def keys(revision: int) -> list[str]:
        read = store.range(
            "", is_prefix=True, limit=0, after_key="", revision=revision, max_create_revision=0, newest_first=False
        )
        return [kv.key for kv in read.kvs]

    assert [keys(revision) for revision in (2, 3, 4, 5)] == [["a/1"], ["a/1", "a/2"], ["a/1", "a/2", "b"], ["a/2", "b"]]
    store.compact(5)
    store.compact(4)
    assert (store.compact_revision, keys(5)) == (5, ["a/2", "b"])
