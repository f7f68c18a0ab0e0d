"""What a TaskManager does for savepoints: it holds and copies queries that run here, and makes the last step.

All copies lie below the `part` directory of the savepoint, where each query leaves a note of what it has copied;
whoever is asked for the last step reads the notes of all (R60). Nothing here decides: an operation ends by the word of
the job's owner (R61).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from runtime.aio.scope import ServiceScope
from runtime.aio.watch import Watch
from runtime.checkpoint.savepoint.query_copy import QueryCopyError, copy_query, file_sink_path
from runtime.checkpoint.savepoint.savepoint_files import discard_part, finish_savepoint, read_savepoint
from runtime.checkpoint.savepoint.savepoint_form import Savepoint, SavepointQuery
from runtime.common.deletion import delete_tree
from runtime.common.errors import FlinklikeError, InvalidInputError, NotFoundError, UnavailableError
from runtime.common.ids import ExecutionAttemptId, JobId
from runtime.common.stream_progress import NO_BATCH, QueryPhase, StreamLook, StreamPosition
from runtime.common.version import VERSION
from runtime.gateways.job_master import (
    CheckpointAnswer,
    EndSavepoint,
    FinishSavepoint,
    SavepointAnswered,
    SavepointFinished,
    TriggerSavepoint,
)
from runtime.taskexecutor.core.events import SavepointTold
from runtime.taskexecutor.slots.stream_queries import NOT_HERE, QueryPlace, StreamQueries
from runtime.taskexecutor.spark_protocol.installed_spark import pyspark_version

logger = logging.getLogger(__name__)

SavepointOrder = TriggerSavepoint | FinishSavepoint | EndSavepoint
_NOTES = ".queries"
_NOTES_MAX = 100_000
_LOOK_SECONDS = 0.05
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
            self._start(operation, f"savepoint of {attempt_id}", self._copy(order, attempt_id, operation))

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

    async def _copy(self, order: TriggerSavepoint, attempt_id: ExecutionAttemptId, operation: _Operation) -> None:
        try:
            answer = CheckpointAnswer(attempt_id, await self._copied(order, attempt_id, operation))
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
        look = await self._look(self._queries, order, attempt_id, operation)
        position = look.position if look.position is not None else StreamPosition("")
        if position.batch_id == NO_BATCH and not order.holds:
            message = f"{place.uid} has not committed a batch yet"
            raise NotFoundError(message)
        target, note = Path(order.part, place.uid, str(place.subtask_index)), _note_of(Path(order.part), attempt_id)
        await asyncio.to_thread(_copied, place, look, position, target, note)
        return position

    async def _look(
        self, queries: StreamQueries, order: TriggerSavepoint, attempt_id: ExecutionAttemptId, operation: _Operation
    ) -> StreamLook:
        """At a query that runs; for a stop, once it is held: that takes as long as its batch."""
        if not order.holds:
            return await queries.look(attempt_id)
        while not operation.is_over:
            if self._is_moving(attempt_id):
                message = f"{queries.place(attempt_id).uid} moves to another TaskManager, as this one is drained"
                raise UnavailableError(message)
            operation.looks.set(operation.looks.value + 1)
            try:
                look = await queries.look(attempt_id, order.operation, drains=order.drains)
            finally:
                operation.looks.set(operation.looks.value - 1)
            if look.phase is QueryPhase.HELD:
                return look
            await asyncio.sleep(_LOOK_SECONDS)
        message = "the operation is over"
        raise NotFoundError(message)

    async def _finish(self, order: FinishSavepoint) -> None:
        failure = ""
        try:
            await asyncio.to_thread(_finished, order)
        except (FlinklikeError, OSError, ValueError) as error:
            failure = f"the savepoint cannot be written: {_why(error)}"
        except Exception as error:
            logger.exception("savepoint %s cannot be written", order.directory)
            failure = f"the savepoint cannot be written: {_why(error)}"
        self._post(SavepointTold(SavepointFinished(order.job_id, order.epoch, order.operation, failure)))


def _why(error: Exception) -> str:
    return f"{error}"[:_WHY_LENGTH_MAX] or type(error).__name__


def _note_of(part: Path, attempt_id: ExecutionAttemptId) -> Path:
    return part / _NOTES / f"{attempt_id.vertex_id}-{attempt_id.subtask_index}.json"


def _copied(place: QueryPlace, look: StreamLook, position: StreamPosition, target: Path, note: Path) -> None:
    sink = file_sink_path(look.sink)
    snapshot = copy_query(place.directory, target, position.batch_id, sink)
    query = SavepointQuery(
        uid=place.uid,
        subtask_index=place.subtask_index,
        parallelism=place.parallelism,
        snapshot=snapshot,
        sink=look.sink,
        state_rows=max(0, position.state_rows),
    )
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_bytes(query.model_dump_json().encode())


def _finished(order: FinishSavepoint) -> None:
    part, directory = Path(order.part), Path(order.directory)
    if not part.exists() and directory.exists():
        found = read_savepoint(directory)
        if (found.job_id, found.checkpoint_id) != (order.job_id, order.checkpoint_id):
            message = f"{directory} is another savepoint"
            raise InvalidInputError(message)
        return
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
