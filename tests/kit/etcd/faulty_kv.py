"""FaultyKeyValueStore: loses answers on purpose, after a write was applied or before it was sent."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from enum import Enum

from runtime.common.errors import OutcomeUnknownError, UnavailableError
from runtime.highavailability.kv.key_value_store import (
    KeyValueStore,
    LeaseNotFoundError,
    PrefixState,
    Put,
    RangeResult,
    StoreStatus,
    Txn,
    TxnResult,
    WatchBatch,
)


class Fault(Enum):
    """The fault of one transaction."""

    NONE = "NONE"
    APPLIED_THEN_LOST = "APPLIED_THEN_LOST"
    LOST_BEFORE = "LOST_BEFORE"
    REFUSED = "REFUSED"
    LATE = "LATE"


class FaultyKeyValueStore:
    """Takes one fault from `faults` for each transaction; without one left there is no fault. `sent` has every try.

    What a store of jobs writes, which always has conditions, has to be records: a cluster with a key seals them (R38),
    and can seal nothing else. A test may write what is none.

    A LATE transaction is executed by `arrive`, long after its caller has given up.
    """

    def __init__(self, kv: KeyValueStore) -> None:
        self._kv = kv
        self.faults: deque[Fault] = deque()
        self.sent: list[Txn] = []
        self.late: list[Txn] = []
        self.is_reachable = True
        self.changes_lost = 0
        """Batches that watches will leave out from now on."""
        self.calls_refused = 0

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        """Run one transaction with the next fault."""
        self.sent.append(txn)
        for one in (*txn.success, *txn.failure):
            if txn.conditions and isinstance(one, Put) and "/jobs/" in one.key:
                assert one.value.endswith(b"}"), f"{one.key}: no record"
        fault = self.faults.popleft() if self.faults else Fault.NONE
        if fault is Fault.REFUSED or not self.is_reachable:
            self.calls_refused += 1
            message = "refused by the test"
            raise UnavailableError(message)
        if fault is Fault.LATE:
            self.late.append(txn)
        if fault in {Fault.LOST_BEFORE, Fault.LATE}:
            message = "lost by the test before it was applied"
            raise OutcomeUnknownError(message)
        result = await self._kv.txn(txn, timeout=timeout)
        if fault is Fault.APPLIED_THEN_LOST:
            message = "lost by the test after it was applied"
            raise OutcomeUnknownError(message)
        return result

    async def arrive(self) -> None:
        """Execute the LATE transactions now."""
        late, self.late = self.late, []
        for txn in late:
            try:
                await self._kv.txn(txn, timeout=5.0)
            except LeaseNotFoundError:
                continue

    def _check_reachable(self) -> None:
        if not self.is_reachable:
            self.calls_refused += 1
            message = "not reachable by the test"
            raise UnavailableError(message)

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
        """Passes through."""
        self._check_reachable()
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
        """Passes through."""
        self._check_reachable()
        return await self._kv.prefix_state(prefix, timeout=timeout)

    async def grant_lease(self, ttl: int, /, *, timeout: float) -> int:
        """Passes through."""
        self._check_reachable()
        return await self._kv.grant_lease(ttl, timeout=timeout)

    async def keep_lease_alive(self, lease: int, /, *, timeout: float) -> int:
        """Passes through."""
        self._check_reachable()
        return await self._kv.keep_lease_alive(lease, timeout=timeout)

    async def revoke_lease(self, lease: int, /, *, timeout: float) -> None:
        """Passes through."""
        self._check_reachable()
        await self._kv.revoke_lease(lease, timeout=timeout)

    def watch(self, prefix: str, /, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Passes through, except lost batches."""
        return self._watch(prefix, start_revision)

    async def _watch(self, prefix: str, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        async with aclosing(self._kv.watch(prefix, start_revision=start_revision)) as watch:
            async for batch in watch:
                if self.changes_lost:
                    self.changes_lost -= 1
                else:
                    yield batch

    async def compact(self, revision: int, /, *, timeout: float) -> None:
        """Passes through."""
        await self._kv.compact(revision, timeout=timeout)

    async def status(self, *, timeout: float) -> StoreStatus:
        """Passes through."""
        return await self._kv.status(timeout=timeout)

    async def defragment(self, *, timeout: float) -> None:
        """Passes through."""
        await self._kv.defragment(timeout=timeout)

    async def close(self) -> None:
        """Passes through."""
        await self._kv.close()
