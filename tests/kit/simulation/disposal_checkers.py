"""Judge of savepoints that are deleted: whose wish it was, who still reads them, and what clients are told (R62)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime.common.ids import JobId
from runtime.gateways.operations import OperationState, SavepointDisposal
from runtime.highavailability.kv.key_value_store import WatchEvent
from runtime.highavailability.record_codec import UnreadableRecordError, decode_record
from runtime.highavailability.records import GraphRecord
from tests.kit.simulation.checker import CheckerBase, Reader
from tests.kit.simulation.history import (
    Applied,
    Damaged,
    DisposalAccepted,
    DisposalShown,
    QueryStarted,
    Record,
    RestoreRefused,
    Restoring,
    SavepointSeen,
    SavepointTaken,
)
from tests.kit.simulation.outcomes import Damages
from tests.kit.simulation.savepoints import disposal_written


class SavepointsGoWhenTheyMay(CheckerBase):
    """R62: a savepoint goes by a wish that is stored, and after it is stored that it may go, and by nothing else; never
    while a job that is stored was started from it and has queries that have not begun. A wish that was accepted is
    known, ends, and has one outcome; by one that is COMPLETED the savepoint has gone.
    """

    rule = "R62"

    sees: tuple[type, ...] = (
        Applied,
        Damaged,
        DisposalAccepted,
        DisposalShown,
        QueryStarted,
        RestoreRefused,
        Restoring,
        SavepointSeen,
        SavepointTaken,
    )

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._wishes: dict[str, SavepointDisposal] = {}
        self._accepted: set[str] = set()
        self._queries: dict[JobId, int] = {}
        self._reads: dict[JobId, str] = {}
        """Jobs that are stored and have no result, with the savepoints that they were started from."""
        self._begun: dict[JobId, set[str]] = defaultdict(set)
        self._there: set[str] = set()
        self._damaged = Damages(reader.keys)

    def see(self, record: Record) -> Iterator[str]:
        """Savepoints, who reads them, and what becomes of them."""
        self._damaged.note(record)
        match record.what:
            case Applied():
                yield from self._on_applied(record)
            case SavepointSeen(directory=directory, problem=""):
                self._there.add(directory)
            case Restoring(job_id, _, queries):
                self._queries[job_id] = queries
            case QueryStarted(attempt_id, directory):
                self._begun[attempt_id.job_id].add(directory)
            case SavepointTaken(directory, by):
                self._there.discard(directory)
                yield from self._on_taken(directory, by)
            case _:
                yield from self._on_client(record)

    def _on_applied(self, record: Record) -> Iterator[str]:
        assert isinstance(record.what, Applied)
        for event in record.what.events:
            if (written := disposal_written(self.keys, event)) is not None:
                yield from self._on_wish(written)
        for job_id, name, event in self.job_writes(record):
            if name == "graph" and not event.is_delete and job_id not in self._damaged:
                if start := _start_of(event):
                    self._reads[job_id] = start
            elif name == "result" and not event.is_delete:
                self._reads.pop(job_id, None)

    def _on_wish(self, written: SavepointDisposal) -> Iterator[str]:
        name = f"disposal {written.trigger_id} of {written.path}"
        before = self._wishes.get(written.trigger_id)
        self._wishes[written.trigger_id] = written
        if before is not None and before.state is not OperationState.IN_PROGRESS and before != written:
            yield f"{name} was {before.state.name}, and becomes {written.state.name}"
        if written.state is OperationState.COMPLETED and written.path in self._there:
            yield f"{name} is COMPLETED, and the savepoint is there"

    def _on_taken(self, directory: str, by: JobId | None) -> Iterator[str]:
        if by is not None:
            return  # a job has claimed it
        may = [one for one in self._wishes.values() if one.path == directory and one.job_id]
        if not any(one.state is OperationState.IN_PROGRESS for one in may):
            yield f"savepoint {directory} is deleted, and it is not stored that it may be"
        for job_id, start in sorted(self._reads.items()):
            begun, queries = len(self._begun[job_id]), self._queries.get(job_id, 0)
            if start == directory and begun < queries and job_id not in self._damaged:
                yield f"savepoint {directory} is deleted, and {begun} of {queries} queries of job {job_id} have begun"

    def _on_client(self, record: Record) -> Iterator[str]:
        match record.what:
            case DisposalAccepted(trigger_id):
                self._accepted.add(trigger_id)
                if trigger_id not in self._wishes:
                    yield f"disposal {trigger_id} is accepted, and is not durable"
            case DisposalShown(trigger_id, state):
                known = self._wishes.get(trigger_id)
                if trigger_id in self._accepted and state is None:
                    yield f"disposal {trigger_id} was accepted, and is not known any more"
                if known is not None and state is not None and state is not known.state and _is_over(state):
                    yield f"disposal {trigger_id} is shown as {state.name}, and is {known.state.name}"
            case RestoreRefused(job_id, directory):
                if not any(one.path == directory and one.job_id for one in self._wishes.values()):
                    yield f"job {job_id} is refused, and savepoint {directory} stays"
            case _:
                return

    def finish(self) -> Iterator[str]:
        """Wishes that have no end."""
        for trigger_id in sorted(self._accepted):
            wish = self._wishes.get(trigger_id)
            if wish is not None and not _is_over(wish.state):
                yield f"disposal {trigger_id} of {wish.path} has not ended"


def _start_of(event: WatchEvent) -> str:
    """The savepoint that a job is started from, "" for none, and where nobody can read what is stored."""
    try:
        return decode_record(GraphRecord, event.kv.value, key=event.kv.key).savepoint
    except UnreadableRecordError:
        return ""


def _is_over(state: OperationState) -> bool:
    return state is not OperationState.IN_PROGRESS
