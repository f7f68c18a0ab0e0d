"""JobStore: the durable life of jobs, with exactly the keys and transactions of protocol.md 1 and 2.

Written once above KeyValueStore. Two faces: what the leader's Dispatcher may do (guarded by its leader epoch) and
what a job's owner may do (guarded by the owner key's mod_revision). Unknown outcomes are settled inside (R2):
a method returns what is durable or raises StaleTokenError / UnavailableError, never "perhaps".
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.common.ids import JobId
from runtime.gateways.overview import Takeover
from runtime.highavailability.records import (
    ClientRecord,
    DoneRecord,
    GraphRecord,
    OwnerRecord,
    Payload,
    ResultRecord,
    StoredJob,
    StoredResult,
    WantedRecord,
)


@dataclass(frozen=True, slots=True)
class Submitted:
    """The submit transaction succeeded at `revision`; epoch = revision when an owner was written, else 0."""

    revision: int
    epoch: int


@dataclass(frozen=True, slots=True)
class AlreadyStored:
    """The id is taken: by a stored graph or a cleaned job, with this digest; "" when the graph cannot be read.

    `submitter`: whose graph it is; a cleaned job's is in its summary.
    """

    digest: str
    is_done: bool
    submitter: str = ""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The owner key was written; its mod_revision is the new epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Cleaning:
    """A job to be cleaned. `result_revision`: where its result was written; 0 when it has none any more."""

    job_id: JobId
    done: DoneRecord
    result_revision: int


class LeaderJobStore(Protocol):
    """Transactions of the leading Dispatcher. Every one is guarded by its epoch; lost term = StaleTokenError."""

    async def submit(self, job_id: JobId, graph: GraphRecord, owner: OwnerRecord | None) -> Submitted | AlreadyStored:
        """Graph, and owner when a process is free, in one transaction (before the 202)."""

    async def assign(self, job_id: JobId, owner: OwnerRecord, *, previous_epoch: int) -> Assigned | None:
        """Write the owner if it is still as read (0: absent) and there is no result; None when it is not."""

    async def want(self, job_id: JobId, wanted: WantedRecord) -> bool:
        """Make the wish durable; False when the job has a result (or is gone) already.

        Nothing replaces a wish to cancel: ConflictError.
        """

    async def promise(self, job_id: JobId, client: ClientRecord) -> bool:
        """Make durable when the job's client will be back; False when the job has a result (or is gone) already."""

    async def end_without_owner(self, job_id: JobId, result: ResultRecord, *, previous_epoch: int = 0) -> bool:
        """The end of a job that nobody runs; False when the owner is not as read (0: absent) or there is a result."""

    async def clean(self, jobs: Sequence[Cleaning]) -> Mapping[JobId, int]:
        """Delete `jobs/<id>/` and put `done/<id>`, many in one transaction. Where each was put.

        Idempotent. A job whose result is not (or no more) the one that was read is left out.
        """

    async def jobs(self) -> tuple[Sequence[StoredJob], int]:
        """All jobs that are not cleaned, and the revision of the read. Unreadable records are reported, not raised."""

    async def check_term(self) -> None:
        """Raises StaleTokenError if the term is over, by a read: also when the leader has not heard of it yet (R4)."""

    async def job(self, job_id: JobId) -> StoredJob | None:
        """One job."""

    async def events(self, job_id: JobId) -> Sequence[bytes]:
        """All event batches in order, as its owners have written them."""

    async def results(self, jobs: Sequence[JobId]) -> Mapping[JobId, StoredResult]:
        """Stored results, many in one read. Jobs without one are left out."""

    async def done(self, job_id: JobId) -> DoneRecord | None:
        """A cleaned job."""

    async def dones(self, jobs: Sequence[JobId]) -> Mapping[JobId, DoneRecord]:
        """Cleaned jobs, many in one read. Those that are none, or cannot be read, are left out."""

    async def done_jobs(self, *, limit: int) -> Sequence[tuple[JobId, DoneRecord]]:
        """Cleaned jobs, newest first."""

    def all_done(self, *, skip_unreadable: bool) -> AsyncIterator[tuple[DoneRecord, int]]:
        """Every cleaned job with its revision, oldest key first, in pages.

        CompactedError when that took too long: begin again.
        """

    async def forget_done(self, jobs: Sequence[tuple[JobId, int]]) -> None:
        """Retention: delete `done/<id>`, of that revision. Idempotent."""


class OwnerJobStore(Protocol):
    """Transactions of a job's owner under epoch E. A higher epoch or a stored result = StaleTokenError."""

    async def spill(self, payload: Payload) -> Payload:
        """The same payload, stored out of line if it is large: once, before a write that may be tried many times."""

    async def append_events(self, job_id: JobId, epoch: int, number: int, events: Payload) -> None:
        """Write `events/<number>`. Durable when it returns; only then may anything act on them (R10)."""

    async def job(self, job_id: JobId) -> StoredJob | None:
        """Everything that is stored of one job."""

    async def events(self, job_id: JobId) -> Sequence[bytes]:
        """All event batches in order."""

    async def takeovers(self, job_id: JobId) -> tuple[Takeover, ...]:
        """How the job came to its owner, oldest first; () when that cannot be read."""

    async def write_result(self, job_id: JobId, epoch: int, result: ResultRecord) -> None:
        """The terminal state, once. Durable when it returns (R3)."""
