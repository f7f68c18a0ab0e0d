"""What the query of an attempt had done when it finished: its result says it, and may be ahead of its last progress."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runtime.common.states import ExecutionState
from runtime.common.stream_progress import NO_BATCH, StreamProgress
from runtime.executiongraph.core.execution import Execution

_COUNT_MAX = 2**63 - 1


class _Result(BaseModel):
    """The value of a vertex that is a streaming query, as its slot process reports it."""

    model_config = ConfigDict(extra="ignore", strict=True)

    batches: int = Field(ge=0, le=_COUNT_MAX)
    rows: int = Field(ge=0, le=_COUNT_MAX)
    last_batch: int = Field(ge=NO_BATCH, le=_COUNT_MAX)


def with_result(streams: tuple[StreamProgress, ...], execution: Execution, name: str) -> tuple[StreamProgress, ...]:
    """`streams` is what an attempt of a streaming query has told. Of one that is FINISHED: with the batches and rows
    of its result.

    A query that ended before anything was told of it gets `name`, and the end of its attempt as that of its last batch.
    A result that is none of a query changes nothing: that of an attempt comes from a process with user code.
    """
    if execution.state is not ExecutionState.FINISHED or len(streams) > 1:
        return streams
    try:
        result = _Result.model_validate_json(execution.value)
    except ValidationError:
        return streams
    if not streams:
        if result.last_batch == NO_BATCH:
            return ()
        ended_millis = execution.timestamps.get(ExecutionState.FINISHED, 0)
        streams = (StreamProgress("", "", name=name, has_triggered=True, progressed_millis=ended_millis),)
    (last,) = streams
    return (
        replace(
            last,
            batch_id=max(last.batch_id, result.last_batch),
            batches=max(last.batches, result.batches),
            rows=max(last.rows, result.rows),
        ),
    )
