"""etcd's multi-version key-value store as a pure data structure: transactions, reads of the past, history, quota.

Invariants: `revision` rises by one with each transaction that changes something; all conditions, nested ones too, see
the state before the whole transaction (as in etcd); a key is written at most once in a transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from runtime.common.errors import InvalidInputError, StorageExhaustedError
from runtime.highavailability.kv.key_value_store import (
    REQUEST_BYTES_MAX,
    TXN_OPS_MAX,
    CompactedError,
    Delete,
    Get,
    KeyValue,
    LeaseNotFoundError,
    Op,
    OpResult,
    PrefixState,
    Put,
    RangeResult,
    Txn,
    TxnResult,
    WatchBatch,
    WatchEvent,
)

_KEY_OVERHEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class _Path:
    """Which branch of a transaction is taken, and the paths of the nested transactions in it, in order."""

    succeeded: bool
    ops: tuple[Op, ...]
    nested: tuple[_Path, ...]


@dataclass(frozen=True, slots=True)
class _Version:
    revision: int
    kv: KeyValue | None


class MvccStore:
    """The store's state. No method waits."""

    def __init__(self, *, quota_bytes: int) -> None:
        self.revision = 1
        self.compact_revision = 0
        self.size_bytes = 0
        self._quota_bytes = quota_bytes
        self._live: dict[str, KeyValue] = {}
        self._keys: list[str] = []
        self._versions: dict[str, list[_Version]] = {}
        self._log: list[WatchBatch] = []

    # --- transactions ------------------------------------------------------------------------------------

    def txn(self, txn: Txn, *, leases: Container[int]) -> TxnResult:
        """Run one transaction. Raises before anything is changed, or not at all."""
        check_txn(txn)
        path = self._choose(txn)
        puts = list(_puts(path))
        self._check_quota(puts)
        for put in puts:
            if put.lease and put.lease not in leases:
                message = f"put of {put.key}: lease {put.lease:x} has ended"
                raise LeaseNotFoundError(message)
        events: list[WatchEvent] = []
        results = self._execute(path, self.revision + 1, events)
        self._commit(events)
        return _stamped(path.succeeded, self.revision, results)

    def delete_keys_of_lease(self, lease: int) -> None:
        """Delete the keys of a lease that has ended, in one revision."""
        events: list[WatchEvent] = []
        for key in [kv.key for kv in self._live.values() if kv.lease == lease]:
            self._delete(key, self.revision + 1, events)
        self._commit(events)

    def _choose(self, txn: Txn) -> _Path:
        succeeded = all(condition.holds(self._live.get(condition.key)) for condition in txn.conditions)
        ops = txn.success if succeeded else txn.failure
        return _Path(succeeded, ops, tuple(self._choose(op) for op in ops if isinstance(op, Txn)))

    def _check_quota(self, puts: Sequence[Put]) -> None:
        cost = sum(_KEY_OVERHEAD_BYTES + len(put.key) + len(put.value) for put in puts)
        if cost and self.size_bytes + cost > self._quota_bytes:
            message = f"store is full: {self.size_bytes} of {self._quota_bytes} bytes are used"
            raise StorageExhaustedError(message)

    def _execute(self, path: _Path, revision: int, events: list[WatchEvent]) -> list[OpResult]:
        nested = iter(path.nested)
        results = []
        for op in path.ops:
            match op:
                case Put():
                    self._put(op, revision, events)
                    results.append(OpResult())
                case Delete(key, is_prefix):
                    keys = [kv.key for kv in self._select(key, is_prefix=is_prefix)]
                    for found in keys:
                        self._delete(found, revision, events)
                    results.append(OpResult(deleted=len(keys)))
                case Get(key, is_prefix, limit):
                    kvs = self._select(key, is_prefix=is_prefix)
                    results.append(OpResult(kvs=tuple(kvs[:limit] if limit else kvs)))
                case Txn():
                    inner = next(nested)
                    answer = TxnResult(inner.succeeded, 0, tuple(self._execute(inner, revision, events)))
                    results.append(OpResult(txn=answer))
        return results

    def _put(self, put: Put, revision: int, events: list[WatchEvent]) -> None:
        old = self._live.get(put.key)
        created, version = (old.create_revision, old.version + 1) if old else (revision, 1)
        kv = KeyValue(put.key, put.value, created, revision, version, put.lease)
        if old is None:
            insort(self._keys, put.key)
        self._live[put.key] = kv
        self._remember(put.key, _Version(revision, kv))
        events.append(WatchEvent(kv, is_delete=False))

    def _delete(self, key: str, revision: int, events: list[WatchEvent]) -> None:
        del self._live[key]
        del self._keys[bisect_left(self._keys, key)]
        self._remember(key, _Version(revision, None))
        events.append(WatchEvent(KeyValue(key, b"", 0, revision, 0, 0), is_delete=True))

    def _remember(self, key: str, version: _Version) -> None:
        self._versions.setdefault(key, []).append(version)
        self.size_bytes += _version_bytes(key, version)

    def _commit(self, events: list[WatchEvent]) -> None:
        if events:
            self.revision += 1
            self._log.append(WatchBatch(self.revision, tuple(events)))

    # --- reads -------------------------------------------------------------------------------------------

    def range(
        self,
        key: str,
        *,
        is_prefix: bool,
        limit: int,
        after_key: str,
        revision: int,
        max_create_revision: int,
        newest_first: bool,
    ) -> RangeResult:
        """Read now, or at `revision`."""
        if revision:
            self._check_not_compacted(revision, f"read of {key}")
            if revision > self.revision:
                message = f"read of {key} at revision {revision}, the store is at {self.revision}"
                raise InvalidInputError(message)
            kvs = self._select_at(key, is_prefix=is_prefix, revision=revision)
        else:
            kvs = self._select(key, is_prefix=is_prefix)
        kvs = [kv for kv in kvs if kv.key > after_key]
        count = len(kvs)
        if max_create_revision:
            kvs = [kv for kv in kvs if kv.create_revision <= max_create_revision]
        if newest_first:
            kvs.sort(key=lambda kv: kv.create_revision, reverse=True)
        return RangeResult(self.revision, tuple(kvs[:limit] if limit else kvs), count)

    def prefix_state(self, prefix: str) -> PrefixState:
        """Count and youngest revision of the live keys under a prefix."""
        kvs = self._select(prefix, is_prefix=True)
        return PrefixState(self.revision, len(kvs), max((kv.mod_revision for kv in kvs), default=0))

    def _select(self, key: str, *, is_prefix: bool) -> list[KeyValue]:
        if not is_prefix:
            kv = self._live.get(key)
            return [kv] if kv else []
        selected = []
        for index in range(bisect_left(self._keys, key), len(self._keys)):
            if not self._keys[index].startswith(key):
                break
            selected.append(self._live[self._keys[index]])
        return selected

    def _select_at(self, key: str, *, is_prefix: bool, revision: int) -> list[KeyValue]:
        keys = sorted(k for k in self._versions if k.startswith(key)) if is_prefix else [key]
        selected = []
        for found in keys:
            versions = self._versions.get(found, [])
            index = bisect_right(versions, revision, key=lambda version: version.revision)
            kv = versions[index - 1].kv if index else None
            if kv is not None:
                selected.append(kv)
        return selected

    def changes(self, prefix: str, start_revision: int) -> Iterator[WatchBatch]:
        """Every change under `prefix` from `start_revision` on. Raises CompactedError."""
        self._check_not_compacted(start_revision, f"watch of {prefix}")
        if start_revision > self.revision:
            return
        for batch in self._log[bisect_left(self._log, start_revision, key=lambda batch: batch.revision) :]:
            events = tuple(event for event in batch.events if event.kv.key.startswith(prefix))
            if events:
                yield WatchBatch(batch.revision, events)

    def compact(self, revision: int) -> None:
        """Forget history before `revision`; live keys stay. Idempotent."""
        if revision > self.revision:
            message = f"compaction to revision {revision}, the store is at {self.revision}"
            raise InvalidInputError(message)
        if revision <= self.compact_revision:
            return
        self.compact_revision = revision
        del self._log[: bisect_left(self._log, revision, key=lambda batch: batch.revision)]
        for key in list(self._versions):
            self._compact_key(key, revision)

    def _compact_key(self, key: str, revision: int) -> None:
        versions = self._versions[key]
        index = bisect_right(versions, revision, key=lambda version: version.revision)
        first = index if index == 0 or versions[index - 1].kv is None else index - 1
        for version in versions[:first]:
            self.size_bytes -= _version_bytes(key, version)
        del versions[:first]
        if not versions:
            del self._versions[key]

    def _check_not_compacted(self, revision: int, what: str) -> None:
        if revision < self.compact_revision:
            message = f"{what} at revision {revision}: compacted to {self.compact_revision}"
            raise CompactedError(message, compact_revision=self.compact_revision)


