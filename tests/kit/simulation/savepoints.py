"""Savepoints of the simulation: what TaskManagers do with queries for them, and who looks at those that are durable.

The copies, the last step and the restore are the product's, on real directories; only slot process and JVM are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from runtime.aio.entropy import SeededEntropy
from runtime.checkpoint.savepoint.savepoint_files import read_savepoint
from runtime.checkpoint.savepoint.savepoint_form import SavepointQuery
from runtime.common.errors import FlinklikeError, NotFoundError
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.stream_progress import ScriptLook, StreamLook
from runtime.gateways.operations import OperationState, SavepointDisposal
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import WatchEvent
from runtime.highavailability.record_codec import decode_record
from runtime.highavailability.records import DisposalRecord, OperationRecord
from runtime.taskexecutor.slots.stream_queries import NOT_HERE, QueryPlace, StreamQueries
from tests.kit.simulation.history import Applied, SavepointSeen
from tests.kit.simulation.processes import SimulatedLoop
from tests.kit.simulation.queries import Query
from tests.kit.simulation.shelf import Shelf
from tests.kit.simulation.split_queries import SplitQueries

AnyQuery = Query | SplitQueries
_LOOK_MAX = 0.2
_WORD_MAX = 0.05


class SimulatedQueries(StreamQueries):
    """The queries of one pool. `find`: those that run here. Looks and words take a moment."""

    def __init__(
        self,
        find: Callable[[], Mapping[ExecutionAttemptId, Query | SplitQueries]],
        loop: SimulatedLoop,
        entropy: SeededEntropy,
    ) -> None:
        super().__init__(list, stop_timeout=30.0)
        self._find = find
        self._loop = loop
        self._entropy = entropy

    def place(self, attempt_id: ExecutionAttemptId) -> QueryPlace:
        """Raises NotFoundError."""
        return self._query(attempt_id).place

    async def look(self, attempt_id: ExecutionAttemptId, hold: str = "", *, drains: bool = False) -> StreamLook:
        """Raises NotFoundError."""
        self._query(attempt_id)
        await asyncio.sleep(self._entropy.uniform(0.001, _LOOK_MAX))
        query = self._query(attempt_id)
        assert isinstance(query, Query), attempt_id
        return query.look(hold, drains=drains)

    def runs_several(self, attempt_id: ExecutionAttemptId) -> bool:
        """One for each split?"""
        return isinstance(self._find().get(attempt_id), SplitQueries)

    def places(self, attempt_id: ExecutionAttemptId) -> dict[str, QueryPlace]:
        """Raises NotFoundError."""
        query = self._query(attempt_id)
        assert isinstance(query, SplitQueries), attempt_id
        return query.places

    async def look_at_script(self, attempt_id: ExecutionAttemptId, hold: str = "") -> ScriptLook:
        """At the queries of all splits."""
        self._query(attempt_id)
        await asyncio.sleep(self._entropy.uniform(0.001, _LOOK_MAX))
        query = self._query(attempt_id)
        assert isinstance(query, SplitQueries), attempt_id
        return query.look(hold)

    def release(self, attempt_id: ExecutionAttemptId, hold: str, *, finishes: bool) -> None:
        """To its process."""
        if (query := self._find().get(attempt_id)) is not None:
            self._loop.outside_later(_WORD_MAX, lambda: query.release(hold, finishes=finishes))

    def endless(self) -> list[ExecutionAttemptId]:
        """Those that do not end by themselves."""
        return [attempt_id for attempt_id, query in self._find().items() if query.is_endless]

    def _query(self, attempt_id: ExecutionAttemptId) -> Query | SplitQueries:
        if (query := self._find().get(attempt_id)) is None:
            raise NotFoundError(NOT_HERE)
        return query


class Witness:
    """Looks at each savepoint when its operation has become COMPLETED in the store: it has to be there then (R61)."""

    def __init__(self, keys: Keys, shelf: Shelf) -> None:
        self._keys = keys
        self._shelf = shelf
        self._seen: set[str] = set()
        self.on_disposal: Callable[[SavepointDisposal], None] = lambda _: None
        """Is told what is stored of the wish to delete one."""

    def __call__(self, applied: Applied) -> SavepointSeen | None:
        """What is there, None for what is no news of a savepoint."""
        for event in applied.events:
            if (disposal := disposal_written(self._keys, event)) is not None:
                self.on_disposal(disposal)
            made = operation_written(self._keys, event)
            if made is None:
                continue
            job_id, record = made
            told = record.operation
            if told.state is OperationState.COMPLETED and told.directory and told.trigger_id not in self._seen:
                self._seen.add(told.trigger_id)
                self._shelf.put(told.directory)
                return _seen(job_id, told.trigger_id, told.directory)
        return None


def operation_written(keys: Keys, event: WatchEvent) -> tuple[JobId, OperationRecord] | None:
    """The operation that a transaction has written, and whose it is."""
    base = f"{keys.root}operations/"
    if event.is_delete or not event.kv.key.startswith(base):
        return None
    job_id = JobId(event.kv.key.removeprefix(base).partition("/")[0])
    return job_id, decode_record(OperationRecord, event.kv.value, key=event.kv.key)


def disposal_written(keys: Keys, event: WatchEvent) -> SavepointDisposal | None:
    """The wish to delete a savepoint that a transaction has written."""
    if event.is_delete or not event.kv.key.startswith(keys.disposals):
        return None
    return decode_record(DisposalRecord, event.kv.value, key=event.kv.key).disposal


def _seen(job_id: JobId, trigger_id: str, directory: str) -> SavepointSeen:
    try:
        savepoint = read_savepoint(Path(directory))
    except (FlinklikeError, OSError) as error:
        return SavepointSeen(job_id, trigger_id, directory, (), f"it cannot be read: {type(error).__name__}")
    batches = tuple((one.uid, one.subtask_index, one.snapshot.batch_id) for one in savepoint.queries)
    problems = [text for one in savepoint.queries if (text := _problem(Path(directory), one))]
    return SavepointSeen(job_id, trigger_id, directory, tuple(sorted(batches)), "; ".join(problems))


def _problem(path: Path, query: SavepointQuery) -> str:
    """Offsets and commits of one batch, and of none behind it."""
    for log in ("offsets", "commits"):
        folder = path / query.directory / log
        numbers = [int(one.name) for one in folder.iterdir()] if folder.exists() else []
        if max(numbers, default=-1) != query.snapshot.batch_id:
            return f"{query.directory}/{log} ends at {max(numbers, default=-1)}, and not at {query.snapshot.batch_id}"
    return ""
