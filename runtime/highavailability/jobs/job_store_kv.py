"""The job store over any KeyValueStore.

Every transaction carries its conditions and, in its else-branch, reads the keys that settle it. A transaction whose
outcome is unknown is repeated identically until the outcome is known (R2). Repeats are harmless, because no condition
that has failed for good can hold again: a term never returns, a result is written once, the revision of an owner only
rises, and each write is conditional on what it replaces (R33).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from runtime.common.entropy import Entropy
from runtime.common.errors import BugError, ConflictError, StaleTokenError
from runtime.common.ids import JobId
from runtime.gateways.operations import OperationState, StreamOperation
from runtime.highavailability.jobs.job_reader import JobReader
from runtime.highavailability.jobs.job_store import AlreadyStored, Assigned, Cleaning, Submitted
from runtime.highavailability.jobs.payloads import Payloads
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import (
    LeaderTerm,
    Settled,
    absent,
    check_leads,
    found,
    gets,
    leads,
    present,
    settle,
    unchanged,
)
from runtime.highavailability.kv.key_value_store import Compare, Delete, KeyValue, KeyValueStore, Op, Put, Txn
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record, encode_record
from runtime.highavailability.records import (
    CheckpointRecord,
    ClientRecord,
    DoneRecord,
    EventsRecord,
    GraphRecord,
    LastCheckpointRecord,
    OperationRecord,
    OwnerRecord,
    Payload,
    ResultRecord,
    WantedRecord,
)

CLEAN_JOBS_MAX = 100
"""Jobs per transaction: 100 nested transactions of two operations each stay below etcd's limit of 128."""


@dataclass(frozen=True, slots=True)
class JobStoreSettings:
    """`timeout`: deadline of one request to the store, in seconds."""

    timeout: float


