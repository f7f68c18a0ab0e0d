"""How far streaming queries have come for good: Spark's JVMs are asked, for one checkpoint, all attempts at once."""

from __future__ import annotations

from collections.abc import Sequence

from runtime.aio.scope import Scope
from runtime.common.errors import FlinklikeError
from runtime.common.ids import ExecutionAttemptId
from runtime.common.stream_progress import StreamPosition
from runtime.gateways.job_master import CheckpointAnswer
from runtime.taskexecutor.slots.running_attempt import RunningAttempt

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
    if process is None or process.environment is None or process.session is None:
        return CheckpointAnswer(attempt_id, None, "no query of it runs here")
    try:
        found: tuple[StreamPosition, ...] = await process.environment.stream_positions(process.session.session_id)
    except (FlinklikeError, ValueError) as error:
        return CheckpointAnswer(attempt_id, None, f"Spark does not tell its position: {error}"[:_WHY_LENGTH_MAX])
    if len(found) != 1:
        return CheckpointAnswer(attempt_id, None, f"{len(found)} queries of it run, expected one")
    return CheckpointAnswer(attempt_id, found[0])
