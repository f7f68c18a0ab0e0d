"""Calls that a TaskManager answers directly: censuses, logs of attempts, and looks into them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from runtime.common.ids import ExecutionAttemptId, Incarnation, JobId
from runtime.gateways.spark_work import SparkQuery, SparkWork


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
    """`next_offset`: where to read on. `size_bytes`: the current size. `is_truncated`: the head was dropped.

    `dropped_bytes`: the bytes missing between the requested offset and `data`; older processes say it in `data`.
    """

    data: bytes
    next_offset: int
    size_bytes: int
    is_truncated: bool
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AttemptLogsRequest:
    """Pieces of many logs, at most `size_bytes_max` in all; the answer leaves out pieces without room."""

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
    """The census of the owner of a job at `epoch` (R6), which is a JobMaster process at `address`."""

    job_id: JobId
    epoch: int
    job_master_incarnation: Incarnation
    job_master_address: str


@dataclass(frozen=True, slots=True)
class CensusAccepted:
    """From now on lower epochs are refused. The answer itself is the JobCensus on the stream to the owner."""


ATTEMPTS_LOOKED_AT_MAX = 100
SAMPLES_MAX = 100
FRAMES_MAX = 60
FRAME_LENGTH_MAX = 160
STACKS_MAX = 100
CLUSTER_FRAME = "threads of the cluster, beside the task"
"""The outermost frame of stacks that begin in no code of users."""


@dataclass(frozen=True, slots=True)
class AttemptSparkRequest:
    """What Spark has done for these attempts, at most ATTEMPTS_LOOKED_AT_MAX; `has_plans`: with their queries."""

    attempts: tuple[ExecutionAttemptId, ...]
    has_plans: bool


@dataclass(frozen=True, slots=True)
class AttemptSpark:
    """Of one attempt. `environment`: the key of its Spark environment, "" for the default one, None when it is gone."""

    attempt_id: ExecutionAttemptId
    work: SparkWork
    queries: tuple[SparkQuery, ...]
    environment: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptSparkResponse:
    """Without attempts that are not here, have not used Spark, or of which its JVM knows nothing any more.

    `unanswered`: those of which the JVM has not said in time what it does.
    """

    found: tuple[AttemptSpark, ...]
    unanswered: tuple[ExecutionAttemptId, ...] = ()


@dataclass(frozen=True, slots=True)
class AttemptStacksRequest:
    """Look at the Python stacks of a running attempt `samples` times, at most SAMPLES_MAX."""

    attempt_id: ExecutionAttemptId
    samples: int


@dataclass(frozen=True, slots=True)
class SampledStack:
    """A stack that was seen `count` times. `frames`: from the outermost on, "function (file:line)".

    `is_on_cpu`: its thread was running, as far as that is known; of other threads than the main one it is not.
    """

    frames: tuple[str, ...]
    count: int
    is_on_cpu: bool


@dataclass(frozen=True, slots=True)
class AttemptStacksResponse:
    """At most STACKS_MAX, those that were seen most often. `end_millis`: when it was looked last."""

    end_millis: int
    stacks: tuple[SampledStack, ...]


PAGE_TARGET_LENGTH_MAX = 4000
PAGE_BYTES_MAX = 2 << 20
PAGE_SECONDS_MAX = 55.0
"""A TaskManager has answered by then: the first page of a JVM loads hundreds of classes."""


@dataclass(frozen=True, slots=True)
class SparkPageRequest:
    """A GET of Spark's own pages (R58). `environment`: its key, "" for the default one. `target`: path and query, at
    most PAGE_TARGET_LENGTH_MAX characters of ASCII. `prefix`: the path that the links of the page have in front.
    """

    environment: str
    target: str
    prefix: str


@dataclass(frozen=True, slots=True)
class SparkPageResponse:
    """What the JVM says, in which code of jobs runs: `head` of HTTP, and the body packed by gzip, together at most
    PAGE_BYTES_MAX.
    """

    head: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """A savepoint by its path. `below`: the directory in which it has to lie, "" for any."""

    path: str
    below: str


@dataclass(frozen=True, slots=True)
class SavepointFound:
    """The job that has made it, as its metadata says."""

    job_id: JobId


@dataclass(frozen=True, slots=True)
class DisposeSavepointRequest:
    """Delete a savepoint that this job has made (R62). `below`: as in SavepointRequest."""

    path: str
    below: str
    job_id: JobId


@dataclass(frozen=True, slots=True)
class SavepointDisposed:
    """Nothing of it is there any more."""


class TaskExecutorGateway(Protocol):
    """Unary calls to a TaskManager; everything that is part of running jobs goes over streams."""

    async def request_census(self, request: CensusRequest, /) -> CensusAccepted:
        """Send the JobCensus of a job to its new owner, over a stream. Idempotent.

        Raises StaleTokenError when another owner has a higher epoch, or the job has ended here.
        """

    async def request_attempt_log(self, request: AttemptLogRequest, /) -> AttemptLogResponse:
        """A piece of one attempt's log. Raises NotFoundError when this TaskManager does not have the log."""

    async def request_attempt_logs(self, request: AttemptLogsRequest, /) -> AttemptLogsResponse:
        """Pieces of many logs: one call for all logs that a reader follows on this TaskManager."""

    async def request_attempt_spark(self, request: AttemptSparkRequest, /) -> AttemptSparkResponse:
        """What Spark has done for attempts of this TaskManager, and does."""

    async def request_attempt_stacks(self, request: AttemptStacksRequest, /) -> AttemptStacksResponse:
        """The stacks of a running attempt over a second or two. Raises NotFoundError when it does not run here.

        Raises UnavailableError while another attempt is looked at.
        """

    async def request_spark_page(self, request: SparkPageRequest, /) -> SparkPageResponse:
        """One of Spark's own pages. Raises NotFoundError without that environment, or where nobody may look at it.

        Raises UnavailableError when its JVM does not make the page, or not in time.
        """

    async def request_savepoint(self, request: SavepointRequest, /) -> SavepointFound:
        """Whose savepoint it is. Raises NotFoundError where none is seen here, InvalidInputError for what is none.

        Raises UnavailableError where the storage does not answer.
        """

    async def dispose_savepoint(self, request: DisposeSavepointRequest, /) -> SavepointDisposed:
        """Delete it, and what an interrupted call has left of it. Errors as of `request_savepoint`. Idempotent, but for
        NotFoundError when nothing was there.
        """