class KvLeaderJobStore(JobReader):
    """LeaderJobStore of one term."""

    def __init__(
        self,
        kv: KeyValueStore,
        keys: Keys,
        payloads: Payloads,
        term: LeaderTerm,
        settings: JobStoreSettings,
        entropy: Entropy,
        *,
        check_capacity: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(kv, keys, payloads, timeout=settings.timeout)
        self._check_capacity = check_capacity
        self._term = term
        self._entropy = entropy
        self._noted: dict[str, int] = {}
        """Revisions of the wishes and promises that this term has written: the job's next one replaces them (R33)."""

    async def submit(self, job_id: JobId, graph: GraphRecord, owner: OwnerRecord | None) -> Submitted | AlreadyStored:
        """Graph and owner in one transaction; a graph above 32 KiB is an object first (R20).

        Raises StorageExhaustedError when the store is nearly full (R21).
        """
        if self._check_capacity is not None:
            self._check_capacity()
        record = encode_record(replace(graph, graph=await self._payloads.spill(graph.graph)))
        writes: list[Op] = [Put(self._keys.graph(job_id), record)]
        if owner is not None:
            writes.append(Put(self._keys.owner(job_id), encode_record(owner)))
        settled = await self._settle(
            Txn(
                conditions=(leads(self._term), absent(self._keys.graph(job_id)), absent(self._keys.done(job_id))),
                success=tuple(writes),
                failure=gets(
                    self._term.key, self._keys.graph(job_id), self._keys.owner(job_id), self._keys.done(job_id)
                ),
            )
        )
        if settled.result.succeeded:
            revision = settled.result.revision
            return Submitted(revision, revision if owner is not None else 0)
        return self._refused_submit(job_id, record, settled)

    def _refused_submit(self, job_id: JobId, record: bytes, settled: Settled) -> Submitted | AlreadyStored:
        leader, graph, owner, done = settled.answers()
        if graph is not None:
            if settled.was_repeated and graph.value == record:
                # Our own write, whose answer was lost (R2). An owner of a later revision is a later assignment.
                is_first = owner is not None and owner.mod_revision == graph.mod_revision
                return Submitted(graph.mod_revision, graph.mod_revision if is_first else 0)
            return _stored_as(graph)
        if done is not None:
            return AlreadyStored(decode_record(DoneRecord, done.value, key=done.key).graph_digest, is_done=True)
        check_leads(self._term, leader, f"submit of job {job_id}")
        raise _contradiction(f"submit of job {job_id}")

    async def assign(self, job_id: JobId, owner: OwnerRecord, *, previous_epoch: int) -> Assigned | None:
        """The only write of an owner key after the submit."""
        record = encode_record(owner)
        settled = await self._settle(
            Txn(
                conditions=(
                    leads(self._term),
                    unchanged(self._keys.owner(job_id), previous_epoch),
                    present(self._keys.graph(job_id)),
                    absent(self._keys.result(job_id)),
                ),
                success=(Put(self._keys.owner(job_id), record),),
                failure=gets(self._term.key, self._keys.owner(job_id)),
            )
        )
        if settled.result.succeeded:
            return Assigned(settled.result.revision)
        leader, current = settled.answers()
        if _is_our_write(current, record, settled) and current.mod_revision != previous_epoch:
            return Assigned(current.mod_revision)
        check_leads(self._term, leader, f"assignment of job {job_id}")
        return None

    async def want(self, job_id: JobId, wanted: WantedRecord) -> bool:
        """Idempotent: the last wish counts, but no wish replaces one to cancel."""

        def replaces(there: KeyValue) -> bool:
            try:
                is_cancelled = decode_record(WantedRecord, there.value, key=there.key).wants_cancel
            except UnreadableRecordError:
                return True
            if is_cancelled and not wanted.wants_cancel:
                message = f"job {job_id} is being cancelled"
                raise ConflictError(message)
            return not is_cancelled

        return await self._note(job_id, self._keys.wanted(job_id), encode_record(wanted), "wish", replaces)

    async def promise(self, job_id: JobId, client: ClientRecord) -> bool:
        """Idempotent: the last promise counts."""
        return await self._note(job_id, self._keys.client(job_id), encode_record(client), "promise", lambda _: True)

    async def _note(
        self, job_id: JobId, key: str, record: bytes, what: str, replaces: Callable[[KeyValue], bool]
    ) -> bool:
        """Write a client's wish or promise for a job without a result, in place of the previous one (R33)."""
        before = self._noted.get(key, 0)
        while True:
            settled = await self._settle(
                Txn(
                    conditions=(
                        leads(self._term),
                        present(self._keys.graph(job_id)),
                        absent(self._keys.result(job_id)),
                        unchanged(key, before),
                    ),
                    success=(Put(key, record),),
                    failure=gets(self._term.key, self._keys.graph(job_id), self._keys.result(job_id), key),
                )
            )
            if settled.result.succeeded:
                self._noted[key] = settled.result.revision
                return True
            leader, graph, result, there = settled.answers()
            check_leads(self._term, leader, f"{what} for job {job_id}")
            if graph is None or result is not None:
                self._noted.pop(key, None)
                return False
            before = self._noted[key] = there.mod_revision if there is not None else 0
            if there is not None and (there.value == record or not replaces(there)):
                return True

    async def end_without_owner(self, job_id: JobId, result: ResultRecord, *, previous_epoch: int = 0) -> bool:
        """The graph must be present too, so that a cleaned job never gets a second result."""
        record = encode_record(replace(result, archive=await self._payloads.spill(result.archive)))
        settled = await self._settle(
            Txn(
                conditions=(
                    leads(self._term),
                    unchanged(self._keys.owner(job_id), previous_epoch),
                    absent(self._keys.result(job_id)),
                    present(self._keys.graph(job_id)),
                ),
                success=(Put(self._keys.result(job_id), record),),
                failure=gets(self._term.key, self._keys.result(job_id)),
            )
        )
        if settled.result.succeeded:
            return True
        leader, stored = settled.answers()
        if _is_our_write(stored, record, settled):
            return True
        check_leads(self._term, leader, f"end of job {job_id}")
        return False

    async def clean(self, jobs: Sequence[Cleaning]) -> Mapping[JobId, int]:
        """Many jobs in one transaction, each on the condition of its own result. Idempotent. Raises StaleTokenError."""
        cleaned: dict[JobId, int] = {}
        for start in range(0, len(jobs), CLEAN_JOBS_MAX):
            cleaned |= await self._clean_some(jobs[start : start + CLEAN_JOBS_MAX])
        for job in jobs:
            self._noted.pop(self._keys.wanted(job.job_id), None)
            self._noted.pop(self._keys.client(job.job_id), None)
        return cleaned

    async def _clean_some(self, jobs: Sequence[Cleaning]) -> Mapping[JobId, int]:
        cleanings = tuple(
            Txn(
                conditions=(
                    present(self._keys.result(job.job_id)),
                    unchanged(self._keys.result(job.job_id), job.result_revision),
                    absent(self._keys.done(job.job_id)),
                ),
                success=(
                    Delete(self._keys.job(job.job_id), is_prefix=True),
                    Put(self._keys.done(job.job_id), encode_record(job.done)),
                ),
                failure=gets(self._keys.done(job.job_id)),
            )
            for job in jobs
        )
        settled = await self._settle(
            Txn(conditions=(leads(self._term),), success=cleanings, failure=gets(self._term.key)),
        )
        if not settled.result.succeeded:
            check_leads(self._term, settled.answers()[0], f"cleaning of {len(jobs)} jobs")
            raise _contradiction(f"cleaning of {len(jobs)} jobs")
        cleaned = {}
        for job, answer in zip(jobs, settled.result.results, strict=True):
            assert answer.txn is not None, job
            # Without its result but with a done record the job was cleaned before: by an earlier try, or another call.
            done = None if answer.txn.succeeded else found(answer.txn.results[0])
            if answer.txn.succeeded:
                cleaned[job.job_id] = settled.result.revision
            elif done is not None:
                cleaned[job.job_id] = done.mod_revision
        return cleaned

    async def forget_done(self, jobs: Sequence[tuple[JobId, int]]) -> None:
        """Retention. Idempotent."""
        for start in range(0, len(jobs), CLEAN_JOBS_MAX):
            some = [
                (self._keys.done(job_id), self._keys.operations(job_id), revision)
                for job_id, revision in jobs[start : start + CLEAN_JOBS_MAX]
            ]
            settled = await self._settle(
                Txn(
                    conditions=(leads(self._term),),
                    success=tuple(
                        Txn((unchanged(key, revision),), (Delete(key), Delete(asked, is_prefix=True)))
                        for key, asked, revision in some
                    ),
                    failure=gets(self._term.key),
                )
            )
            if not settled.result.succeeded:
                check_leads(self._term, settled.answers()[0], f"retention of {len(some)} jobs")

    async def check_term(self) -> None:
        """Raises StaleTokenError if the term is over, by a read: the leader may not have noticed it yet (R4)."""
        answer = await self._kv.range(self._term.key, is_prefix=False, timeout=self._timeout)
        check_leads(self._term, answer.kvs[0] if answer.kvs else None, "an answer of its leader")

    async def _settle(self, txn: Txn) -> Settled:
        return await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)


