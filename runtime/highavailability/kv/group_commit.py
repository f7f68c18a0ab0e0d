"""Group commit: transactions that queue up behind a write in flight are sent as one transaction of nested ones.

A transaction never waits for others to come: without a write in flight it is sent at once. The transactions of one
batch are independent: etcd evaluates all conditions before the whole transaction, so a transaction that reads, compares
or writes a key which another one of the batch writes waits for the next batch. The order of arrival is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from runtime.aio.scope import ScopeClosedError, ServiceScope
from runtime.common.errors import (
    BackpressureError,
    FlinklikeError,
    OutcomeUnknownError,
    PermanentError,
    UnavailableError,
)
from runtime.highavailability.kv.core.mvcc import txn_bytes, txn_ops
from runtime.highavailability.kv.key_value_store import (
    TXN_OPS_MAX,
    Delete,
    Get,
    KeyValueStore,
    PrefixState,
    Put,
    RangeResult,
    StoreStatus,
    Txn,
    TxnResult,
    WatchBatch,
)

QUEUE_MAX = 20_000
BATCH_BYTES_MAX = 1_000_000


@dataclass(slots=True, eq=False)
class _Waiting:
    txn: Txn
    deadline: float
    answer: asyncio.Future[TxnResult]
    footprint: Footprint
    ops: int
    size_bytes: int
    is_sent: bool = False


@dataclass(slots=True)
class Footprint:
    """The keys and prefixes that a transaction reads and writes, in all its branches."""

    read_keys: set[str] = field(default_factory=set)
    read_prefixes: set[str] = field(default_factory=set)
    written_keys: set[str] = field(default_factory=set)
    written_prefixes: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, txn: Txn) -> Footprint:
        """The footprint of a transaction with all nested ones."""
        footprint = cls()
        footprint.add(txn)
        return footprint

    def add(self, txn: Txn) -> None:
        """Add another transaction."""
        self.read_keys.update(condition.key for condition in txn.conditions)
        for op in (*txn.success, *txn.failure):
            match op:
                case Put():
                    self.written_keys.add(op.key)
                case Delete():
                    (self.written_prefixes if op.is_prefix else self.written_keys).add(op.key)
                case Get():
                    (self.read_prefixes if op.is_prefix else self.read_keys).add(op.key)
                case Txn():
                    self.add(op)

    def merge(self, other: Footprint) -> None:
        """Add another footprint."""
        self.read_keys |= other.read_keys
        self.read_prefixes |= other.read_prefixes
        self.written_keys |= other.written_keys
        self.written_prefixes |= other.written_prefixes

    def conflicts_with(self, other: Footprint) -> bool:
        """True if one of the two reads or writes a key that the other one writes."""
        return self._writes_touch(other) or other._writes_touch(self)

    def _writes_touch(self, other: Footprint) -> bool:
        if self.written_keys & other.written_keys or self.written_keys & other.read_keys:
            return True
        prefixes = (*other.read_prefixes, *other.written_prefixes)
        if any(key.startswith(prefix) for prefix in prefixes for key in self.written_keys):
            return True
        touched = (*other.read_keys, *other.written_keys, *prefixes)
        return any(
            name.startswith(prefix) or prefix.startswith(name) for prefix in self.written_prefixes for name in touched
        )


class GroupCommitStore:
    """A KeyValueStore in front of another one. At most `in_flight_max` transactions are on their way at a time."""

    def __init__(self, kv: KeyValueStore, *, in_flight_max: int = 1) -> None:
        self._kv = kv
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._queue: deque[_Waiting] = deque()
        self._scope = ServiceScope("group-commit")
        self.transactions = 0
        """Transactions asked for."""
        self.commits = 0
        """Transactions sent."""

    @property
    def waiting(self) -> int:
        """How many transactions wait to be sent."""
        return len(self._queue)

    async def open(self) -> None:
        """Must be called before the first transaction."""
        await self._scope.open()

    async def wait_failed(self) -> None:
        """Wait between `open` and `stop`, and raise what has ended the sending: nothing is committed any more."""
        await self._scope.wait_failed()

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        """Run one transaction, alone or in a batch. `timeout` includes the time in the queue."""
        self.transactions += 1
        if self._in_flight < self._in_flight_max and not self._queue:
            return await self._alone(txn, timeout=timeout)
        if len(self._queue) >= QUEUE_MAX:
            message = f"{QUEUE_MAX} transactions wait for the store"
            raise BackpressureError(message, retry_after=1.0)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(
            txn, loop.time() + timeout, loop.create_future(), Footprint.of(txn), txn_ops(txn), txn_bytes(txn)
        )
        self._queue.append(waiting)
        try:
            async with asyncio.timeout_at(waiting.deadline):
                return await waiting.answer
        except TimeoutError as error:
            # The batch goes on for callers with more time.
            if waiting.is_sent:
                message = "the transaction was not answered by its deadline"
                raise OutcomeUnknownError(message) from error
            message = "the transaction waited behind others until its deadline"
            raise UnavailableError(message) from error

    async def _alone(self, txn: Txn, *, timeout: float) -> TxnResult:
        self._in_flight += 1
        try:
            self.commits += 1
            return await self._kv.txn(txn, timeout=timeout)
        finally:
            self._in_flight -= 1
            self._send_next()

    def _send_next(self) -> None:
        if not self._scope.is_open:
            self._refuse_waiting()
        if self._in_flight < self._in_flight_max and (batch := self._next_batch()):
            self._in_flight += 1
            try:
                sending = self._scope.start("commit", self._send(batch))
            except ScopeClosedError:
                self._in_flight -= 1
                self._queue.extendleft(reversed(batch))
                self._refuse_waiting()
            else:
                # No `finally`: a task that is cancelled before its first step never gets there.
                sending.add_done_callback(lambda _: self._over(batch))

    def _over(self, batch: list[_Waiting]) -> None:
        self._in_flight -= 1
        for waiting in batch:
            _fail(waiting, OutcomeUnknownError("the store was closed while the transaction was on its way"))
        self._send_next()

    async def _send(self, batch: list[_Waiting]) -> None:
        if len(batch) == 1:
            await self._send_alone(batch[0])
            return
        self.commits += 1
        try:
            together = Txn((), tuple(waiting.txn for waiting in batch))
            result = await self._kv.txn(together, timeout=_time_left(batch))
        except PermanentError:
            # Refused as a whole, so surely not executed: alone, each transaction gets its own answer.
            for waiting in batch:
                await self._send_alone(waiting)
        except FlinklikeError as error:
            for waiting in batch:
                _fail(waiting, error)
        else:
            for waiting, answer in zip(batch, result.results, strict=True):
                assert answer.txn is not None, waiting.txn
                _answer(waiting, answer.txn)

    async def _send_alone(self, waiting: _Waiting) -> None:
        self.commits += 1
        try:
            _answer(waiting, await self._kv.txn(waiting.txn, timeout=_time_left([waiting])))
        except FlinklikeError as error:
            _fail(waiting, error)

    def _next_batch(self) -> list[_Waiting]:
        """The longest head of the queue that can be sent as one transaction."""
        self._drop_overdue()
        batch: list[_Waiting] = []
        footprint = Footprint()
        ops_max = size = 0
        while self._queue:
            waiting = self._queue[0]
            ops_max = max(ops_max, waiting.ops)
            size += waiting.size_bytes
            is_too_large = len(batch) + 1 + ops_max > TXN_OPS_MAX or size > BATCH_BYTES_MAX
            if batch and (is_too_large or footprint.conflicts_with(waiting.footprint)):
                break
            footprint.merge(waiting.footprint)
            waiting.is_sent = True
            batch.append(self._queue.popleft())
        return batch

    def _drop_overdue(self) -> None:
        """Drop transactions whose caller was cancelled, or whose deadline has passed before they were sent."""
        now = asyncio.get_running_loop().time()
        alive: deque[_Waiting] = deque()
        for waiting in self._queue:
            if waiting.deadline <= now:
                _fail(waiting, UnavailableError("the transaction waited behind others until its deadline"))
            elif not waiting.answer.done():
                alive.append(waiting)
        self._queue = alive

    def _refuse_waiting(self) -> None:
        while self._queue:
            _fail(self._queue.popleft(), UnavailableError("the store is closed"))

    async def stop(self) -> None:
        """Refuse what waits; the store below stays open. Idempotent."""
        await self._scope.close()
        self._refuse_waiting()

    async def close(self) -> None:
        """Stop, and close the store below. Idempotent."""
        await self.stop()
        await self._kv.close()

    # --- everything else passes through ------------------------------------------------------------------

    async def range(
        self,
        key: str,
        /,
        *,
        is_prefix: bool,
        timeout: float,
        limit: int = 0,
        after_key: str = "",
        revision: int = 0,
        max_create_revision: int = 0,
        newest_first: bool = False,
    ) -> RangeResult:
        """A read."""
        return await self._kv.range(
            key,
            is_prefix=is_prefix,
            timeout=timeout,
            limit=limit,
            after_key=after_key,
            revision=revision,
            max_create_revision=max_create_revision,
            newest_first=newest_first,
        )

    async def prefix_state(self, prefix: str, /, *, timeout: float) -> PrefixState:
        """Count and youngest revision."""
        return await self._kv.prefix_state(prefix, timeout=timeout)

    async def grant_lease(self, ttl: int, /, *, timeout: float) -> int:
        """A new lease."""
        return await self._kv.grant_lease(ttl, timeout=timeout)

    async def keep_lease_alive(self, lease: int, /, *, timeout: float) -> int:
        """Renew."""
        return await self._kv.keep_lease_alive(lease, timeout=timeout)

    async def revoke_lease(self, lease: int, /, *, timeout: float) -> None:
        """End a lease."""
        await self._kv.revoke_lease(lease, timeout=timeout)

    def watch(self, prefix: str, /, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Every change."""
        return self._kv.watch(prefix, start_revision=start_revision)

    async def compact(self, revision: int, /, *, timeout: float) -> None:
        """Forget history."""
        await self._kv.compact(revision, timeout=timeout)

    async def status(self, *, timeout: float) -> StoreStatus:
        """Version and size."""
        return await self._kv.status(timeout=timeout)

    async def defragment(self, *, timeout: float) -> None:
        """Give space back."""
        await self._kv.defragment(timeout=timeout)


def _time_left(batch: list[_Waiting]) -> float:
    """The longest time of a batch. A caller with less stops waiting earlier, with an unknown outcome."""
    now = asyncio.get_running_loop().time()
    return max(0.001, *(waiting.deadline - now for waiting in batch))


def _answer(waiting: _Waiting, result: TxnResult) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(result)


def _fail(waiting: _Waiting, error: FlinklikeError) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
