"""Judges of savepoints, of stops, and of jobs that are started from them (R60, R61)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from runtime.checkpoint.core.stream_operations import KEPT_MAX
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import NO_BATCH
from runtime.gateways.job_master import FinishSavepoint, TriggerSavepoint
from runtime.gateways.operations import OperationKind, OperationState, StreamOperation
from tests.kit.simulation.checker import CheckerBase, Reader
from tests.kit.simulation.history import (
    Applied,
    AttemptEnded,
    BatchCommitted,
    Damaged,
    OperationAccepted,
    OperationShown,
    QueryHeld,
    QueryReleased,
    QueryStarted,
    Record,
    Restoring,
    SavepointSeen,
    Sent,
)
from tests.kit.simulation.outcomes import Damages
from tests.kit.simulation.savepoints import operation_written

Place = tuple[str, int]
"""The uid and the subtask of a query."""


class _Operations:
    """What the store has of all operations."""

    def __init__(self, reader: Reader) -> None:
        self._keys = reader.keys
        self.known: dict[tuple[JobId, str], StreamOperation] = {}

    def note(self, record: Record) -> Iterator[tuple[JobId, StreamOperation, StreamOperation | None]]:
        """Those that a transaction has changed, with what was there before."""
        if not isinstance(record.what, Applied):
            return
        for event in record.what.events:
            if (written := operation_written(self._keys, event)) is not None:
                job_id, operation = written[0], written[1].operation
                before = self.known.get((job_id, operation.trigger_id))
                self.known[job_id, operation.trigger_id] = operation
                yield job_id, operation, before


def _place(directory: str) -> Place:
    *_, uid, index = directory.split("/")
    return uid, int(index)


class SavepointsAreWhole(CheckerBase):
    """R60: a completed savepoint is there, and holds one batch of each query of its job that was committed then.

    The one of a stop holds the last one.
    """

    rule = "R60"

    sees: tuple[type, ...] = (Applied, QueryStarted, BatchCommitted, SavepointSeen)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._operations = _Operations(reader)
        self._committed: dict[JobId, dict[Place, int]] = defaultdict(dict)

    def see(self, record: Record) -> Iterator[str]:
        """What is committed, and what is in a savepoint."""
        match record.what:
            case QueryStarted(attempt_id, directory, behind):
                self._committed[attempt_id.job_id][_place(directory)] = behind
            case BatchCommitted(attempt_id, directory, batch_id):
                self._committed[attempt_id.job_id][_place(directory)] = batch_id
            case SavepointSeen() as seen:
                yield from self._judge(seen)
            case _:
                for _ in self._operations.note(record):
                    pass

    def _judge(self, seen: SavepointSeen) -> Iterator[str]:
        if seen.problem:
            yield f"savepoint {seen.trigger_id} of job {seen.job_id} is completed: {seen.problem}"
            return
        is_stop = self._operations.known[seen.job_id, seen.trigger_id].kind is OperationKind.STOP
        committed = self._committed[seen.job_id]
        held = {(uid, index): batch for uid, index, batch in seen.batches}
        if held.keys() != committed.keys():
            yield f"savepoint {seen.trigger_id} has {sorted(held)}, and the job {sorted(committed)}"
        for place in sorted(held.keys() & committed.keys()):
            batch, last = held[place], committed[place]
            if batch > last or (is_stop and batch != last):
                yield f"savepoint {seen.trigger_id} has batch {batch} of {place}, whose last committed one is {last}"


class StopsAreAllOrNothing(CheckerBase):
    """R61: nothing finishes before the record of its stop is COMPLETED, and nothing is processed behind it.

    What was held for a stop that has failed goes on, in the same attempt, and never finishes by it.
    """

    rule = "R61"

    sees: tuple[type, ...] = (Applied, QueryHeld, QueryReleased, QueryStarted, BatchCommitted, AttemptEnded)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._operations = _Operations(reader)
        self._stopped: dict[JobId, str] = {}
        self._held: dict[ExecutionAttemptId, str] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Who is held, and what follows."""
        for job_id, operation, _ in self._operations.note(record):
            if operation.kind is OperationKind.STOP and operation.state is OperationState.COMPLETED:
                self._stopped[job_id] = operation.trigger_id
        match record.what:
            case QueryHeld(attempt_id, hold):
                self._held[attempt_id] = hold
            case QueryReleased() as released:
                yield from self._released(released)
            case QueryStarted(attempt_id) | BatchCommitted(attempt_id) if attempt_id.job_id in self._stopped:
                yield f"{attempt_id} works on behind stop {self._stopped[attempt_id.job_id]}, which is completed"
            case BatchCommitted(attempt_id) if attempt_id in self._held:
                yield f"{attempt_id} is held for {self._held[attempt_id]}, and processes a batch"
            case AttemptEnded(attempt_id, state) if hold := self._held.pop(attempt_id, ""):
                if state is ExecutionState.FINISHED:
                    yield f"{attempt_id} is held for {hold}, and finishes without a word"
            case _:
                return

    def _released(self, released: QueryReleased) -> Iterator[str]:
        attempt_id = released.attempt_id
        self._held.pop(attempt_id, None)
        is_stopped = attempt_id.job_id in self._stopped
        if released.finishes and (not is_stopped or released.hold not in {"", self._stopped[attempt_id.job_id]}):
            yield f"{attempt_id} finishes by stop {released.hold}, which is not completed in the store"
        if not released.finishes and is_stopped:
            yield f"{attempt_id} goes on by {released.hold}, and stop {self._stopped[attempt_id.job_id]} is completed"


