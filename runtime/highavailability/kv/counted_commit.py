"""GroupCommitStore that counts its transactions, only where metrics are on (D-110)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

from runtime.highavailability.kv.group_commit import GroupCommitStore
from runtime.highavailability.kv.key_value_store import Delete, KeyValueStore, Op, Put, Txn, TxnResult
from runtime.metrics import table
from runtime.metrics.errors import error_kind
from runtime.metrics.registry import MetricRegistry, Sample

_KINDS = (
    (re.compile(r"/jobs/[^/]+/(?P<kind>graph|owner|events|wanted|client|result)(/|\Z)"), ""),
    (re.compile(r"/done/"), "done"),
    (re.compile(r"/leader/"), "leader"),
    (re.compile(r"/jobmasters/"), "jobmaster"),
    (re.compile(r"/taskmanagers/[^/]+/fences/"), "fence"),
    (re.compile(r"/taskmanagers/"), "taskmanager"),
    (re.compile(r"/principals/"), "principal"),
    (re.compile(r"/cluster-events/"), "cluster-events"),
    (re.compile(r"/cluster\Z"), "cluster"),
)


def transaction_kind(txn: Txn) -> str:
    """What a transaction is about (`table.STORE_KINDS`): the first key that it writes says it."""
    key = next(_written(txn.success), None) or next(_written(txn.failure), None)
    if key is None:
        return "read"
    for expression, kind in _KINDS:
        if found := expression.search(key):
            return kind or found["kind"]
    return "other"


def _written(ops: tuple[Op, ...]) -> Iterator[str]:
    for op in ops:
        if isinstance(op, Put | Delete):
            yield op.key
        elif isinstance(op, Txn):
            yield from _written((*op.success, *op.failure))


class CountedCommitStore(GroupCommitStore):
    """Counts each transaction where it is asked for: a batch of many is many."""

    def __init__(self, kv: KeyValueStore, metrics: MetricRegistry, *, in_flight_max: int = 1) -> None:
        super().__init__(kv, in_flight_max=in_flight_max)
        self._metrics = metrics
        metrics.read("store", self._samples)

    def _samples(self) -> Iterator[Sample]:
        yield Sample(table.STORE_COMMITS, self.commits)
        yield Sample(table.STORE_QUEUE, self.waiting)

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        """Run one transaction, alone or in a batch, and count it."""
        kind, outcome = transaction_kind(txn), "done"
        loop = asyncio.get_running_loop()
        begin = loop.time()
        try:
            result = await super().txn(txn, timeout=timeout)
            outcome = "done" if result.succeeded else "refused"
        except BaseException as error:
            outcome = error_kind(error)
            raise
        finally:
            self._metrics.histogram(table.STORE_SECONDS, kind).observe(loop.time() - begin)
            self._metrics.counter(table.STORE_TRANSACTIONS, kind, outcome).inc()
        return result
