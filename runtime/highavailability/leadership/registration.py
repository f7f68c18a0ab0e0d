"""Registrations: JobMaster processes under a lease, TaskManagers without one (R13).

A JobMaster process that has lost its lease (an etcd outage, a freeze) registers again under the same incarnation;
meanwhile `is_valid` is False, and the process takes no peer for lost (R4). A TaskManager deletes its own key after its
user processes are reaped; otherwise the process that has proved its death does. A key whose record cannot be read
counts as a registered process without an address (R31).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from runtime.aio.retry import RetryPolicy
from runtime.aio.scope import Scope
from runtime.aio.watch import Watch
from runtime.common.clock import Clock
from runtime.common.entropy import Entropy
from runtime.common.errors import RetryableError
from runtime.common.ids import Incarnation
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import (
    LeaderTerm,
    Settled,
    absent,
    check_leads,
    gets,
    leads,
    present,
    settle,
    unchanged,
)
from runtime.highavailability.kv.follower import follow, patiently
from runtime.highavailability.kv.key_value_store import Delete, KeyValue, KeyValueStore, LeaseNotFoundError, Put, Txn
from runtime.highavailability.kv.lease import Lease, LeaseLostError, LeaseSettings
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
from runtime.highavailability.records import DRAINING, GuardRecord, JobMasterRecord, TaskManagerRecord

logger = logging.getLogger(__name__)

RecordT = TypeVar("RecordT")

_RETRY = RetryPolicy(delay_initial=0.1, delay_max=2.0)


class JobMasterRegistration:
    """`jobmasters/<incarnation>` of this process, kept alive and up to date by `run`."""

    def __init__(
        self,
        kv: KeyValueStore,
        keys: Keys,
        record: JobMasterRecord,
        settings: LeaseSettings,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._kv = kv
        self._key = keys.job_master(record.incarnation)
        self._record = Watch(record)
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._lease: Lease | None = None
        self._written_at = 0
        self.registered = Watch(False)  # noqa: FBT003 - the first value
        """True while the key is written under a lease that is being renewed."""

    @property
    def is_valid(self) -> bool:
        """True while this process may take peers for lost, by the local deadline of its lease (R4)."""
        return self._lease is not None and self._lease.is_valid and self.registered.value

    def update(self, record: JobMasterRecord) -> None:
        """Change what is registered. Never blocks; only the latest record counts."""
        if record != self._record.value:
            self._record.set(record)

    async def run(self) -> None:
        """Register, renew, register again after a loss, until cancelled: then unregister."""
        failures = 0
        while True:
            try:
                await self._one_lease()
            except RetryableError as error:
                logger.info("registration failed, trying again: %s", error)
                await asyncio.sleep(_RETRY.delay(failures, self._entropy))
                failures += 1
            else:
                failures = 0

    async def _one_lease(self) -> None:
        lease = await Lease.grant(self._kv, self._clock, self._settings)
        self._lease = lease
        try:
            async with Scope("registration") as scope:
                scope.spawn_eternal("lease", lease.keep_alive())
                await self._keep_record(lease)
        except* LeaseLostError as errors:
            logger.info("registration lapsed: %s", errors.exceptions[0])
        finally:
            self.registered.set(False)
            await lease.revoke()

    async def _keep_record(self, lease: Lease) -> None:
        while True:
            generation = self._record.generation
            try:
                await self._write(encode_record(self._record.value), lease)
            except LeaseNotFoundError as error:
                message = f"lease {lease.id:x} has ended"
                raise LeaseLostError(message) from error
            if not self.registered.value:
                self.registered.set(True)
            await self._record.wait_changed(generation)

    async def _write(self, record: bytes, lease: Lease) -> None:
        """Replace the last registration, which may be under an earlier lease (R33)."""
        while True:
            put = Put(self._key, record, lease.id)
            txn = Txn((unchanged(self._key, self._written_at),), (put,), gets(self._key))
            settled = await patiently(partial(self._settle, txn), self._entropy)
            if settled.result.succeeded:
                self._written_at = settled.result.revision
                return
            (there,) = settled.answers()
            self._written_at = 0 if there is None else there.mod_revision
            if there is not None and there.value == record and there.lease == lease.id:
                return

    async def _settle(self, txn: Txn) -> Settled:
        return await settle(self._kv, txn, timeout=self._settings.timeout, entropy=self._entropy)


class TaskManagerRegistry:
    """`taskmanagers/<incarnation>`: written and deleted explicitly."""

    def __init__(self, kv: KeyValueStore, keys: Keys, entropy: Entropy, *, timeout: float) -> None:
        self._kv = kv
        self._keys = keys
        self._entropy = entropy
        self._timeout = timeout

    async def register(self, record: TaskManagerRecord) -> int:
        """Write the key, before the first slot report. Returns its revision. Idempotent: a key is not replaced."""
        key = self._keys.task_manager(record.incarnation)
        txn = Txn((absent(key),), (Put(key, encode_record(record)),), gets(key))
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if settled.result.succeeded:
            return settled.result.revision
        (there,) = settled.answers()
        assert there is not None, key
        return there.mod_revision

    async def unregister(self, incarnation: Incarnation) -> None:
        """Called by the TaskManager, after its user processes are reaped. Idempotent."""
        txn = Txn((), self._deletes(incarnation))
        await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)

    async def remove_dead(self, term: LeaderTerm, incarnation: Incarnation) -> None:
        """Called by the leader, after the death is proved (R13). Raises StaleTokenError."""
        await self._as_leader(term, Txn((), self._deletes(incarnation)), f"removal of task manager {incarnation}")

    async def note_guard(self, term: LeaderTerm, incarnation: Incarnation, *, is_reached: bool) -> None:
        """Called by the leader before it uses the TaskManager. `is_reached`: its guard has answered (R13).

        Does nothing for a TaskManager without a key. A guard that was reached once stays so. Raises StaleTokenError.
        """
        guard = self._keys.guard(incarnation)
        conditions = (present(self._keys.task_manager(incarnation)), *(() if is_reached else (absent(guard),)))
        put = Put(guard, encode_record(GuardRecord(is_reached)))
        await self._as_leader(term, Txn(conditions, (put,)), f"guard of task manager {incarnation}")

    async def remove_unused(self, term: LeaderTerm, incarnation: Incarnation) -> None:
        """Called by a leader for a lost TaskManager that no leader has ever used.

        Does nothing when a leader has used it. If the TaskManager lives, it finds its key deleted, and starts again.
        Raises StaleTokenError.
        """
        txn = Txn((absent(self._keys.guard(incarnation)),), self._deletes(incarnation))
        await self._as_leader(term, txn, f"removal of unused task manager {incarnation}")

    async def _as_leader(self, term: LeaderTerm, txn: Txn, what: str) -> None:
        """Run `txn` on the condition that the term goes on. Conditions of its own need not hold."""
        as_leader = Txn((leads(term), *txn.conditions), txn.success, gets(term.key))
        settled = await settle(self._kv, as_leader, timeout=self._timeout, entropy=self._entropy)
        if not settled.result.succeeded:
            check_leads(term, settled.answers()[0], what)

    async def task_managers(self) -> Mapping[Incarnation, TaskManagerRecord]:
        """All registered TaskManagers: a census asks them."""
        answer = await self._kv.range(self._keys.task_managers, is_prefix=True, timeout=self._timeout)
        return _task_managers(self._keys, {kv.key: kv for kv in answer.kvs})

    def _deletes(self, incarnation: Incarnation) -> tuple[Delete, Delete]:
        key = self._keys.task_manager(incarnation)
        return Delete(key), Delete(f"{key}/", is_prefix=True)


async def follow_job_masters(
    kv: KeyValueStore, keys: Keys, *, timeout: float, entropy: Entropy
) -> AsyncIterator[Mapping[Incarnation, JobMasterRecord]]:
    """All registered JobMaster processes, now and after each change."""
    async for current in follow(kv, keys.job_masters, timeout=timeout, entropy=entropy):
        yield _decoded(JobMasterRecord, keys.job_masters, current, _unreadable_job_master)


async def follow_task_managers(
    kv: KeyValueStore, keys: Keys, *, timeout: float, entropy: Entropy
) -> AsyncIterator[Mapping[Incarnation, TaskManagerRecord]]:
    """All registered TaskManagers, now and after each change."""
    async for current in follow(kv, keys.task_managers, timeout=timeout, entropy=entropy):
        yield _task_managers(keys, current)


@dataclass(frozen=True, slots=True)
class GuardedTaskManager:
    """A registration, and whether a leader has reached its guard; None: no leader has used the TaskManager."""

    record: TaskManagerRecord
    guard: GuardRecord | None


async def follow_guards(
    kv: KeyValueStore, keys: Keys, *, timeout: float, entropy: Entropy
) -> AsyncIterator[Mapping[Incarnation, GuardedTaskManager]]:
    """All registered TaskManagers with the state of their guards, now and after each change."""
    async for current in follow(kv, keys.task_managers, timeout=timeout, entropy=entropy):
        records = _task_managers(keys, current)
        yield {
            incarnation: GuardedTaskManager(record, _guard_of(current.get(keys.guard(incarnation))))
            for incarnation, record in records.items()
        }


def _guard_of(kv: KeyValue | None) -> GuardRecord | None:
    """The record. An unreadable one counts as not reached: a refused connection to that guard proves nothing."""
    if kv is None:
        return None
    try:
        return decode_record(GuardRecord, kv.value, key=kv.key)
    except UnreadableRecordError:
        logger.exception("the record of a guard cannot be read")
        return GuardRecord(is_reached=False)


async def revoke_lease_of(kv: KeyValueStore, key: str, *, timeout: float) -> bool:
    """R8: end the lease of the process that wrote `key` (a JobMaster's or a candidate's); False if there is no key."""
    answer = await kv.range(key, is_prefix=False, timeout=timeout)
    if not answer.kvs or not answer.kvs[0].lease:
        return False
    await kv.revoke_lease(answer.kvs[0].lease, timeout=timeout)
    return True


def _task_managers(keys: Keys, current: Mapping[str, KeyValue]) -> dict[Incarnation, TaskManagerRecord]:
    return _decoded(TaskManagerRecord, keys.task_managers, current, _unreadable_task_manager)


def _decoded(
    record_type: type[RecordT],
    prefix: str,
    current: Mapping[str, KeyValue],
    unreadable: Callable[[Incarnation], RecordT],
) -> dict[Incarnation, RecordT]:
    records = {}
    for key, kv in current.items():
        name = key.removeprefix(prefix)
        # What lies below a name (fences) is no registration.
        if "/" in name:
            continue
        incarnation = Incarnation(name)
        try:
            records[incarnation] = decode_record(record_type, kv.value, key=key)
        except UnreadableRecordError:
            logger.exception("registration cannot be read: its process counts as registered, and cannot be reached")
            records[incarnation] = unreadable(incarnation)  # R31
    return records


def _unreadable_task_manager(incarnation: Incarnation) -> TaskManagerRecord:
    """Registered (R31), without an address that could prove its death, and without slots."""
    return TaskManagerRecord(
        incarnation, f"unreadable-{incarnation[:8]}", address="", guard_address="", boot_id="", slots=0
    )


def _unreadable_job_master(incarnation: Incarnation) -> JobMasterRecord:
    """Registered (R31): it keeps its jobs, and gets no others."""
    return JobMasterRecord(incarnation, address="", capacity=0, jobs=0, state=DRAINING, version="")
