"""Fences (R14): an owner orders a TaskManager to stop older attempts of its job, and the TaskManager confirms it.

A fence is identified by the revision of the transaction that wrote it. Revisions and epochs count on one scale, so an
owner that was assigned after a fence was written has a higher epoch than the fence's revision. Every write of a fence
names what it replaces (R33).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.common.entropy import Entropy
from runtime.common.errors import StaleTokenError
from runtime.common.ids import Incarnation, JobId, is_hex_id
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import found, gets, present, settle, unchanged
from runtime.highavailability.kv.follower import follow
from runtime.highavailability.kv.key_value_store import Delete, KeyValue, KeyValueStore, Put, Txn
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
from runtime.highavailability.records import FenceRecord, TaskManagerRecord

logger = logging.getLogger(__name__)

_MARGIN = 5.0
_MARGIN_FRACTION = 0.01


def unconfirmed_wait(isolation_timeout: float) -> float:
    """Seconds after a fence's acknowledgement until the owner may go on without its confirmation (R14)."""
    return isolation_timeout * (1 + _MARGIN_FRACTION) + _MARGIN


@dataclass(frozen=True, slots=True)
class Fence:
    """A fence as a TaskManager reads it. `mod_revision` is the key's: a confirmation is conditional on it."""

    epoch: int
    revision: int
    mod_revision: int
    is_readable: bool = True
    is_lifted: bool = False

    @property
    def is_confirmed(self) -> bool:
        """True once the TaskManager has confirmed that it obeys the fence."""
        return self.revision != self.mod_revision


class OwnerFences:
    """The fences that an owner of a job writes under its epoch. Lost ownership = StaleTokenError."""

    def __init__(self, kv: KeyValueStore, keys: Keys, entropy: Entropy, *, timeout: float) -> None:
        self._kv = kv
        self._keys = keys
        self._entropy = entropy
        self._timeout = timeout

    async def fence(self, job_id: JobId, epoch: int, incarnation: Incarnation, last_epoch: int = 0) -> int:
        """Write a fence for the attempts of epochs up to `epoch`. Returns the fence's revision.

        Returns 0 when the TaskManager has no key any more: then none of its tasks runs. A leader passes `epoch` 0 and
        `last_epoch` where no owner is stored.
        """
        task_manager, key = self._keys.task_manager(incarnation), self._keys.fence(incarnation, job_id)
        record = encode_record(FenceRecord(last_epoch or epoch))
        owner = self._keys.owner(job_id)
        before = 0
        while True:
            txn = Txn(
                (unchanged(owner, epoch), present(task_manager), unchanged(key, before)),
                (Put(key, record),),
                gets(owner, task_manager, key),
            )
            settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
            if settled.result.succeeded:
                return settled.result.revision
            owned, alive, there = settled.answers()
            _check_owns(job_id, epoch, owned, f"fence on task manager {incarnation}")
            if alive is None:
                return 0
            if there is not None and there.value == record:
                return there.mod_revision  # our own fence, not confirmed yet
            before = 0 if there is None else there.mod_revision

    async def wait_settled(self, job_id: JobId, incarnation: Incarnation, revision: int) -> bool:
        """Wait until the fence of this revision is confirmed, or its TaskManager's key is deleted: True.

        False when the fence was replaced or lifted: the caller is not the owner any more, or has to write it again.
        """
        task_manager, key = self._keys.task_manager(incarnation), self._keys.fence(incarnation, job_id)
        async for current in follow(self._kv, task_manager, timeout=self._timeout, entropy=self._entropy):
            if task_manager not in current:
                return True
            fence = _fence_of(current[key]) if key in current else None
            if fence is not None and not fence.is_readable:
                continue  # R31: an unreadable fence is neither confirmed nor lifted
            if fence is None or fence.is_lifted or fence.revision > revision:
                return False
            if fence.revision == revision and fence.is_confirmed:
                return True
        raise AssertionError(job_id)

    async def lift(self, job_id: JobId, epoch: int, incarnation: Incarnation) -> None:
        """Lift the fence: the owner uses that TaskManager again. Idempotent."""
        key, owner = self._keys.fence(incarnation, job_id), self._keys.owner(job_id)
        read = await self._kv.range(key, is_prefix=False, timeout=self._timeout)
        there = read.kvs[0] if read.kvs else None
        while there is not None and not (fence := _fence_of(there)).is_lifted:
            record = FenceRecord(0, confirmed_revision=fence.revision, is_lifted=True)
            conditions = (unchanged(owner, epoch), unchanged(key, there.mod_revision))
            txn = Txn(conditions, (Put(key, encode_record(record)),), gets(owner, key))
            settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
            if settled.result.succeeded:
                return
            owned, there = settled.answers()
            _check_owns(job_id, epoch, owned, f"deletion of {key}")

    async def remove_dead(self, job_id: JobId, epoch: int, incarnation: Incarnation) -> None:
        """Delete the keys of a TaskManager whose death the owner has proved (R13). Idempotent."""
        key, owner = self._keys.task_manager(incarnation), self._keys.owner(job_id)
        deletes = (Delete(key), Delete(f"{key}/", is_prefix=True))
        txn = Txn((unchanged(owner, epoch),), deletes, gets(owner))
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if not settled.result.succeeded:
            _check_owns(job_id, epoch, settled.answers()[0], f"deletion of {key}")


