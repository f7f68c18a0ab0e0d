"""What a TaskManager does for savepoints: it holds and copies queries that run here, and makes the last step.

All copies lie below the `part` directory of the savepoint, where each query leaves a note of what it has copied;
whoever is asked for the last step reads the notes of all (R60). Nothing here decides: an operation ends by the word of
the job's owner (R61).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.checkpoint.savepoint.committed_files import last_entry
from runtime.checkpoint.savepoint.ended_note import read_note
from runtime.checkpoint.savepoint.file_tree import FileTree
from runtime.checkpoint.savepoint.query_copy import QueryCopyError, copy_query, file_sink_path
from runtime.checkpoint.savepoint.savepoint_files import discard_part, finish_savepoint, read_savepoint
from runtime.checkpoint.savepoint.savepoint_form import Savepoint, SavepointQuery
from runtime.checkpoint.savepoint.state_schemas import state_schema
from runtime.common.deletion import delete_tree
from runtime.common.errors import FlinklikeError, InvalidInputError, NotFoundError, UnavailableError
from runtime.common.ids import ExecutionAttemptId, JobId, is_hex_id
from runtime.common.stream_progress import NO_BATCH, QueryPhase, ScriptLook, StreamLook, StreamPosition
from runtime.common.version import VERSION
from runtime.gateways.job_master import (
    CheckpointAnswer,
    EndedQuery,
    EndSavepoint,
    FinishSavepoint,
    SavepointAnswered,
    SavepointFinished,
    TriggerSavepoint,
)
from runtime.taskexecutor.core.events import SavepointTold
from runtime.taskexecutor.script_state import require_all
from runtime.taskexecutor.slots.stream_queries import NOT_HERE, QueryPlace, StreamQueries
from runtime.taskexecutor.spark_protocol.installed_spark import pyspark_version

logger = logging.getLogger(__name__)

SavepointOrder = TriggerSavepoint | FinishSavepoint | EndSavepoint
_NOTES = ".queries"
_NOTES_MAX = 100_000
_LOOK_SECONDS = 0.05
Look = TypeVar("Look", StreamLook, ScriptLook)
_WHY_LENGTH_MAX = 500


@dataclass(slots=True)
class _Operation:
    """One that is not over. `looks`: those on their way that have queries held."""

    is_over: bool = False
    looks: Watch[int] = field(default_factory=lambda: Watch(0))
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class Savepoints:
    """Those in which queries of this TaskManager take part. `queries`: None where nothing runs queries.

    `is_moving`: whether a query ends here to go on elsewhere, so that it cannot be held for a stop.
    """

    def __init__(
        self,
        queries: StreamQueries | None,
        scope: ServiceScope,
        post: Callable[[SavepointTold], None],
        is_moving: Callable[[ExecutionAttemptId], bool],
    ) -> None:
        self._queries = queries
        self._scope = scope
        self._post = post
        self._is_moving = is_moving
        self._operations: dict[tuple[JobId, str], _Operation] = {}

    def obey(self, order: SavepointOrder) -> None:
        """Do what an owner says. Answers are posted."""
        key = (order.job_id, order.operation)
        if isinstance(order, EndSavepoint):
            self._end(order, self._operations.pop(key, None))
            return
        operation = self._operations.setdefault(key, _Operation())
        if isinstance(order, FinishSavepoint):
            self._start(operation, f"savepoint {order.operation}", self._finish(order))
            return
        for attempt_id in order.attempts:
            answered = self._answered(order, attempt_id, operation)
            self._start(operation, f"savepoint of {attempt_id}", self._copy(order, attempt_id, operation, answered))
        for one in order.ended:
            answered = self._answered_of_ended(order, one)
            work = self._copy(order, one.attempt_id, operation, answered)
            self._start(operation, f"savepoint of {one.attempt_id}", work)

    def _start(self, operation: _Operation, name: str, work: Coroutine[None, None, None]) -> None:
        task = self._scope.start(name, work)
        operation.tasks.add(task)
        task.add_done_callback(operation.tasks.discard)

    # --- the end ------------------------------------------------------------------------------------------

    def _end(self, order: EndSavepoint, operation: _Operation | None) -> None:
        if operation is not None:
            operation.is_over = True
        if operation is not None and operation.looks.value:
            self._scope.spawn(f"word for {order.operation}", self._release_behind_looks(order, operation))
        else:
            self._release(order)
        if operation is not None and order.part:
            self._scope.spawn(f"remove {order.operation}", self._discard(operation, Path(order.part)))

    def _release(self, order: EndSavepoint) -> None:
        if self._queries is not None:
            for attempt_id in order.attempts:
                self._queries.release(attempt_id, order.operation, finishes=order.finishes)

    async def _release_behind_looks(self, order: EndSavepoint, operation: _Operation) -> None:
        """One that arrived behind the word would have the query held again, and no word would follow (R61)."""
        await operation.looks.wait_until(lambda looks: looks == 0)
        self._release(order)

    async def _discard(self, operation: _Operation, part: Path) -> None:
        """What was copied for a savepoint that is none: once no copy goes on."""
        if operation.tasks:
            await asyncio.wait(tuple(operation.tasks))
        try:
            await asyncio.to_thread(discard_part, part)
        except OSError as error:
            logger.warning("what was copied for a savepoint that has failed stays, delete %s: %s", part, error)

    # --- copies -------------------------------------------------------------------------------------------

    async def _copy(
        self,
        order: TriggerSavepoint,
        attempt_id: ExecutionAttemptId,
        operation: _Operation,
        answered: Coroutine[None, None, CheckpointAnswer],
    ) -> None:
        try:
            answer = await answered
        except (FlinklikeError, QueryCopyError, OSError, ValueError) as error:
            answer = CheckpointAnswer(attempt_id, None, _why(error))
        except Exception as error:
            # What is copied is written by users' processes (R52): it ends no TaskManager.
            logger.exception("query %s cannot be copied", attempt_id)
            answer = CheckpointAnswer(attempt_id, None, f"its directory cannot be read: {_why(error)}")
        if not operation.is_over:
            self._post(SavepointTold(SavepointAnswered(order.job_id, order.epoch, order.operation, (answer,))))

    async def _copied(
        self, order: TriggerSavepoint, attempt_id: ExecutionAttemptId, operation: _Operation
    ) -> StreamPosition:
        if self._queries is None:
            raise NotFoundError(NOT_HERE)
        place = self._queries.place(attempt_id)
        await asyncio.to_thread(_refuse_within_state, place.directory.parent.parent, Path(order.part).parent)
        look = await self._look(self._queries, order, attempt_id, operation)
        position = look.position if look.position is not None else StreamPosition("")
        if position.batch_id == NO_BATCH and not order.holds:
            message = f"{place.uid} has not committed a batch yet"
            raise NotFoundError(message)
        target, note = Path(order.part, place.uid, str(place.subtask_index)), _note_of(Path(order.part), attempt_id)
        await asyncio.to_thread(_copied, place, look, position, target, note)
        return position

    async def _answered(
        self, order: TriggerSavepoint, attempt_id: ExecutionAttemptId, operation: _Operation
    ) -> CheckpointAnswer:
        if self._queries is not None and self._queries.runs_several(attempt_id):
            several = await self._copied_of_splits(self._queries, order, attempt_id, operation)
            return CheckpointAnswer(attempt_id, None, queries=several)
        if self._queries is not None and self._queries.is_script(attempt_id):
            copied = await self._copied_of_script(self._queries, order, attempt_id, operation)
            return CheckpointAnswer(attempt_id, None, queries=copied)
        return CheckpointAnswer(attempt_id, await self._copied(order, attempt_id, operation))

    async def _answered_of_ended(self, order: TriggerSavepoint, ended: EndedQuery) -> CheckpointAnswer:
        return CheckpointAnswer(ended.attempt_id, await self._copied_ended(order, ended))

    async def _copied_ended(self, order: TriggerSavepoint, ended: EndedQuery) -> StreamPosition:
        if self._queries is None:
            raise NotFoundError(NOT_HERE)
        place, part = self._queries.ended_place(order.attempts[0], ended), Path(order.part)
        await asyncio.to_thread(_refuse_within_state, place.directory.parent.parent, part.parent)
        return await asyncio.to_thread(_copied_behind_end, place, ended, part)

    async def _copied_of_script(
        self, queries: StreamQueries, order: TriggerSavepoint, attempt_id: ExecutionAttemptId, operation: _Operation
    ) -> tuple[StreamPosition, ...]:
        """All queries whose state the cluster keeps, running or ended: without one of them it is no savepoint."""
        state, part = queries.state_directory(attempt_id), Path(order.part)
        await asyncio.to_thread(_refuse_within_state, state, part.parent)
        if order.holds:  # nothing is held for a savepoint that cannot be made
            before = await queries.look_at_script(attempt_id)
            await asyncio.to_thread(require_all, state, replace(before, phase=QueryPhase.HELD))
        look = await self._look_at_script(queries, order, attempt_id, operation)
        await asyncio.to_thread(require_all, state, look)
        for number, one in enumerate(look.queries):
            place = QueryPlace(state / one.name / "0", one.name, 0, 1)
            shown, note = (
                StreamLook(look.phase, one.position, one.sink, one.sources),
                _note_of(part, attempt_id, f"-{number}"),
            )
            await asyncio.to_thread(_copied, place, shown, one.position, part / one.name / "0", note)
        return tuple(one.position for one in look.queries)

    async def _copied_of_splits(
        self, queries: StreamQueries, order: TriggerSavepoint, attempt_id: ExecutionAttemptId, operation: _Operation
    ) -> tuple[StreamPosition, ...]:
        """Each as the query of a subtask of its own: so a job of any parallelism goes on from it (R68)."""
        places, part = queries.places(attempt_id), Path(order.part)
        state = queries.state_directory(attempt_id)
        await asyncio.to_thread(_refuse_within_state, state, part.parent)
        look = await self._look_at_script(queries, order, attempt_id, operation)
        found = {one.name: one for one in look.queries}
        positions = []
        for name, place in places.items():
            one = found.get(name)
            if one is None or (one.position.batch_id == NO_BATCH and not order.holds):
                message = f"{place.uid} has not committed a batch yet of split {name}"
                raise NotFoundError(message)
            shown = StreamLook(look.phase, one.position, one.sink, one.sources)
            target, note = part / place.uid / name, _note_of(part, attempt_id, f"-{name}")
            await asyncio.to_thread(_copied, place, shown, one.position, target, note)
            positions.append(one.position)
        return tuple(positions)

    async def _look_at_script(
        self, queries: StreamQueries, order: TriggerSavepoint, attempt_id: ExecutionAttemptId, operation: _Operation
    ) -> ScriptLook:
        if not order.holds:
            return await queries.look_at_script(attempt_id)

        def look() -> Awaitable[ScriptLook]:
            self._refuse_moving(queries, attempt_id)
            return queries.look_at_script(attempt_id, order.operation)

        return await _once_held(operation, look)

    def _refuse_moving(self, queries: StreamQueries, attempt_id: ExecutionAttemptId) -> None:
        if self._is_moving(attempt_id):
            name = "its script" if queries.is_script(attempt_id) else queries.place(attempt_id).uid
            message = f"{name} moves: this TaskManager is drained, or its job is rescaled"
            raise UnavailableError(message)

    async def _look(
        self, queries: StreamQueries, order: TriggerSavepoint, attempt_id: ExecutionAttemptId, operation: _Operation
    ) -> StreamLook:
        """At a query that runs; for a stop, once it is held: that takes as long as its batch."""
        if not order.holds:
            return await queries.look(attempt_id)

        def look() -> Awaitable[StreamLook]:
            self._refuse_moving(queries, attempt_id)
            return queries.look(attempt_id, order.operation, drains=order.drains)

        return await _once_held(operation, look)

    async def _finish(self, order: FinishSavepoint) -> None:
        failure, size_bytes = "", 0
        try:
            size_bytes = await asyncio.to_thread(_finished, order)
        except (FlinklikeError, OSError, ValueError) as error:
            failure = f"the savepoint cannot be written: {_why(error)}"
        except Exception as error:
            logger.exception("savepoint %s cannot be written", order.directory)
            failure = f"the savepoint cannot be written: {_why(error)}"
        self._post(SavepointTold(SavepointFinished(order.job_id, order.epoch, order.operation, failure, size_bytes)))


def _why(error: Exception) -> str:
    return f"{error}"[:_WHY_LENGTH_MAX] or type(error).__name__


async def _once_held(operation: _Operation, look: Callable[[], Awaitable[Look]]) -> Look:
    """Look until what is looked at is held. NotFoundError when the operation is over before."""
    while not operation.is_over:
        operation.looks.set(operation.looks.value + 1)
        try:
            found = await look()
        finally:
            operation.looks.set(operation.looks.value - 1)
        if found.phase is QueryPhase.HELD:
            return found
        await asyncio.sleep(_LOOK_SECONDS)
    message = "the operation is over"
    raise NotFoundError(message)


def _refuse_within_state(state: Path, target: Path) -> None:
    """Raises InvalidInputError for a savepoint in the directory of a job's state: it would go with that (R59)."""
    job, at = state.resolve(), target.resolve()
    is_of_a_job = job.parent in at.parents and is_hex_id(at.relative_to(job.parent).parts[0])
    if at == job or job in at.parents or is_of_a_job:
        message = (
            f"{target} lies where a job keeps the state of its queries ({job.parent}), which is deleted when that job "
            "has ended: choose another directory for savepoints"
        )
        raise InvalidInputError(message)


