"""Judges of what clients get of their jobs in the end: how they ended, and what they returned."""

from __future__ import annotations

from collections.abc import Iterator

from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.highavailability.jobs.references import object_keys_in
from runtime.highavailability.keys import Keys
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import ResultRecord
from tests.kit.simulation.checker import CheckerBase, Reader
from tests.kit.simulation.history import (
    Acknowledged,
    Applied,
    Cancelling,
    Damaged,
    Record,
    Restoring,
    Returned,
    SavepointTaken,
    Shown,
    Submitting,
    SubmitUnreadable,
    place_of,
    whose,
)


class Damages:
    """The jobs of which something stored was lost or spoiled."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._objects: dict[str, set[JobId]] = {}
        self._lost: set[str] = set()
        self._jobs: set[JobId] = set()

    def __contains__(self, job_id: JobId) -> bool:
        return job_id in self._jobs

    def note(self, record: Record) -> None:
        """Pointers to objects, and what fate has done to the one or the other."""
        if isinstance(record.what, Applied):
            for event in record.what.events:
                job_id = self._job_of(event.kv.key)
                if job_id is not None:
                    for key in object_keys_in(event.kv.value):
                        self._objects.setdefault(key, set()).add(job_id)
                        if key in self._lost:
                            self._jobs.add(job_id)
        elif isinstance(record.what, Damaged):
            key = record.what.key
            self._lost.add(key)
            job_id = self._job_of(key)
            self._jobs |= {job_id} if job_id is not None else self._objects.get(key, set())

    def _job_of(self, key: str) -> JobId | None:
        if key.startswith(self._keys.all_done):
            return JobId(key.removeprefix(self._keys.all_done))
        split = self._keys.split_job_key(key)
        return None if split is None else split[0]


class JobsEndAsExpected(CheckerBase):
    """Promise 1: what was acknowledged ends, as its code does, or cancelled if somebody wanted that.

    A job of which something stored was lost or spoiled may fail (R20), and so may one that starts from a savepoint that
    is not there any more: whether that may be is for R62.
    """

    rule = "promise 1"

    sees: tuple[type, ...] = (Applied, Cancelling, Submitting, Acknowledged, Damaged, Restoring, SavepointTaken)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._expected: dict[JobId, JobStatus] = {}
        self._acknowledged: set[JobId] = set()
        self._wanted: set[JobId] = set()
        self._results: dict[JobId, JobStatus] = {}
        self._damaged = Damages(reader.keys)
        self._from: dict[JobId, str] = {}
        self._taken: set[str] = set()

    def see(self, record: Record) -> Iterator[str]:
        """What is expected, and what comes."""
        self._damaged.note(record)
        for job_id, name, event in self.job_writes(record):
            if name == "result" and not event.is_delete:
                status = decode_record(ResultRecord, event.kv.value, key=event.kv.key).status
                self._results[job_id] = status
                yield from self._judge(job_id, status)
        if isinstance(record.what, Cancelling):
            self._wanted.add(record.what.job_id)
        elif isinstance(record.what, Submitting):
            self._expected[record.what.job_id] = record.what.expected
        elif isinstance(record.what, Acknowledged) and record.what.what == "submit":
            self._acknowledged.add(record.what.job_id)
        elif isinstance(record.what, Restoring):
            self._from[record.what.job_id] = record.what.directory
        elif isinstance(record.what, SavepointTaken):
            self._taken.add(record.what.directory)

    def _judge(self, job_id: JobId, status: JobStatus) -> Iterator[str]:
        allowed = {self._expected.get(job_id)}
        if job_id in self._wanted:
            allowed = {*allowed, JobStatus.CANCELED}
        if job_id in self._damaged or self._from.get(job_id) in self._taken:
            allowed = {*allowed, JobStatus.FAILED}
        if status not in allowed:
            yield f"job {job_id} ends as {status.name}"

    def finish(self) -> Iterator[str]:
        """Who has not ended."""
        for job_id in sorted(self._acknowledged - self._results.keys()):
            yield f"job {job_id} was acknowledged and has not ended"


class JobsKeepTheirSubmitters(CheckerBase):
    """R48: whose a job is, is what was acknowledged, whoever has led, owned it, or kept its end. So is its queue (R64).

    One of which something stored was lost or spoiled may be nobody's, and no other one cannot be read.
    """

    rule = "R48"

    sees: tuple[type, ...] = (Applied, Shown, Damaged, SubmitUnreadable)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._damaged = Damages(reader.keys)

    def see(self, record: Record) -> Iterator[str]:
        """What a client is shown, or told."""
        self._damaged.note(record)
        if isinstance(record.what, SubmitUnreadable) and record.what.job_id not in self._damaged:
            yield f"job {record.what.job_id} cannot be read, and nothing of it was lost or spoiled"
        if isinstance(record.what, Shown) and record.what.whose is not None:
            job_id, shown = record.what.job_id, record.what.whose
            if shown != whose(job_id) and job_id not in self._damaged:
                yield f"job {job_id} is shown as one of {shown}, and is one of {whose(job_id)}"
            place = record.what.place
            if place is not None and place != place_of(job_id) and job_id not in self._damaged:
                yield f"job {job_id} is shown at {place}, and is at {place_of(job_id)}"


class ValuesAreRight(CheckerBase):
    """What a finished job has returned is what its code computes, whoever has owned it and whatever ran again.

    Of a job whose archive was lost nothing is returned, and nothing wrong either.
    """

    rule = "result values"

    sees: tuple[type, ...] = (Applied, Damaged, Submitting, Returned)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._expected: dict[JobId, object] = {}
        self._damaged = Damages(reader.keys)

    def see(self, record: Record) -> Iterator[str]:
        """What is expected, and what its client has got."""
        self._damaged.note(record)
        if isinstance(record.what, Submitting):
            self._expected[record.what.job_id] = record.what.value
        elif isinstance(record.what, Returned):
            job_id, value = record.what.job_id, record.what.value
            is_lost = value is None and job_id in self._damaged
            if value != self._expected[job_id] and not is_lost:
                yield f"job {job_id} has returned {value}, and computes {self._expected[job_id]}"
