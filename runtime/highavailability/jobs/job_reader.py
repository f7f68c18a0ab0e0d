"""JobReader: all records of one job, or of all jobs, at one revision. A bad record spoils only its own job."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.ids import JobId
from runtime.common.namespaces import UNKNOWN_NAMESPACE
from runtime.gateways.operations import StreamOperation
from runtime.gateways.overview import Takeover
from runtime.highavailability.jobs.payloads import Payloads
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import CompactedError, Get, KeyValue, KeyValueStore, Txn
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record
from runtime.highavailability.records import (
    CheckpointRecord,
    ClientRecord,
    DoneRecord,
    EventsRecord,
    GraphRecord,
    JobRecordKind,
    OperationRecord,
    OwnerRecord,
    Payload,
    ResultRecord,
    StoredJob,
    StoredResult,
    WantedRecord,
)

RecordT = TypeVar("RecordT")

logger = logging.getLogger(__name__)

PAGE_KEYS = 500

RECORDS_PER_READ = 100
"""Below etcd's limit of 128 operations."""

EMPTY_GRAPH = GraphRecord(Payload("", b"", ""), "", 0, "", namespace=UNKNOWN_NAMESPACE)
"""Stands for a graph that is missing or cannot be read."""


class JobReader:
    """Linearizable reads of jobs; needs no term."""

    def __init__(self, kv: KeyValueStore, keys: Keys, payloads: Payloads, *, timeout: float) -> None:
        self._kv = kv
        self._keys = keys
        self._payloads = payloads
        self._timeout = timeout

    async def jobs(self) -> tuple[Sequence[StoredJob], int]:
        """All jobs that are not cleaned, and the revision of the read: a watch begins at the next one."""
        while True:
            try:
                found, revision = await self._read_all(self._keys.jobs)
            except CompactedError:
                # The pages took longer than the history is kept: start again.
                continue
            return self._assemble(found), revision

    async def job(self, job_id: JobId) -> StoredJob | None:
        """One job; None when none of its keys exists."""
        prefix = self._keys.job(job_id)
        answer = await self._kv.range(prefix, is_prefix=True, timeout=self._timeout)
        jobs = self._assemble(answer.kvs)
        return jobs[0] if jobs else None

    async def results(self, jobs: Sequence[JobId]) -> Mapping[JobId, StoredResult]:
        """Stored results, many in one read. Jobs without a result are left out."""
        found = await self._read_many(jobs, self._keys.result)
        return {job_id: StoredResult(_decoded(kv, ResultRecord), kv.mod_revision) for job_id, kv in found.items()}

    async def done(self, job_id: JobId) -> DoneRecord | None:
        """A cleaned job. Raises UnreadableRecordError."""
        key = self._keys.done(job_id)
        answer = await self._kv.range(key, is_prefix=False, timeout=self._timeout)
        return decode_record(DoneRecord, answer.kvs[0].value, key=key) if answer.kvs else None

    async def dones(self, jobs: Sequence[JobId]) -> Mapping[JobId, DoneRecord]:
        """Cleaned jobs, many in one read. Other jobs, and unreadable records, are left out."""
        found = await self._read_many(jobs, self._keys.done)
        records = {job_id: _decoded(kv, DoneRecord) for job_id, kv in found.items()}
        return {job_id: record for job_id, record in records.items() if record is not None}

    async def done_jobs(self, *, limit: int) -> Sequence[tuple[JobId, DoneRecord]]:
        """Cleaned jobs, newest first. Unreadable records are left out."""
        answer = await self._kv.range(
            self._keys.all_done, is_prefix=True, timeout=self._timeout, limit=limit, newest_first=True
        )
        jobs = []
        for kv in answer.kvs:
            try:
                record = decode_record(DoneRecord, kv.value, key=kv.key)
            except UnreadableRecordError:
                continue
            jobs.append((JobId(kv.key.removeprefix(self._keys.all_done)), record))
        return jobs

    async def all_done(self, *, skip_unreadable: bool) -> AsyncIterator[tuple[DoneRecord, int]]:
        """Every cleaned job with its revision, in pages at one revision.

        Raises UnreadableRecordError unless skipped, CompactedError.
        """
        async for page, _ in self._pages(self._keys.all_done):
            for kv in page:
                try:
                    record = decode_record(DoneRecord, kv.value, key=kv.key)
                except UnreadableRecordError as error:
                    if not skip_unreadable:
                        raise
                    logger.warning("a cleaned job is left out: %s", error)
                else:
                    yield record, kv.mod_revision

    async def event_payloads(self, job_id: JobId) -> Sequence[Payload]:
        """The payloads of the event batches, in order. Raises UnreadableRecordError."""
        answer = await self._kv.range(self._keys.events(job_id), is_prefix=True, timeout=self._timeout)
        return [decode_record(EventsRecord, kv.value, key=kv.key).events for kv in answer.kvs]

    async def events(self, job_id: JobId) -> Sequence[bytes]:
        """All event batches in order. Raises UnreadableRecordError, NotFoundError, PayloadCorruptError."""
        return [await self._payloads.load(payload) for payload in await self.event_payloads(job_id)]

    async def checkpoints(self, job_id: JobId) -> Sequence[CheckpointRecord]:
        """All completed checkpoints that are kept, oldest first. Raises UnreadableRecordError."""
        found, _ = await self._read_all(self._keys.checkpoints(job_id))
        return [decode_record(CheckpointRecord, kv.value, key=kv.key) for kv in found]

    async def checkpointing(self, job_id: JobId) -> CheckpointSettings | None:
        """What the job's submission has settled; None without it. Raises UnreadableRecordError."""
        key = self._keys.graph(job_id)
        answer = await self._kv.range(key, is_prefix=False, timeout=self._timeout)
        return decode_record(GraphRecord, answer.kvs[0].value, key=key).checkpointing if answer.kvs else None

    async def operations(self, job_id: JobId) -> Sequence[StreamOperation]:
        """All operations of a job that are kept. Raises UnreadableRecordError."""
        found, _ = await self._read_all(self._keys.operations(job_id))
        return [decode_record(OperationRecord, kv.value, key=kv.key).operation for kv in found]

    async def operation(self, job_id: JobId, trigger_id: str) -> StreamOperation | None:
        """One operation, also of a job that has ended; None for an unknown one. Raises UnreadableRecordError."""
        key = self._keys.operation(job_id, trigger_id)
        answer = await self._kv.range(key, is_prefix=False, timeout=self._timeout)
        return decode_record(OperationRecord, answer.kvs[0].value, key=key).operation if answer.kvs else None

    async def takeovers(self, job_id: JobId) -> tuple[Takeover, ...]:
        """The job's changes of owner, oldest first; () when the record cannot be read."""
        key = self._keys.owner(job_id)
        answer = await self._kv.range(key, is_prefix=False, timeout=self._timeout)
        owner = _decoded(answer.kvs[0], OwnerRecord) if answer.kvs else None
        return () if owner is None else owner.takeovers

    async def load(self, payload: Payload) -> bytes:
        """The bytes of a graph or an archive. Raises NotFoundError, PayloadCorruptError."""
        return await self._payloads.load(payload)

    async def _read_many(self, jobs: Sequence[JobId], key_of: Callable[[JobId], str]) -> Mapping[JobId, KeyValue]:
        there: dict[JobId, KeyValue] = {}
        for start in range(0, len(jobs), RECORDS_PER_READ):
            batch = jobs[start : start + RECORDS_PER_READ]
            reads = Txn((), tuple(Get(key_of(job_id)) for job_id in batch))
            answer = await self._kv.txn(reads, timeout=self._timeout)
            there |= {job_id: found.kvs[0] for job_id, found in zip(batch, answer.results, strict=True) if found.kvs}
        return there

    async def _read_all(self, prefix: str) -> tuple[list[KeyValue], int]:
        found: list[KeyValue] = []
        revision = 0
        async for page in self._pages(prefix):
            revision = revision or page[1]
            found += page[0]
        return found, revision

    async def _pages(self, prefix: str) -> AsyncIterator[tuple[Sequence[KeyValue], int]]:
        after_key, revision = "", 0
        while True:
            page = await self._kv.range(
                prefix, is_prefix=True, timeout=self._timeout, limit=PAGE_KEYS, after_key=after_key, revision=revision
            )
            # All pages are read at the revision of the first one, so no job is torn between two.
            revision = revision or page.revision
            yield page.kvs, revision
            if len(page.kvs) < PAGE_KEYS:
                return
            after_key = page.kvs[-1].key

    def _assemble(self, kvs: Sequence[KeyValue]) -> list[StoredJob]:
        named = [(split, kv) for kv in kvs if (split := self._keys.split_job_key(kv.key)) is not None]
        return [
            _stored_job(job_id, {rest: kv for (_, rest), kv in group})
            for job_id, group in groupby(named, key=lambda item: item[0][0])
        ]