class OperationsStay(CheckerBase):
    """R61: an operation does nothing, and is not answered, before it is durable; it is known from then on, has one
    outcome, and a number that no other one has.
    """

    rule = "R61"

    sees: tuple[type, ...] = (Applied, Sent, OperationAccepted, OperationShown, Damaged)
    hears: tuple[type, ...] = (TriggerSavepoint, FinishSavepoint)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._operations = _Operations(reader)
        self._damaged = Damages(reader.keys)
        self._accepted: set[tuple[JobId, str]] = set()
        self._shown: dict[tuple[JobId, str], OperationState] = {}

    def see(self, record: Record) -> Iterator[str]:
        """What is durable, and what is told."""
        self._damaged.note(record)
        for job_id, operation, before in self._operations.note(record):
            yield from self._written(job_id, operation, before)
        match record.what:
            case Sent(message=TriggerSavepoint() | FinishSavepoint() as order):
                if (order.job_id, order.operation) not in self._operations.known:
                    yield f"operation {order.operation} of job {order.job_id} is begun, and is not durable"
            case OperationAccepted(job_id, trigger_id):
                self._accepted.add((job_id, trigger_id))
                if (job_id, trigger_id) not in self._operations.known:
                    yield f"operation {trigger_id} of job {job_id} is accepted, and is not durable"
            case OperationShown() as shown if shown.job_id not in self._damaged:
                yield from self._judge(shown)
            case _:
                return

    def _written(self, job_id: JobId, operation: StreamOperation, before: StreamOperation | None) -> Iterator[str]:
        is_over = before is not None and before.state is not OperationState.IN_PROGRESS
        if before is not None and is_over and before.state is not operation.state:
            yield f"operation {operation.trigger_id} was {before.state.name}, and becomes {operation.state.name}"
        others = [
            other.trigger_id
            for (of, trigger_id), other in self._operations.known.items()
            if of == job_id and trigger_id != operation.trigger_id and operation.checkpoint_id == other.checkpoint_id
        ]
        if operation.directory and others:
            yield f"operation {operation.trigger_id} has number {operation.checkpoint_id}, as has {others[0]}"

    def _judge(self, shown: OperationShown) -> Iterator[str]:
        key = (shown.job_id, shown.trigger_id)
        if shown.state is None:
            if key in self._accepted and not self._is_old(shown):
                yield f"operation {shown.trigger_id} of job {shown.job_id} was accepted, and is not known any more"
            return
        before = self._shown.setdefault(key, shown.state)
        if before is not OperationState.IN_PROGRESS and before is not shown.state:
            yield f"operation {shown.trigger_id} is shown as {before.name}, then as {shown.state.name}"
        self._shown[key] = shown.state

    def _is_old(self, shown: OperationShown) -> bool:
        """Of a job the last ones that have ended are remembered."""
        of_job = [trigger_id for job_id, trigger_id in self._operations.known if job_id == shown.job_id]
        return shown.trigger_id in of_job[:-KEPT_MAX]


class QueriesGoOn(CheckerBase):
    """R59 and R60: each start of a query is exactly behind what it has committed, the first one of a job that is
    started from a savepoint behind the savepoint's batch.
    """

    rule = "positions"

    sees: tuple[type, ...] = (SavepointSeen, Restoring, QueryStarted, BatchCommitted)

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self._saved: dict[str, dict[Place, int]] = {}
        self._from: dict[JobId, str] = {}
        self._last: dict[str, int] = {}

    def see(self, record: Record) -> Iterator[str]:
        """Where queries are."""
        match record.what:
            case SavepointSeen() as seen:
                self._saved[seen.directory] = {(uid, index): batch for uid, index, batch in seen.batches}
            case Restoring(job_id, directory):
                self._from[job_id] = directory
            case BatchCommitted(directory=directory, batch_id=batch_id):
                self._last[directory] = batch_id
            case QueryStarted(attempt_id, directory, behind):
                saved = self._saved.get(self._from.get(attempt_id.job_id, ""), {})
                expected = self._last.get(directory, saved.get(_place(directory), NO_BATCH))
                if behind != expected:
                    yield f"{attempt_id} begins behind batch {behind} of {directory}, and {expected} is the last one"
            case _:
                return
