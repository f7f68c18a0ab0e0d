"""How far streaming queries have come for good: Spark's JVMs are asked, for one checkpoint, all attempts at once."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.aio.scope import Scope
from runtime.common.errors import FlinklikeError
from runtime.common.ids import ExecutionAttemptId
from runtime.common.stream_progress import StreamPosition
from runtime.gateways.job_master import CheckpointAnswer
from runtime.taskexecutor.slots.running_attempt import RunningAttempt
from runtime.taskexecutor.slots.slot_handle import SlotProcess
from runtime.taskexecutor.slots.stream_queries import runs_script

_WHY_LENGTH_MAX = 500


async def positions_of(
    attempts: Sequence[ExecutionAttemptId], running: Sequence[RunningAttempt]
) -> tuple[CheckpointAnswer, ...]:
    """One answer for each attempt. A JVM that does not answer within the limit of its calls declines."""
    by_id = {attempt.attempt_id: attempt for attempt in running}
    async with Scope("positions of queries") as scope:
        asked = [
            scope.start(f"position of {attempt_id}", _answer(attempt_id, by_id.get(attempt_id)))
            for attempt_id in attempts
        ]
    return tuple(task.result() for task in asked)


async def _answer(attempt_id: ExecutionAttemptId, attempt: RunningAttempt | None) -> CheckpointAnswer:
    process = None if attempt is None else attempt.process
    if attempt is not None and runs_script(attempt.work.task.task):
        return await _answer_of_script(attempt_id, process)
    if process is None or process.environment is None or process.session is None:
        return CheckpointAnswer(attempt_id, None, "no query of it runs here")
    if attempt is not None and attempt.work.task.queries:
        answer = await _answer_of_script(attempt_id, process)
        missing = len(attempt.work.task.queries) - len(answer.queries)
        return CheckpointAnswer(attempt_id, None, f"{missing} of its queries have not begun") if missing else answer
    try:
        found: tuple[StreamPosition, ...] = await process.environment.stream_positions(process.session.session_id)
    except (FlinklikeError, ValueError) as error:
        return CheckpointAnswer(attempt_id, None, f"Spark does not tell its position: {error}"[:_WHY_LENGTH_MAX])
    if len(found) != 1:
        return CheckpointAnswer(attempt_id, None, f"{len(found)} queries of it run, expected one")
    return CheckpointAnswer(attempt_id, found[0])


async def _answer_of_script(attempt_id: ExecutionAttemptId, process: SlotProcess | None) -> CheckpointAnswer:
    """Of the queries that it has started, and that have committed a batch: there may be none, also without Spark."""
    if process is None or process.environment is None or process.session is None:
        return CheckpointAnswer(attempt_id, None)
    try:
        look = await process.environment.look_at_script(process.session.session_id, "")
    except (FlinklikeError, ValueError) as error:
        return CheckpointAnswer(attempt_id, None, f"Spark does not tell its positions: {error}"[:_WHY_LENGTH_MAX])
    return CheckpointAnswer(attempt_id, None, queries=tuple(one.position for one in look.queries))
