"""The streaming queries that run in slots: looked at, ended between two batches, held, and released (R61).

The JVM ends a query and tells how far it is; its slot process holds, and hears the word of the job's owner from here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.common.errors import NotFoundError
from runtime.common.ids import ExecutionAttemptId
from runtime.common.stream_progress import NO_BATCH, QueryPhase, ScriptLook, StreamLook
from runtime.gateways.job_master import EndedQuery
from runtime.gateways.task import TaskInformation
from runtime.jobgraph.graph import ScriptCode, parse_operators
from runtime.jobgraph.splits import split_name
from runtime.taskexecutor.slots.running_attempt import RunningAttempt

NOT_HERE = "no query of it runs here"


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """A subtask of a query, and the directory of its state. `splits`: the names of those that it has."""

    directory: Path
    uid: str
    subtask_index: int
    parallelism: int
    splits: tuple[str, ...] = ()


class StreamQueries:
    """Those of one pool. `running`: what runs now. `stop_timeout`: of a script whose job is stopped."""

    def __init__(self, running: Callable[[], Sequence[RunningAttempt]], *, stop_timeout: float) -> None:
        self._running = running
        self._stop_timeout = stop_timeout

    def place(self, attempt_id: ExecutionAttemptId) -> QueryPlace:
        """Which query an attempt runs, and where its state lies (R59). Raises NotFoundError."""
        attempt = self._attempt(attempt_id)
        task = attempt.work.task.task
        splits = tuple(map(split_name, json.loads(attempt.work.task.splits or b"[]")))
        directory, index = Path(attempt.query_directory), attempt_id.subtask_index
        return QueryPlace(directory, task.stream_uid, index, task.parallelism, splits)

    def places(self, attempt_id: ExecutionAttemptId) -> dict[str, QueryPlace]:
        """Of an attempt that runs a query for each of its splits: each by its name in looks (R68). NotFoundError."""
        attempt = self._attempt(attempt_id)
        task = attempt.work.task
        root, uid, total = Path(attempt.state_directory), task.task.stream_uid, task.task.queries
        names = map(split_name, json.loads(task.splits or b"[]"))
        return {
            str(one.number): QueryPlace(root / uid / str(one.number), uid, one.number, total, (name,))
            for one, name in zip(task.queries, names, strict=True)
        }

    def ended_place(self, attempt_id: ExecutionAttemptId, ended: EndedQuery) -> QueryPlace:
        """Where the state of a query lies that has finished, of the job of an attempt that runs here. NotFoundError."""
        root = self.place(attempt_id).directory.parent.parent
        index = ended.attempt_id.subtask_index
        splits = tuple(map(split_name, json.loads(ended.splits)))
        return QueryPlace(root / ended.uid / str(index), ended.uid, index, ended.parallelism, splits)

    async def look(self, attempt_id: ExecutionAttemptId, hold: str = "", *, drains: bool = False) -> StreamLook:
        """How far the query of an attempt is. With the id of a hold: have it end between two batches. Idempotent.

        Raises NotFoundError when the attempt runs no query here, SparkLostError, ValueError.
        """
        process = self._attempt(attempt_id).process
        if process is None or process.environment is None or process.session is None:
            return StreamLook(QueryPhase.NONE)
        return await process.environment.look_at_stream(process.session.session_id, hold, drains=drains)

    def runs_several(self, attempt_id: ExecutionAttemptId) -> bool:
        """Does it run a query for each of its splits here (R68)?"""
        return any(one.attempt_id == attempt_id and one.work.task.queries for one in self._running())

    async def end_between_batches(self, attempt_id: ExecutionAttemptId, hold: str) -> tuple[bool, str]:
        """Have all that an attempt runs end between two batches: whether that is done, and how far it has come, in
        words. As often as it takes, under one hold. Raises as `look`."""
        if self.runs_several(attempt_id):
            looked = await self.look_at_script(attempt_id, hold)
            last = [f"{one.name} behind batch {one.position.batch_id}" for one in looked.queries]
            return looked.phase is QueryPhase.HELD, f": {', '.join(last)}" if last else ""
        look = await self.look(attempt_id, hold)
        return look.phase is QueryPhase.HELD, _behind(look)

    def is_script(self, attempt_id: ExecutionAttemptId) -> bool:
        """Is it a script that starts queries by itself, and that runs here?"""
        return any(one.attempt_id == attempt_id and runs_script(one.work.task.task) for one in self._running())

    def state_directory(self, attempt_id: ExecutionAttemptId) -> Path:
        """Below which a script's queries have their state, each by its name. Raises NotFoundError."""
        return Path(self._attempt(attempt_id).state_directory)

    async def look_at_script(self, attempt_id: ExecutionAttemptId, hold: str = "") -> ScriptLook:
        """As `look`, of all queries that a script has started."""
        process = self._attempt(attempt_id).process
        if process is None or process.environment is None or process.session is None:
            return ScriptLook(QueryPhase.NONE)
        return await process.environment.look_at_script(process.session.session_id, hold)

    def release(self, attempt_id: ExecutionAttemptId, hold: str, *, finishes: bool) -> None:
        """The word of the owner for a hold: the attempt finishes, or its query goes on. Nothing for one that is over.

        A word that comes before the query is held waits for it in the process; one for another hold is ignored there.
        """
        for attempt in self._running():
            if attempt.attempt_id == attempt_id and attempt.process is not None:
                attempt.process.release(hold, finishes=finishes)
                if finishes and runs_script(attempt.work.task.task):
                    attempt.stop(self._stop_timeout)

    def endless(self) -> list[ExecutionAttemptId]:
        """Attempts whose queries do not end by themselves: those of every trigger but `availableNow`."""
        return [one.attempt_id for one in self._running() if is_endless(one.work.task.task)]

    def _attempt(self, attempt_id: ExecutionAttemptId) -> RunningAttempt:
        for attempt in self._running():
            task = attempt.work.task.task
            if attempt.attempt_id == attempt_id and (task.stream_uid or runs_script(task)):
                return attempt
        raise NotFoundError(NOT_HERE)


def _behind(look: StreamLook) -> str:
    if look.position is None or look.position.batch_id == NO_BATCH:
        return " before its first batch"
    return f" behind batch {look.position.batch_id}"


def runs_script(task: TaskInformation) -> bool:
    """Is it a script that starts streaming queries by itself (R63)?"""
    if task.stream_uid or b'"starts_queries"' not in task.operators:
        return False
    code = parse_operators(task.operators)[0].code
    return isinstance(code, ScriptCode) and code.starts_queries


def is_endless(task: TaskInformation) -> bool:
    """Is it a streaming query that does not end by itself?"""
    if not task.stream_uid:
        return False
    spec = parse_operators(task.operators)[-1].stream_sink
    return spec is None or spec.trigger is None or not spec.trigger.ends