def _note_of(part: Path, attempt_id: ExecutionAttemptId, query: str = "") -> Path:
    return part / _NOTES / f"{attempt_id.vertex_id}-{attempt_id.subtask_index}{query}.json"


def _copied_behind_end(place: QueryPlace, ended: EndedQuery, part: Path) -> StreamPosition:
    """Of a query that has finished: as of its last committed batch, behind which nothing is."""
    left = read_note(place.directory.parent.parent, place.uid, place.subtask_index)
    last = last_entry(FileTree(place.directory).listing("commits").files)
    if last < ended.committed_batch:
        message = (
            f"{place.uid} has finished with batch {ended.committed_batch}, and its directory {place.directory} has "
            f"{'no committed batch' if last == NO_BATCH else f'batch {last} at the latest'} here"
        )
        raise NotFoundError(message)
    position = StreamPosition("", last, left.state_rows)
    target, note = part / place.uid / str(place.subtask_index), _note_of(part, ended.attempt_id)
    _copied(place, StreamLook(QueryPhase.NONE, position, left.sink, left.sources), position, target, note)
    return position


def _copied(place: QueryPlace, look: StreamLook, position: StreamPosition, target: Path, note: Path) -> None:
    sink = file_sink_path(look.sink)
    snapshot = copy_query(place.directory, target, position.batch_id, sink)
    query = SavepointQuery(
        uid=place.uid,
        subtask_index=place.subtask_index,
        parallelism=place.parallelism,
        splits=place.splits,
        snapshot=snapshot,
        sources=look.sources,
        sink=look.sink,
        state_rows=max(0, position.state_rows),
        state_schema=state_schema(target, snapshot.files),
    )
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_bytes(query.model_dump_json().encode())