class KvOwnerJobStore(JobReader):
    """OwnerJobStore: one object serves all jobs of a process, the epoch comes with each call."""

    def __init__(
        self, kv: KeyValueStore, keys: Keys, payloads: Payloads, settings: JobStoreSettings, entropy: Entropy
    ) -> None:
        super().__init__(kv, keys, payloads, timeout=settings.timeout)
        self._entropy = entropy

    async def spill(self, payload: Payload) -> Payload:
        """Store a large payload out of line. Idempotent."""
        return await self._payloads.spill(payload)

    async def append_events(self, job_id: JobId, epoch: int, number: int, events: Payload) -> None:
        """Write one batch, once. A repeat that finds the same batch has succeeded.

        Raises StaleTokenError, ConflictError where another batch has its place: the record is damaged (R48).
        """
        record = encode_record(EventsRecord(await self._payloads.spill(events)))
        key = self._keys.event(job_id, number)
        settled = await self._write(job_id, epoch, Put(key, record))
        if settled.result.succeeded:
            return
        owner, result, _, there = settled.answers()
        owns = owner is not None and owner.mod_revision == epoch
        if owns and result is None and there is not None:
            if there.value == record:
                return
            message = (
                f"events {number} of job {job_id} at epoch {epoch} refused: they are written, and say something else: "
                "the store has changed what this owner alone writes"
            )
            raise ConflictError(message)
        raise _stale(f"events {number} of job {job_id}", epoch, owner, result)

    async def write_checkpoint(
        self, job_id: JobId, epoch: int, number: int, record: CheckpointRecord, subsumed: Sequence[int]
    ) -> None:
        """Write one checkpoint, once. A repeat that finds the same record has succeeded.

        Its record is deleted when later ones subsume it, and an absent key tells a late repeat nothing: so the number
        of the latest one is written beside it, in place of the one before (R33).
        """
        key, value = self._keys.checkpoint(job_id, number), encode_record(record)
        latest = self._keys.checkpointed(job_id)
        answer = await self._kv.range(latest, is_prefix=False, timeout=self._timeout)
        before = answer.kvs[0].mod_revision if answer.kvs else 0
        beside: list[Put | Delete] = [Put(latest, encode_record(LastCheckpointRecord(number)))]
        beside += [Delete(self._keys.checkpoint(job_id, old)) for old in subsumed]
        settled = await self._write(job_id, epoch, Put(key, value), beside, unchanged(latest, before))
        if settled.result.succeeded:
            return
        owner, result, _, there = settled.answers()
        if (
            owner is not None
            and owner.mod_revision == epoch
            and result is None
            and _is_our_write(there, value, settled)
        ):
            return
        raise _stale(f"checkpoint {number} of job {job_id}", epoch, owner, result)

    async def write_operation(
        self, job_id: JobId, epoch: int, operation: StreamOperation, dropped: Sequence[str]
    ) -> None:
        """Write an operation. A repeat that finds the same record has succeeded; a late one changes nothing (R33)."""
        assert epoch > 0, f"job {job_id}: epoch {epoch}"
        owner, result = self._keys.owner(job_id), self._keys.result(job_id)
        key, value = self._keys.operation(job_id, operation.trigger_id), encode_record(OperationRecord(operation))
        replaced: tuple[Compare, ...] = (absent(key),)
        if operation.state is not OperationState.IN_PROGRESS:
            answer = await self._kv.range(key, is_prefix=False, timeout=self._timeout)
            replaced = (present(key), unchanged(key, answer.kvs[0].mod_revision if answer.kvs else 0))
        txn = Txn(
            conditions=(unchanged(owner, epoch), absent(result), *replaced),
            success=(Put(key, value), *(Delete(self._keys.operation(job_id, old)) for old in dropped)),
            failure=gets(owner, result, key),
        )
        settled = await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)
        if settled.result.succeeded:
            return
        current, ended, there = settled.answers()
        is_ours = current is not None and current.mod_revision == epoch and ended is None
        if is_ours and there is not None and there.value == value:
            return
        raise _stale(f"operation {operation.trigger_id} of job {job_id}", epoch, current, ended)

    async def write_result(self, job_id: JobId, epoch: int, result: ResultRecord) -> None:
        """Write the result, once. A repeat that finds the same result, or the job cleaned with it, has succeeded."""
        stored = replace(result, archive=await self._payloads.spill(result.archive))
        record = encode_record(stored)
        settled = await self._write(job_id, epoch, Put(self._keys.result(job_id), record))
        if settled.result.succeeded:
            return
        owner, current, done, _ = settled.answers()
        if _is_our_write(current, record, settled) or _is_our_result_cleaned(settled, done, stored):
            return
        raise _stale(f"result of job {job_id}", epoch, owner, current)

    async def _write(
        self, job_id: JobId, epoch: int, put: Put, beside: Sequence[Put | Delete] = (), *conditions: Compare
    ) -> Settled:
        """Write a key once, under the owner's epoch, and do what is to be done with it."""
        assert epoch > 0, f"job {job_id}: epoch {epoch}"
        owner, result = self._keys.owner(job_id), self._keys.result(job_id)
        txn = Txn(
            conditions=(
                unchanged(owner, epoch),
                absent(result),
                *(() if put.key == result else (absent(put.key),)),
                *conditions,
            ),
            success=(put, *beside),
            failure=gets(owner, result, self._keys.done(job_id), put.key),
        )
        return await settle(self._kv, txn, timeout=self._timeout, entropy=self._entropy)


