"""KeyValueStore: the part of etcd's v3 API that the cluster uses, with its semantics, as a Protocol.

Invariants of every implementation: one revision counter for the whole store, raised by each transaction that
writes; a transaction is atomic; a watch delivers every change from its start revision on, in order, or raises
CompactedError; an expired lease deletes its keys in one revision.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from runtime.common.errors import PermanentError, RetryableError

TXN_OPS_MAX = 128
"""etcd's limit: the operations of a transaction plus those of its largest nested one."""

REQUEST_BYTES_MAX = 1_500_000
"""etcd's limit for one request is 1.5 MiB; this leaves room for the frame."""


class LeaseNotFoundError(PermanentError):
    """A put under a lease that has ended. Nothing was written."""


WHAT_TO_DO_WHEN_RESTORED = (
    "it was restored from a snapshot or has lost data, and nothing is decided on it: stop all processes of the cluster "
    "and run bin/restored-etcd.sh, see docs/operations.md"
)


class StoreRestoredError(PermanentError):
    """R35: the store has an older state than before, or is another store. The message says what to do."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}: {WHAT_TO_DO_WHEN_RESTORED}")


class CompactedError(RetryableError):
    """A read or watch asked for a revision that is compacted: list again and watch from there."""

    def __init__(self, message: str, *, compact_revision: int) -> None:
        super().__init__(message)
        self.compact_revision = compact_revision


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as stored."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


class CompareTarget(Enum):
    """The property of a key that a condition compares."""

    CREATE_REVISION = "CREATE_REVISION"
    MOD_REVISION = "MOD_REVISION"


class CompareOperator(Enum):
    """How a condition compares. NOT_EQUAL to 0 = the key is present."""

    EQUAL = "EQUAL"
    NOT_EQUAL = "NOT_EQUAL"


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition: target of `key` equals (or not) `revision`. Equal to 0 = the key is absent.

    All conditions, those of nested transactions too, see the store as it was before the whole transaction.
    """

    key: str
    target: CompareTarget
    revision: int
    operator: CompareOperator = CompareOperator.EQUAL

    def holds(self, kv: KeyValue | None) -> bool:
        """True if the condition holds. `kv` is the key as stored, None when it does not exist."""
        if kv is None:
            actual = 0
        else:
            is_create = self.target is CompareTarget.CREATE_REVISION
            actual = kv.create_revision if is_create else kv.mod_revision
        return (actual == self.revision) is (self.operator is CompareOperator.EQUAL)


@dataclass(frozen=True, slots=True)
class Put:
    """Write one key, under a lease if not 0."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete one key, or all with that prefix."""

    key: str
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class Get:
    """Read one key, or all with that prefix, inside a transaction. `limit` 0 = no limit."""

    key: str
    is_prefix: bool = False
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Txn:
    """If all conditions hold then `success` else `failure`, atomically. May hold nested transactions."""

    conditions: tuple[Compare, ...]
    success: tuple[Op, ...]
    failure: tuple[Op, ...] = ()


Op = Put | Delete | Get | Txn


@dataclass(frozen=True, slots=True)
class OpResult:
    """Answer to one op: keys of a Get, `txn` of a nested transaction, `deleted` of a Delete."""

    kvs: tuple[KeyValue, ...] = ()
    deleted: int = 0
    txn: TxnResult | None = None


@dataclass(frozen=True, slots=True)
class TxnResult:
    """`revision` is the store's after the transaction: the mod_revision of what it wrote."""

    succeeded: bool
    revision: int
    results: tuple[OpResult, ...]


@dataclass(frozen=True, slots=True)
class RangeResult:
    """Keys in key order, read at `revision`. `count` is how many there are, also beyond the limit."""

    revision: int
    kvs: tuple[KeyValue, ...]
    count: int


@dataclass(frozen=True, slots=True)
class PrefixState:
    """Count and highest mod_revision of the keys under a prefix, read at `revision`. A set of keys with the same two
    values, to which no watch has applied a change since it was listed, is up to date."""

    revision: int
    count: int
    mod_revision: int


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One change. `kv.value` is empty when `is_delete`."""

    kv: KeyValue
    is_delete: bool


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Changes up to and including `revision`; a revision is never split over two batches.

    A batch without events means that the watch was interrupted and goes on.
    """

    revision: int
    events: tuple[WatchEvent, ...]


class KeyValueStore(Protocol):
    """Errors of every method: UnavailableError (surely not executed), OutcomeUnknownError (writes: perhaps),
    StorageExhaustedError (quota; writes: this try is over, and was perhaps executed: R32), UnauthenticatedError,
    LeaseNotFoundError, InvalidInputError (limits: at most TXN_OPS_MAX operations; no key written twice in one
    transaction).
    """

    async def txn(self, txn: Txn, /, *, timeout: float) -> TxnResult:
        """Run one transaction."""

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
        """A linearizable read, in pages of `limit` after `after_key`.

        `revision` reads the past (CompactedError when forgotten), so that pages fit together. `newest_first` orders by
        create revision, descending; `max_create_revision` leaves out what is younger. 0 = neither.
        """

    async def prefix_state(self, prefix: str, /, *, timeout: float) -> PrefixState:
        """A linearizable read of count and youngest revision, which costs little, however many keys there are."""

    async def grant_lease(self, ttl: int, /, *, timeout: float) -> int:
        """A new lease of `ttl` seconds; its id."""

    async def keep_lease_alive(self, lease: int, /, *, timeout: float) -> int:
        """Renew. The remaining ttl in seconds, 0 when the lease has ended."""

    async def revoke_lease(self, lease: int, /, *, timeout: float) -> None:
        """End a lease and delete its keys. Idempotent."""

    def watch(self, prefix: str, /, *, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """Every change under `prefix` from `start_revision` on (0: from now on). Survives reconnects.

        Raises CompactedError, UnauthenticatedError, and UnavailableError when the store is closed.
        """

    async def compact(self, revision: int, /, *, timeout: float) -> None:
        """Forget history before `revision`. Idempotent."""

    async def status(self, *, timeout: float) -> StoreStatus:
        """Version and size."""

    async def defragment(self, *, timeout: float) -> None:
        """Free the space of forgotten history, and lift the alarm of a full store. Blocks the store meanwhile."""

    async def close(self) -> None:
        """End all watches and connections."""


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """State of the member that was asked. The quota counts `size_bytes`; `used_bytes` of them would remain after a
    defragmentation. Another store has another `store_id`.
    """

    version: str
    revision: int
    size_bytes: int
    quota_bytes: int
    used_bytes: int
    store_id: str


@dataclass(frozen=True, slots=True)
class StoreMember:
    """One configured endpoint of the store. `problem`: why it does not answer, "" for one that does; `answer_millis`:
    how long it took.
    """

    endpoint: str
    problem: str = ""
    version: str = ""
    is_leader: bool = False
    size_bytes: int = 0
    answer_millis: float = 0.0
