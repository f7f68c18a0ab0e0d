"""What a judge of a history is, and how it reads one: transactions, job records, events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.gateways.job_master import DeployTasks
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Compare, Txn, TxnResult, WatchEvent
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import EventsRecord
from runtime.scheduler.core.job_events import JobEvent, JobRescaled, SubtasksReset, decode_events
from tests.kit.simulation.history import Applied, Record


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that the history breaks, at a record of it (None: at its end)."""

    rule: str
    what: str
    at: float


class Checker(Protocol):
    """One rule, or a few that need the same knowledge."""

    rule: str

    def see(self, record: Record) -> Iterator[str]:
        """What is wrong with this record, after all that came before."""

    def finish(self) -> Iterator[str]:
        """What is wrong at the end."""


def executed(txn: Txn, result: TxnResult) -> Iterator[tuple[Txn, bool]]:
    """The transaction and the nested ones of the branch that was taken, with whether their conditions held."""
    yield txn, result.succeeded
    ops = txn.success if result.succeeded else txn.failure
    for op, answer in zip(ops, result.results, strict=True):
        if isinstance(op, Txn) and answer.txn is not None:
            yield from executed(op, answer.txn)


def conditions_that_held(applied: Applied) -> Iterator[Compare]:
    """Those of every part that took effect."""
    for txn, succeeded in executed(applied.txn, applied.result):
        if succeeded:
            yield from txn.conditions


class Reader:
    """What the judges of one history read together: each record is taken apart once."""

    def __init__(self, keys: Keys, isolation_seconds: int) -> None:
        self.keys = keys
        self.isolation_seconds = isolation_seconds
        self._applied: Applied | None = None
        self._writes: tuple[tuple[JobId, str, WatchEvent], ...] = ()

    def job_writes(self, applied: Applied) -> tuple[tuple[JobId, str, WatchEvent], ...]:
        """What a transaction has changed under `jobs/`."""
        if applied is not self._applied:
            self._applied = applied
            split = [(self.keys.split_job_key(event.kv.key), event) for event in applied.events]
            self._writes = tuple((*found, event) for found, event in split if found is not None)
        return self._writes


class CheckerBase:
    """What checkers share. `sees`: the kinds of records that it is shown; `hears`: the messages that were sent."""

    sees: tuple[type, ...] = (Applied,)
    hears: tuple[type, ...] = ()

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.keys = reader.keys
        self._logged: dict[str, bytes] = {}

    def see(self, record: Record) -> Iterator[str]:
        """What is wrong with this record, after all that came before."""
        yield from ()

    def finish(self) -> Iterator[str]:
        """What is wrong at the end."""
        yield from ()

    def job_writes(self, record: Record) -> tuple[tuple[JobId, str, WatchEvent], ...]:
        """What a transaction has changed under `jobs/`."""
        return self.reader.job_writes(record.what) if isinstance(record.what, Applied) else ()

    def job_events(self, record: Record) -> Iterator[tuple[JobId, JobEvent]]:
        """The events that a transaction has written."""
        for job_id, name, event in self.job_writes(record):
            if name.startswith("events/") and not event.is_delete and self.is_news(event):
                for one in job_events(event):
                    yield job_id, one

    def is_news(self, event: WatchEvent) -> bool:
        """False for what is in the log already: a transaction that is repeated (R2) may be executed once more, late."""
        before = self._logged.get(event.kv.key)
        self._logged[event.kv.key] = event.kv.value
        return before != event.kv.value


class Replacements:
    """Attempts whose subtask was durably reset after they were deployed: a late start or end of theirs is nobody's."""

    def __init__(self) -> None:
        self._deployed: dict[tuple[JobId, str, int], set[ExecutionAttemptId]] = defaultdict(set)
        self._replaced: set[ExecutionAttemptId] = set()

    def __contains__(self, attempt_id: ExecutionAttemptId) -> bool:
        return attempt_id in self._replaced

    def has_another(self, attempt_id: ExecutionAttemptId) -> bool:
        """True if another attempt of the subtask was deployed, and none was reset since."""
        return len(self._deployed.get(subtask(attempt_id), set()) - {attempt_id}) > 0

    def note(self, message: object) -> None:
        """A message that a JobMaster has sent."""
        if isinstance(message, DeployTasks):
            for task in message.tasks:
                self._deployed[subtask(task.attempt_id)].add(task.attempt_id)

    def reset(self, job_id: JobId, event: SubtasksReset) -> None:
        """A reset that is durable."""
        for index in event.subtasks:
            self._replaced |= self._deployed.pop((job_id, event.vertex_id, index), set())

    def rescaled(self, job_id: JobId, event: JobRescaled) -> None:
        """Another parallelism that is durable: all subtasks of its vertices are others."""
        vertices = {one.vertex_id for one in event.rescale.vertices}
        for one in [one for one in self._deployed if one[0] == job_id and one[1] in vertices]:
            self._replaced |= self._deployed.pop(one)


def job_events(event: WatchEvent) -> tuple[JobEvent, ...]:
    """What an events key holds; nothing when that is an object."""
    return _decoded(event.kv.key, event.kv.value)


@lru_cache(maxsize=64)
def _decoded(key: str, value: bytes) -> tuple[JobEvent, ...]:
    stored = decode_record(EventsRecord, value, key=key).events
    return decode_events(stored.inline) if stored.inline else ()


def subtask(attempt_id: ExecutionAttemptId) -> tuple[JobId, str, int]:
    """Which subtask an attempt is one of."""
    return attempt_id.job_id, attempt_id.vertex_id, attempt_id.subtask_index