def _stored_as(graph: KeyValue) -> AlreadyStored:
    try:
        record = decode_record(GraphRecord, graph.value, key=graph.key)
    except UnreadableRecordError:
        return AlreadyStored("", is_done=False)
    return AlreadyStored(record.graph.sha256, is_done=False, submitter=record.submitter, program_run=record.program_run)


def _is_our_write(kv: KeyValue | None, record: bytes, settled: Settled) -> TypeGuard[KeyValue]:
    return settled.was_repeated and kv is not None and kv.value == record


def _is_our_result_cleaned(settled: Settled, done: KeyValue | None, result: ResultRecord) -> bool:
    """True when the answer to our write was lost, and the leader has cleaned the job before the repeat."""
    if not settled.was_repeated or done is None:
        return False
    cleaned = decode_record(DoneRecord, done.value, key=done.key)
    return cleaned.status is result.status and cleaned.summary == result.summary


def _stale(what: str, epoch: int, owner: KeyValue | None, result: KeyValue | None) -> StaleTokenError:
    if result is not None:
        return StaleTokenError(f"{what} at epoch {epoch} refused: the job has a result")
    if owner is None:
        return StaleTokenError(f"{what} at epoch {epoch} refused: the job has no owner, or is cleaned")
    return StaleTokenError(f"{what} at epoch {epoch} refused: the owner's epoch is {owner.mod_revision}")


def _contradiction(what: str) -> BugError:
    return BugError(f"{what} was refused, yet every condition holds in what it read")
