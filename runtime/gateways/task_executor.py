"""What a TaskManager answers directly: logs of attempts, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from runtime.common.ids import ExecutionAttemptId


class LogStream(Enum):
    """The three streams of an attempt."""

    STDOUT = "stdout"
    STDERR = "stderr"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class AttemptLogRequest:
    """Bytes from `offset`, at most `limit`; a negative offset counts from the end."""

    attempt_id: ExecutionAttemptId
    stream: LogStream
    offset: int
    limit: int


@dataclass(frozen=True, slots=True)
class AttemptLogResponse:
    """`next_offset` is where to go on; `size_bytes` what there is now; `is_truncated`: the head was dropped."""

    data: bytes
    next_offset: int
    size_bytes: int
    is_truncated: bool


class TaskExecutorGateway(Protocol):
    """Unary calls to a TaskManager; everything that is part of running jobs goes over streams."""

    async def request_attempt_log(self, request: AttemptLogRequest, /) -> AttemptLogResponse:
        """A piece of one attempt's log. NotFoundError when this TaskManager does not have it."""
