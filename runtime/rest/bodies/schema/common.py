"""Parts of bodies that several resources share."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import Field
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from runtime.common.states import ExecutionState, JobStatus


def _always(states: type[Enum]) -> FieldInfo:
    """Every state is a key."""
    field: FieldInfo = Field(json_schema_extra={"required": [state.value for state in states]})
    return field


CountPerState = Annotated[dict[str, int], _always(ExecutionState)]
MillisPerState = Annotated[dict[str, int], _always(ExecutionState)]
MillisPerStatus = Annotated[dict[str, int], _always(JobStatus)]


class Errors(TypedDict):
    """Flink's body of every refusal: a sentence for each problem."""

    errors: list[str]


class Empty(TypedDict):
    """The answer to an accepted request without a result."""


IOMetrics = TypedDict(
    "IOMetrics",
    {
        "read-bytes": int,
        "read-bytes-complete": bool,
        "write-bytes": int,
        "write-bytes-complete": bool,
        "read-records": int,
        "read-records-complete": bool,
        "write-records": int,
        "write-records-complete": bool,
        "accumulated-backpressured-time": int,
        "accumulated-idle-time": int,
        "accumulated-busy-time": float,
    },
)
"""What an attempt, or all attempts of a vertex, have read and written; times in milliseconds."""
