"""What a TaskManager answers directly: logs of attempts, and what it is made of."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from runtime.common.ids import ExecutionAttemptId, Incarnation, JobId


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
    """`next_offset` is where to go on; `size_bytes` what there is now; `is_truncated`: the head was dropped.

    `dropped_bytes`: so many from the offset that was asked for to `data` are gone; older processes say it in `data`.
    """

    data: bytes
    next_offset: int
    size_bytes: int
    is_truncated: bool
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AttemptLogsRequest:
    """Many pieces at once, at most `size_bytes_max` in all: what there is no room for is left out of the answer."""

    reads: tuple[AttemptLogRequest, ...]
    size_bytes_max: int


@dataclass(frozen=True, slots=True)
class AttemptLogPiece:
    """The answer to `reads[index]`; `piece` is None when this TaskManager does not have that log."""

    index: int
    piece: AttemptLogResponse | None


@dataclass(frozen=True, slots=True)
class AttemptLogsResponse:
    """In the order of the reads."""

    pieces: tuple[AttemptLogPiece, ...]


@dataclass(frozen=True, slots=True)
class CensusRequest:
    """The owner of a job at `epoch` asks what there is of the job (R6). It is a JobMaster process, at `address`."""

    job_id: JobId
    epoch: int
    job_master_incarnation: Incarnation
    job_master_address: str


@dataclass(frozen=True, slots=True)
class CensusAccepted:
    """From now on orders of lower epochs are refused. The answer itself is the JobCensus on the stream to the owner."""


class TaskExecutorGateway(Protocol):
    """Unary calls to a TaskManager; everything that is part of running jobs goes over streams."""

    async def request_census(self, request: CensusRequest, /) -> CensusAccepted:
        """Tell the new owner of a job, over a stream, what there is of it. Idempotent.

        StaleTokenError when another owner has a higher epoch, or the job has ended here.
        """

    async def request_attempt_log(self, request: AttemptLogRequest, /) -> AttemptLogResponse:
        """A piece of one attempt's log. NotFoundError when this TaskManager does not have it."""

    async def request_attempt_logs(self, request: AttemptLogsRequest, /) -> AttemptLogsResponse:
        """Pieces of many logs: one call for all that a reader follows here."""