def check_txn(txn: Txn) -> None:
    """etcd's limits: operations, size, and no key written twice. Raises InvalidInputError."""
    _check_ops(txn, TXN_OPS_MAX)
    size = txn_bytes(txn)
    if size > REQUEST_BYTES_MAX:
        message = f"transaction of {size} bytes: at most {REQUEST_BYTES_MAX} fit into one request"
        raise InvalidInputError(message)
    _check_written_once(txn.success)
    _check_written_once(txn.failure)


def txn_bytes(txn: Txn) -> int:
    """About the size of a transaction as a request."""
    size = sum(len(condition.key) + 16 for condition in txn.conditions)
    for op in (*txn.success, *txn.failure):
        match op:
            case Put():
                size += len(op.key) + len(op.value) + 24
            case Txn():
                size += txn_bytes(op) + 8
            case Delete() | Get():
                size += 2 * len(op.key) + 16
    return size


def txn_ops(txn: Txn) -> int:
    """The operations of a transaction as etcd counts them, nested transactions included."""
    below = [txn_ops(op) for op in (*txn.success, *txn.failure) if isinstance(op, Txn)]
    return max(len(txn.conditions), len(txn.success), len(txn.failure)) + max(below, default=0)


def _check_ops(txn: Txn, limit: int) -> None:
    ops = txn_ops(txn)
    if ops > limit:
        message = f"transaction of {ops} operations: at most {limit} are allowed"
        raise InvalidInputError(message)


