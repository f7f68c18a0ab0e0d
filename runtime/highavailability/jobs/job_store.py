"""JobStore: the durable life of jobs, with exactly the keys and transactions of protocol.md 1 and 2.

Two protocols: writes of the leading Dispatcher are conditional on its leader epoch, writes of a job's owner on the
mod_revision of the owner key. The implementation settles unknown outcomes (R2): a method returns when its write is
durable, or raises StaleTokenError or UnavailableError.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.common.checkpoint_settings import CheckpointSettings
from runtime.common.ids import JobId
from runtime.gateways.operations import StreamOperation
from runtime.gateways.overview import Takeover
from runtime.highavailability.records import (
    CheckpointRecord,
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
    """The id is taken, by a stored graph or a cleaned job with this digest; "" when the graph cannot be read.

    `submitter`, `program_run`: those of a stored graph; those of a cleaned job are in its summary.
    """

    digest: str
    is_done: bool
    submitter: str = ""
    program_run: str = ""


@dataclass(frozen=True, slots=True)
class Assigned:
    """The owner key was written; its mod_revision is the new epoch."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Cleaning:
    """A job to be cleaned. `result_revision`: the revision of its result; 0 when it has none any more."""

    job_id: JobId
    done: DoneRecord
    result_revision: int


class LeaderJobStore(Protocol):
    """Transactions of the leading Dispatcher. Each is conditional on its epoch; a lost term = StaleTokenError."""

    async def submit(self, job_id: JobId, graph: GraphRecord, owner: OwnerRecord | None) -> Submitted | AlreadyStored:
        """Graph, and owner when a process is free, in one transaction (before the 202)."""

    async def assign(self, job_id: JobId, owner: OwnerRecord, *, previous_epoch: int) -> Assigned | None:
        """Write the owner if it is still as read (0: absent) and there is no result; else None."""

    async def want(self, job_id: JobId, wanted: WantedRecord) -> bool:
        """Make the wish durable; False when the job has a result already, or does not exist.

        No wish replaces one to cancel: ConflictError.
        """

    async def promise(self, job_id: JobId, client: ClientRecord) -> bool:
        """Make the client's promise durable; False when the job has a result already, or does not exist."""

    async def end_without_owner(self, job_id: JobId, result: ResultRecord, *, previous_epoch: int = 0) -> bool:
        """Write the result of a job without a living owner; False when the owner is not as read (0: absent), or there
        is a result."""

    async def clean(self, jobs: Sequence[Cleaning]) -> Mapping[JobId, int]:
        """Delete `jobs/<id>/` and put `done/<id>`, many in one transaction. Returns the revisions of `done/<id>`.

        Idempotent. A job whose result has changed since it was read is left out.
        """

    async def jobs(self) -> tuple[Sequence[StoredJob], int]:
        """All jobs that are not cleaned, and the revision of the read. `StoredJob.problem` tells unreadable records."""

    async def check_term(self) -> None:
        """Raises StaleTokenError if the term is over, by a read: the leader may not have noticed it yet (R4)."""

    async def job(self, job_id: JobId) -> StoredJob | None:
        """One job."""

    async def events(self, job_id: JobId) -> Sequence[bytes]:
        """All event batches in order."""

    async def results(self, jobs: Sequence[JobId]) -> Mapping[JobId, StoredResult]:
        """Stored results, many in one read. Jobs without a result are left out."""

    async def done(self, job_id: JobId) -> DoneRecord | None:
        """A cleaned job."""

    async def dones(self, jobs: Sequence[JobId]) -> Mapping[JobId, DoneRecord]:
        """Cleaned jobs, many in one read. Other jobs, and unreadable records, are left out."""

    async def done_jobs(self, *, limit: int) -> Sequence[tuple[JobId, DoneRecord]]:
        """Cleaned jobs, newest first."""

    def all_done(self, *, skip_unreadable: bool) -> AsyncIterator[tuple[DoneRecord, int]]:
        """Every cleaned job with its revision, oldest key first, in pages.

        Raises CompactedError when the reading takes too long.
        """

    async def operation(self, job_id: JobId, trigger_id: str) -> StreamOperation | None:
        """One operation, also of a job that has ended; None for an unknown one."""

    async def forget_done(self, jobs: Sequence[tuple[JobId, int]]) -> None:
        """Retention: delete `done/<id>`, of that revision. Idempotent."""


class OwnerJobStore(Protocol):
    """Transactions of a job's owner under epoch E. A higher epoch or a stored result = StaleTokenError."""

    async def spill(self, payload: Payload) -> Payload:
        """Store a large payload out of line: once, before a write that may be repeated. Idempotent."""

    async def append_events(self, job_id: JobId, epoch: int, number: int, events: Payload) -> None:
        """Write `events/<number>`. Durable when it returns; only then may anything act on them (R10)."""

    async def write_checkpoint(
        self, job_id: JobId, epoch: int, number: int, record: CheckpointRecord, subsumed: Sequence[int]
    ) -> None:
        """Write `checkpoints/<number>`, once, and delete those in `subsumed`. Durable when it returns."""

    async def checkpointing(self, job_id: JobId) -> CheckpointSettings | None:
        """What the job's submission has settled; None without it."""

    async def write_operation(
        self, job_id: JobId, epoch: int, operation: StreamOperation, dropped: Sequence[str]
    ) -> None:
        """Write `operations/<id>/<trigger id>` and delete those of `dropped`. Durable when it returns (R61).

        One IN_PROGRESS is written where there is none, one that has ended in the place of it.
        """

    async def operations(self, job_id: JobId) -> Sequence[StreamOperation]:
        """All operations of a job that are kept."""

    async def checkpoints(self, job_id: JobId) -> Sequence[CheckpointRecord]:
        """All completed checkpoints that are kept, oldest first."""

    async def job(self, job_id: JobId) -> StoredJob | None:
        """All records of one job."""

    async def events(self, job_id: JobId) -> Sequence[bytes]:
        """All event batches in order."""

    async def takeovers(self, job_id: JobId) -> tuple[Takeover, ...]:
        """The job's changes of owner, oldest first; () when the record cannot be read."""

    async def write_result(self, job_id: JobId, epoch: int, result: ResultRecord) -> None:
        """The terminal state, once. Durable when it returns (R3)."""
