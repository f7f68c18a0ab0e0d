"""Transactions are counted by what they write, and by what became of them."""

from __future__ import annotations

import pytest

from runtime.aio.clock import LoopClock
from runtime.common.errors import InvalidInputError
from runtime.common.ids import Incarnation, JobId
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import absent
from runtime.highavailability.kv.counted_commit import CountedCommitStore, transaction_kind
from runtime.highavailability.kv.key_value_store import Delete, Get, Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.metrics import table
from runtime.metrics.counted import CountedMetrics
from tests.kit.control_plane.virtual_time import run_virtual

KEYS = Keys.of_cluster("c")
JOB, PROCESS = JobId("a" * 32), Incarnation("b" * 32)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (KEYS.graph(JOB), "graph"),
        (KEYS.owner(JOB), "owner"),
        (KEYS.event(JOB, 3), "events"),
        (KEYS.wanted(JOB), "wanted"),
        (KEYS.client(JOB), "client"),
        (KEYS.result(JOB), "result"),
        (KEYS.done(JOB), "done"),
        (KEYS.leader(7), "leader"),
        (KEYS.job_master(PROCESS), "jobmaster"),
        (KEYS.task_manager(PROCESS), "taskmanager"),
        (KEYS.guard(PROCESS), "taskmanager"),
        (KEYS.fence(PROCESS, JOB), "fence"),
        (KEYS.principal("vera"), "principal"),
        (KEYS.cluster, "cluster"),
        ("/flinklike/c/elsewhere", "other"),
    ],
)
def test_the_first_key_that_is_written_says_the_kind(key: str, kind: str) -> None:
    assert kind in table.STORE_KINDS
    assert transaction_kind(Txn((), (Put(key, b""),))) == kind
    assert transaction_kind(Txn((), (Get(KEYS.cluster), Txn((), (Delete(key),))))) == kind, "nested, behind a read"
    assert transaction_kind(Txn((), (), (Put(key, b""),))) == kind


def test_a_transaction_that_writes_nothing_is_a_read() -> None:
    assert transaction_kind(Txn((), (Get(KEYS.graph(JOB)),))) == "read"


def test_what_becomes_of_them_is_counted() -> None:
    async def scenario() -> None:
        metrics = CountedMetrics(100)
        store = CountedCommitStore(MemoryKeyValueStore(LoopClock()), metrics)
        await store.open()
        create = Txn((absent(KEYS.graph(JOB)),), (Put(KEYS.graph(JOB), b""),))
        assert (await store.txn(create, timeout=5)).succeeded
        assert not (await store.txn(create, timeout=5)).succeeded
        twice = Txn((), (Put(KEYS.owner(JOB), b""), Put(KEYS.owner(JOB), b"")))
        with pytest.raises(InvalidInputError):
            await store.txn(twice, timeout=5)
        found = {family.metric: family for family in metrics.families()}
        assert found[table.STORE_TRANSACTIONS].values == {
            ("graph", "done"): 1,
            ("graph", "refused"): 1,
            ("owner", "invalid_input"): 1,
        }
        (graph, owner) = found[table.STORE_SECONDS].distributions
        assert [one.buckets[-1][1] for one in (graph, owner)] == [2, 1], "failed ones take time too"
        assert found[table.STORE_COMMITS].values == {(): 3}
        assert found[table.STORE_QUEUE].values == {(): 0}
        await store.close()

    run_virtual(scenario())