class _Records:
    """Decodes the records of one job, and keeps the problem of the first unreadable one."""

    def __init__(self, kvs: dict[str, KeyValue]) -> None:
        self._kvs = kvs
        self.problem = ""
        self.unreadable: JobRecordKind | None = None

    def get(self, kind: JobRecordKind, record_type: type[RecordT]) -> RecordT | None:
        kv = self._kvs.get(kind.value)
        if kv is None:
            return None
        try:
            return decode_record(record_type, kv.value, key=kv.key)
        except UnreadableRecordError as error:
            if self.unreadable is None:
                self.problem, self.unreadable = str(error), kind
            return None


def _decoded(kv: KeyValue, record_type: type[RecordT]) -> RecordT | None:
    try:
        return decode_record(record_type, kv.value, key=kv.key)
    except UnreadableRecordError:
        return None


def _stored_job(job_id: JobId, kvs: dict[str, KeyValue]) -> StoredJob:
    records = _Records(kvs)
    graph = records.get(JobRecordKind.GRAPH, GraphRecord)
    owner = records.get(JobRecordKind.OWNER, OwnerRecord)
    wanted = records.get(JobRecordKind.WANTED, WantedRecord)
    client = records.get(JobRecordKind.CLIENT, ClientRecord)
    result = records.get(JobRecordKind.RESULT, ResultRecord)
    problem = records.problem
    if "graph" not in kvs:
        problem = problem or f"job {job_id} is stored without a graph"
    return StoredJob(
        job_id=job_id,
        graph=graph or EMPTY_GRAPH,
        graph_revision=kvs["graph"].mod_revision if "graph" in kvs else 0,
        owner=owner,
        epoch=kvs["owner"].mod_revision if "owner" in kvs else 0,
        wanted=wanted,
        client=client,
        events=sum(1 for name in kvs if name.startswith("events/")),
        result=result,
        problem=problem,
        unreadable=records.unreadable,
    )
