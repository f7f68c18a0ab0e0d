"""KeyValueStore in one process, with etcd's semantics: for `high-availability.type: none`, tests and simulation.

Time comes from the injected clock, and waiting from the loop, so it works on a virtual-time loop. No method blocks, and
no outcome is unknown: a method does its work or raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from runtime.common.clock import Clock
from runtime.common.errors import UnavailableError
from runtime.highavailability.kv.core.mvcc import MvccStore
from runtime.highavailability.kv.key_value_store import (
    PrefixState,
    RangeResult,
    StoreStatus,
    Txn,
    TxnResult,
    WatchBatch,
)

DEFAULT_QUOTA_BYTES = 2 * 1024**3
"""etcd's own default."""


@dataclass(slots=True)
class _Lease:
    ttl: int
    expires_at: float


class MemoryKeyValueStore:
    """One store; every user of the cluster shares the object."""

    def __init__(self, clock: Clock, *, quota_bytes: int = DEFAULT_QUOTA_BYTES) -> None:
        self._clock = clock
        self._quota_bytes = quota_bytes
        self._store = MvccStore(quota_bytes=quota_bytes)
        self._leases: dict[int, _Lease] = {}
        self._lease_count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._is_closed = False

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        """Run one transaction."""
        self._begin(timeout)
        result = self._store.txn(txn, leases=self._leases)
        self._wake_watches()
        return result

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
        self._begin(timeout)
        return self._store.range(
            key,
            is_prefix=is_prefix,
            limit=limit,
            after_key=after_key,
            revision=revision,
            max_create_revision=max_create_revision,
            newest_first=newest_first,
        )

    async def prefix_state(self, prefix: str, /, *, timeout: float) -> PrefixState:
        """Count and youngest revision."""
        self._begin(timeout)
        return self._store.prefix_state(prefix)

    async def grant_lease(self, ttl: int, /, *, timeout: float) -> int:
        """A new lease."""
        assert ttl > 0, ttl
        self._begin(timeout)
        self._lease_count += 1
        self._leases[self._lease_count] = _Lease(ttl, self._clock.monotonic() + ttl)
        self._arm_timer()
        return self._lease_count

    async def keep_lease_alive(self, lease: int, /, *, timeout: float) -> int:
        """Renew; 0 when the lease has ended."""
        self._begin(timeout)
        found = self._leases.get(lease)
        if found is None:
            return 0
        found.expires_at = self._clock.monotonic() + found.ttl
        return found.ttl

    async def revoke_lease(self, lease: int, /, *, timeout: float) -> None:
        """End a lease."""
        self._begin(timeout)
        if self._leases.pop(lease, None) is not None:
            self._store.delete_keys_of_lease(lease)
            self._wake_watches()

    def watch(self, prefix: str, /, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Every change from `start_revision` on, 0: from this call on."""
        return self._watch(prefix, start_revision or self._store.revision + 1)

    async def _watch(self, prefix: str, next_revision: int) -> AsyncGenerator[WatchBatch, None]:
        while True:
            self._check_open()
            seen = self._store.revision
            for batch in list(self._store.changes(prefix, next_revision)):
                yield batch
            next_revision = max(next_revision, seen + 1)
            # The consumer may have held a batch while more was written: look again before waiting.
            if next_revision > self._store.revision:
                await self._next_change()

    async def compact(self, revision: int, /, *, timeout: float) -> None:
        """Forget history."""
        self._begin(timeout)
        self._store.compact(revision)

    async def status(self, *, timeout: float) -> StoreStatus:
        """Size and revision."""
        self._begin(timeout)
        size = self._store.size_bytes
        return StoreStatus("memory", self._store.revision, size, self._quota_bytes, size, "memory")

    async def defragment(self, *, timeout: float) -> None:
        """Nothing to do: forgotten history takes no space."""
        self._begin(timeout)

    async def close(self) -> None:
        """End all watches. Idempotent."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_watches()

    def expire_leases(self) -> None:
        """End every lease whose time is over by the clock. A timer calls it, and tests that set the clock by hand."""
        now = self._clock.monotonic()
        expired = [lease for lease, entry in self._leases.items() if entry.expires_at <= now]
        for lease in expired:
            del self._leases[lease]
            self._store.delete_keys_of_lease(lease)
        if expired:
            self._wake_watches()

    def _begin(self, timeout: float) -> None:
        assert timeout > 0, timeout
        self._check_open()
        self.expire_leases()

    def _check_open(self) -> None:
        if self._is_closed:
            message = "the memory store is closed"
            raise UnavailableError(message)

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._leases or self._is_closed:
            return
        delay = min(entry.expires_at for entry in self._leases.values()) - self._clock.monotonic()
        # At least a millisecond: a timer may fire a hair before the moment it was set for.
        self._timer = asyncio.get_running_loop().call_later(max(delay, 0.001), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.expire_leases()
        self._arm_timer()

    async def _next_change(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake_watches(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