@dataclass(frozen=True, slots=True)
class OwnPrefix:
    """The keys under a TaskManager's own one, at `revision`. `lifted`: marks of fences that were lifted.

    `own`: the key with the TaskManager's record.
    """

    is_registered: bool
    fences: Mapping[JobId, Fence]
    revision: int
    lifted: Mapping[JobId, Fence] = field(default_factory=dict)
    own: KeyValue | None = field(default=None, compare=False)


class TaskManagerFences:
    """The fences on one TaskManager, as the TaskManager reads and confirms them."""

    def __init__(
        self, kv: KeyValueStore, keys: Keys, incarnation: Incarnation, entropy: Entropy, *, timeout: float
    ) -> None:
        self._kv = kv
        self._keys = keys
        self._incarnation = incarnation
        self._entropy = entropy
        self._timeout = timeout

    async def read(self) -> OwnPrefix:
        """A linearizable read of everything under the own key."""
        key = self._keys.task_manager(self._incarnation)
        answer = await self._kv.range(key, is_prefix=True, timeout=self._timeout)
        current = {kv.key: kv for kv in answer.kvs}
        prefix = self._keys.fences(self._incarnation)
        fences = {
            JobId(name): _fence_of(kv)
            for path, kv in current.items()
            if path.startswith(prefix) and is_hex_id(name := path.removeprefix(prefix))
        }
        valid = {job_id: fence for job_id, fence in fences.items() if not fence.is_lifted}
        lifted = {job_id: fence for job_id, fence in fences.items() if fence.is_lifted}
        return OwnPrefix(key in current, valid, answer.revision, lifted, current.get(key))

    async def restore(self, record: TaskManagerRecord, damaged: KeyValue) -> None:
        """R31: write the own record again. Only this process writes it, so another value is damage. A deleted key stays
        deleted (R33)."""
        put = Put(damaged.key, encode_record(record))
        txn = Txn((unchanged(damaged.key, damaged.mod_revision),), (put,))
        await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)

    async def wait_changed(self, since_revision: int) -> None:
        """Wait for a change under the own key after that revision. Raises what the store's watch raises."""
        key = self._keys.task_manager(self._incarnation)
        async for batch in self._kv.watch(key, start_revision=since_revision + 1):
            if batch.events:
                return

    async def confirm(self, job_id: JobId, fence: Fence) -> bool:
        """Confirm that this TaskManager obeys the fence. False when the fence has changed since it was read."""
        key = self._keys.fence(self._incarnation, job_id)
        record = FenceRecord(fence.epoch, confirmed_revision=fence.revision)
        txn = Txn((unchanged(key, fence.mod_revision),), (Put(key, encode_record(record)),), gets(key))
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if settled.result.succeeded:
            return True
        # An earlier try of this write may have been executed (R2).
        there = found(settled.result.results[0])
        return there is not None and _fence_of(there).revision == fence.revision

    async def drop(self, job_id: JobId, fence: Fence) -> None:
        """Delete the fence of a finished job. Idempotent; a fence that has changed stays."""
        key = self._keys.fence(self._incarnation, job_id)
        txn = Txn((unchanged(key, fence.mod_revision),), (Delete(key),))
        await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)


def _fence_of(kv: KeyValue) -> Fence:
    """The fence in a key. An unreadable one counts as a fence for every epoch."""
    try:
        record = decode_record(FenceRecord, kv.value, key=kv.key)
    except UnreadableRecordError:
        logger.exception("a fence cannot be read, and is taken to be for every attempt of its job")
        return Fence(kv.mod_revision, kv.mod_revision, kv.mod_revision, is_readable=False)
    return Fence(
        record.epoch, record.confirmed_revision or kv.mod_revision, kv.mod_revision, is_lifted=record.is_lifted
    )


def _check_owns(job_id: JobId, epoch: int, owner: KeyValue | None, what: str) -> None:
    if (0 if owner is None else owner.mod_revision) != epoch:
        message = f"{what}: this process does not own job {job_id} at epoch {epoch} any more"
        raise StaleTokenError(message)