def _finished(order: FinishSavepoint) -> int:
    """The bytes of its files."""
    part, directory = Path(order.part), Path(order.directory)
    if not part.exists() and directory.exists():
        found = read_savepoint(directory)
        if (found.job_id, found.checkpoint_id) != (order.job_id, order.checkpoint_id):
            message = f"{directory} is another savepoint"
            raise InvalidInputError(message)
        return _size_of(found)
    notes = sorted((part / _NOTES).iterdir())[:_NOTES_MAX]
    try:
        queries = tuple(SavepointQuery.model_validate_json(note.read_bytes()) for note in notes)
    except ValidationError as error:
        message = f"what was noted of a query in {part / _NOTES} cannot be read"
        raise InvalidInputError(message) from error
    if len(queries) != order.queries:
        message = (
            f"{part} has copies of {len(queries)} of {order.queries} queries here: the directory of savepoints must be "
            "one that all TaskManagers reach under one name"
        )
        raise InvalidInputError(message)
    savepoint = Savepoint(
        job_id=order.job_id,
        job_name=order.job_name,
        checkpoint_id=order.checkpoint_id,
        trigger_millis=order.trigger_millis,
        software_version=VERSION,
        spark_version=pyspark_version(),
        queries=queries,
    )
    if failures := delete_tree(part / _NOTES):
        raise failures[0]
    finish_savepoint(part, savepoint)
    return _size_of(savepoint)


def _size_of(savepoint: Savepoint) -> int:
    return sum(file.size for query in savepoint.queries for file in query.snapshot.files)
