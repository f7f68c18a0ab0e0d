"""The streaming queries that run in slots: looked at, ended between two batches, held, and released (R61).

The JVM ends a query and tells how far it is; its slot process holds, and hears the word of the job's owner from here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.common.errors import NotFoundError
from runtime.common.ids import ExecutionAttemptId
from runtime.common.stream_progress import QueryPhase, StreamLook
from runtime.gateways.task import TaskInformation
from runtime.jobgraph.graph import parse_operators
from runtime.taskexecutor.slots.running_attempt import RunningAttempt

NOT_HERE = "no query of it runs here"


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """A subtask of a query, and the directory of its state."""

    directory: Path
    uid: str
    subtask_index: int
    parallelism: int


class StreamQueries:
    """Those of one pool. `running`: what runs now."""

    def __init__(self, running: Callable[[], Sequence[RunningAttempt]]) -> None:
        self._running = running

    def place(self, attempt_id: ExecutionAttemptId) -> QueryPlace:
        """Which query an attempt runs, and where its state lies (R59). Raises NotFoundError."""
        attempt = self._attempt(attempt_id)
        task = attempt.work.task.task
        return QueryPlace(Path(attempt.query_directory), task.stream_uid, attempt_id.subtask_index, task.parallelism)

    async def look(self, attempt_id: ExecutionAttemptId, hold: str = "", *, drains: bool = False) -> StreamLook:
        """How far the query of an attempt is. With the id of a hold: have it end between two batches. Idempotent.

        Raises NotFoundError when the attempt runs no query here, SparkLostError, ValueError.
        """
        process = self._attempt(attempt_id).process
        if process is None or process.environment is None or process.session is None:
            return StreamLook(QueryPhase.NONE)
        return await process.environment.look_at_stream(process.session.session_id, hold, drains=drains)

    def release(self, attempt_id: ExecutionAttemptId, hold: str, *, finishes: bool) -> None:
        """The word of the owner for a hold: the attempt finishes, or its query goes on. Nothing for one that is over.

        A word that comes before the query is held waits for it in the process; one for another hold is ignored there.
        """
        for attempt in self._running():
            if attempt.attempt_id == attempt_id and attempt.process is not None:
                attempt.process.release(hold, finishes=finishes)

    def endless(self) -> list[ExecutionAttemptId]:
        """Attempts whose queries do not end by themselves: those of every trigger but `availableNow`."""
        return [one.attempt_id for one in self._running() if _is_endless(one.work.task.task)]

    def _attempt(self, attempt_id: ExecutionAttemptId) -> RunningAttempt:
        for attempt in self._running():
            if attempt.attempt_id == attempt_id and attempt.work.task.task.stream_uid:
                return attempt
        raise NotFoundError(NOT_HERE)


def _is_endless(task: TaskInformation) -> bool:
    if not task.stream_uid:
        return False
    spec = parse_operators(task.operators)[-1].stream_sink
    return spec is None or spec.trigger is None or not spec.trigger.ends