def _check_written_once(ops: Sequence[Op]) -> tuple[frozenset[str], tuple[Delete, ...]]:
    """The keys that these operations may put, and their deletes. Branches of one transaction may overlap.

    Raises InvalidInputError when a key is written twice.
    """
    deletes = [op for op in ops if isinstance(op, Delete)]
    puts: set[str] = set()
    for op in ops:
        if not isinstance(op, Txn):
            continue
        then_puts, then_deletes = _check_written_once(op.success)
        else_puts, else_deletes = _check_written_once(op.failure)
        _refuse_overlap(then_puts | else_puts, puts, deletes)
        puts |= then_puts | else_puts
        deletes += [*then_deletes, *else_deletes]
    for op in ops:
        if isinstance(op, Put):
            _refuse_overlap({op.key}, puts, deletes)
            puts.add(op.key)
    return frozenset(puts), tuple(deletes)


def _refuse_overlap(new: set[str] | frozenset[str], puts: set[str], deletes: Sequence[Delete]) -> None:
    for key in sorted(new):
        hit = any(key.startswith(one.key) if one.is_prefix else key == one.key for one in deletes)
        if hit or key in puts:
            message = f"transaction writes {key} twice"
            raise InvalidInputError(message)


def _puts(path: _Path) -> Iterator[Put]:
    yield from (op for op in path.ops if isinstance(op, Put))
    for nested in path.nested:
        yield from _puts(nested)


def _version_bytes(key: str, version: _Version) -> int:
    return _KEY_OVERHEAD_BYTES + len(key) + (len(version.kv.value) if version.kv else 0)


def _stamped(succeeded: bool, revision: int, results: Sequence[OpResult]) -> TxnResult:  # noqa: FBT001 - of the answer
    """The answer with the store's revision in it and in every nested one."""
    stamped = tuple(
        OpResult(result.kvs, result.deleted, _stamped(result.txn.succeeded, revision, result.txn.results))
        if result.txn
        else result
        for result in results
    )
    return TxnResult(succeeded, revision, stamped)
