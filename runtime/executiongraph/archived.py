"""The execution graph as data: the form that REST shows of a job, live or archived, and its stored JSON.

Invariants: an archive is complete and answers every `/jobs/:id/...` path except attempt logs; the JSON carries a schema
version, and the reader refuses a newer one by name instead of guessing.
Times are milliseconds since 1970; a state that was never entered has no entry in `timestamps`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter, ValidationError

from runtime.common.accumulators import UserAccumulator, merged
from runtime.common.errors import InvalidInputError
from runtime.common.ids import JobId, VertexId
from runtime.common.json_text import parse_json
from runtime.common.states import ExecutionState, JobStatus, JobType, SchedulerType
from runtime.common.stream_progress import StreamProgress
from runtime.executiongraph.archived_checkpoints import ArchivedCheckpoints
from runtime.executiongraph.archived_rescales import ArchivedRescales
from runtime.executiongraph.core.aggregate import aggregate_state
from runtime.executiongraph.core.handed_splits import SplitCounts
from runtime.gateways.overview import Takeover
from runtime.gateways.spark_work import SparkWork
from runtime.gateways.task import ExchangeMode, FailureInfo, TaskMetrics

ARCHIVE_SCHEMA_VERSION = 1

CANCELLATION = "JobCancellationError"
"""Class name of the entry with the reason for which the cluster itself has cancelled a job."""

_TERMINAL = (ExecutionState.FINISHED, ExecutionState.CANCELED, ExecutionState.FAILED)


@dataclass(frozen=True, slots=True)
class ArchivedProgress:
    """The latest progress of an attempt."""

    fraction: float
    text: str
    spark_jobs_active: int
    spark_stages_active: int
    spark_tasks_completed: int
    spark_tasks_total: int


@dataclass(frozen=True, slots=True)
class ArchivedExecution:
    """One attempt. `attempt` is its ordinal; `attempt_id` names its log on the TaskManager at `endpoint`.

    `accumulators`: what its code has counted, whatever came of it. `spark_work`: once it has ended, if it used Spark.
    `streams`: its streaming queries as they were told last. `slot_index`: of its TaskManager, -1 where it is not known.
    """

    attempt: int
    attempt_id: str
    state: ExecutionState
    timestamps: Mapping[ExecutionState, int]
    endpoint: str
    task_manager_id: str
    failure: FailureInfo | None
    metrics: TaskMetrics
    progress: ArchivedProgress | None
    accumulators: tuple[UserAccumulator, ...] = ()
    spark_work: SparkWork | None = None
    streams: tuple[StreamProgress, ...] = ()
    slot_index: int = -1

    @property
    def start_millis(self) -> int:
        """The time of its deployment, -1 before."""
        return self.timestamps.get(ExecutionState.DEPLOYING, -1)

    @property
    def end_millis(self) -> int:
        """The time at which it became terminal, -1 before."""
        return next((self.timestamps[state] for state in _TERMINAL if state in self.timestamps), -1)

    @property
    def is_complete(self) -> bool:
        """True once the metrics are final."""
        return self.state.is_terminal

    def status_durations(self, now_millis: int) -> dict[ExecutionState, int]:
        """The milliseconds in each state that it entered, without terminal states."""
        entered = sorted(self.timestamps.items(), key=lambda item: (item[1], item[0].is_terminal))
        ends = [at for _, at in entered[1:]] + [now_millis]
        return {
            state: max(0, end - at) for (state, at), end in zip(entered, ends, strict=True) if not state.is_terminal
        }


@dataclass(frozen=True, slots=True)
class ArchivedSubtask:
    """One subtask: its current attempt, earlier ones from oldest to newest, and those beside the current one (R67)."""

    index: int
    current: ArchivedExecution
    prior: tuple[ArchivedExecution, ...]
    concurrent: tuple[ArchivedExecution, ...] = ()
    restarts: int | None = None
    """How often it has run again; None in archives of earlier releases, where each attempt but the first is one."""

    def attempt(self, number: int) -> ArchivedExecution | None:
        """The attempt with that ordinal, None if it is unknown or not kept any more."""
        return next((one for one in self.attempts() if one.attempt == number), None)

    def attempts(self) -> tuple[ArchivedExecution, ...]:
        """All that are known, the current one first."""
        return self.current, *self.concurrent, *self.prior


@dataclass(frozen=True, slots=True)
class ArchivedVertex:
    """One vertex, with the names of its chained operators in order.

    `accumulators`: of the current attempts together that have finished or still run (D-116). `stream_uid`: names the
    state of its streaming query, "" for a vertex that is none. `parallelism` is -1 until the scheduler has chosen it;
    `decision` says why it has chosen so, "" where the job has said it. `splits`: where they are, of a source whose
    subtasks take them on demand, once it has begun.
    """

    id: VertexId
    name: str
    operators: tuple[str, ...]
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str
    is_exclusive: bool
    subtasks: tuple[ArchivedSubtask, ...]
    accumulators: tuple[UserAccumulator, ...] = ()
    stream_uid: str = ""
    decision: str = ""
    splits: SplitCounts | None = None

    def counts(self) -> Counter[ExecutionState]:
        """Subtasks by state."""
        return Counter(subtask.current.state for subtask in self.subtasks)

    @property
    def state(self) -> ExecutionState:
        """The aggregated state."""
        return aggregate_state(self.counts(), self.parallelism)

    @property
    def restarts(self) -> int:
        """The number of restarts of its subtasks."""
        told = (subtask.restarts for subtask in self.subtasks)
        attempts = (subtask.current.attempt for subtask in self.subtasks)
        return sum(attempt if own is None else own for own, attempt in zip(told, attempts, strict=True))

    @property
    def start_millis(self) -> int:
        """The deployment of its first subtask, -1 before."""
        return min((one.current.start_millis for one in self.subtasks if one.current.start_millis >= 0), default=-1)

    @property
    def end_millis(self) -> int:
        """The time at which its last subtask became terminal, -1 before."""
        if not all(subtask.current.state.is_terminal for subtask in self.subtasks):
            return -1
        return max((subtask.current.end_millis for subtask in self.subtasks), default=-1)

    @property
    def has_streams(self) -> bool:
        """True for a streaming query, and for any other code that was seen to run one."""
        return bool(self.stream_uid) or any(subtask.current.streams for subtask in self.subtasks)

    def metrics(self) -> TaskMetrics:
        """Sums over the current attempts; the memory peak is the highest."""
        each = [subtask.current.metrics for subtask in self.subtasks]
        return TaskMetrics(
            read_bytes=sum(one.read_bytes for one in each),
            write_bytes=sum(one.write_bytes for one in each),
            read_records=sum(one.read_records for one in each),
            write_records=sum(one.write_records for one in each),
            cpu_millis=sum(one.cpu_millis for one in each),
            memory_bytes_peak=max((one.memory_bytes_peak for one in each), default=0),
        )

    @property
    def description(self) -> str:
        """The chain as Flink's plan shows it."""
        head, *tail = self.operators or (self.name,)
        return f"{head}<br/>" + "".join(f"+- {name}<br/>" for name in tail)


@dataclass(frozen=True, slots=True)
class ArchivedEdge:
    """One unchained edge; `input_index` is the position among the target's inputs. `mode`: as consumers read it."""

    source: VertexId
    target: VertexId
    mode: ExchangeMode
    input_index: int


@dataclass(frozen=True, slots=True)
class ArchivedException:
    """A failure. `task_name` is "" for a failure of the job. Concurrent failures happened while it was handled.

    `labels` are those of the failure enrichers.
    """

    failure: FailureInfo
    task_name: str
    endpoint: str
    task_manager_id: str
    concurrent: tuple[ArchivedException, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArchivedConfig:
    """The configuration that `/jobs/:id/config` shows. `params` is JSON; the environment has names only.

    `user_failures` is "" for jobs of earlier releases, which treated failures of user code like all others.
    """

    parallelism: int
    restart_strategy: str
    execution_timeout_seconds: float | None
    params: str
    spark_conf: Mapping[str, str]
    environment: tuple[str, ...]
    user_failures: str = ""


NO_CONFIG = ArchivedConfig(
    parallelism=0, restart_strategy="", execution_timeout_seconds=None, params="{}", spark_conf={}, environment=()
)


@dataclass(frozen=True, slots=True)
class ArchivedExecutionGraph:
    """The archive of one job under one owner. `result` is the job's value as JSON text, "" until FINISHED.

    `exceptions` are newest first, `takeovers` oldest first. `graph_digest` is the sha256 of the JobGraph.
    `accumulators_left_out`: of the vertices together, those above the bound. `checkpoints`: None for a job without
    streaming queries.
    """

    schema_version: int
    job_id: JobId
    name: str
    epoch: int
    graph_digest: str
    status: JobStatus
    timestamps: Mapping[JobStatus, int]
    last_modification_millis: int
    pending_reason: str
    vertices: tuple[ArchivedVertex, ...]
    edges: tuple[ArchivedEdge, ...]
    exceptions: tuple[ArchivedException, ...]
    config: ArchivedConfig
    result: str
    takeovers: tuple[Takeover, ...] = ()
    job_type: JobType = JobType.BATCH
    scheduler_type: SchedulerType = SchedulerType.DEFAULT
    accumulators_left_out: int = 0
    checkpoints: ArchivedCheckpoints | None = None
    rescales: ArchivedRescales | None = None

    @property
    def has_checkpointing(self) -> bool:
        """True for a job with streaming queries whose checkpoints are recorded, or that went on from a savepoint."""
        found = self.checkpoints
        if found is None:
            return False
        return found.interval_millis > 0 or bool(found.history) or bool(found.restored_savepoint)

    @property
    def start_millis(self) -> int:
        """The time of the submit."""
        return self.timestamps.get(JobStatus.INITIALIZING, -1)

    @property
    def end_millis(self) -> int:
        """The time at which the job became globally terminal, -1 before."""
        return self.timestamps.get(self.status, -1) if self.status.is_globally_terminal else -1

    @property
    def failure(self) -> FailureInfo | None:
        """The root cause of a FAILED job."""
        return self.exceptions[0].failure if self.exceptions else None

    @property
    def cancellation(self) -> FailureInfo | None:
        """Why the cluster itself has cancelled a CANCELED job; None if a person wanted it."""
        latest = self.failure
        return latest if self.status is JobStatus.CANCELED and latest and latest.class_name == CANCELLATION else None

    def accumulators(self) -> tuple[UserAccumulator, ...]:
        """Of all vertices together."""
        return merged(vertex.accumulators for vertex in self.vertices)

    def vertex(self, vertex_id: str) -> ArchivedVertex | None:
        """The vertex with that id, None for an unknown id."""
        return next((vertex for vertex in self.vertices if vertex.id == vertex_id), None)

    def inputs(self, vertex_id: str) -> tuple[ArchivedEdge, ...]:
        """The edges into a vertex, in the order of its inputs."""
        edges = [edge for edge in self.edges if edge.target == vertex_id]
        return tuple(sorted(edges, key=lambda edge: edge.input_index))

    def to_json(self) -> bytes:
        """The stored form."""
        return _ADAPTER.dump_json(self)

    @classmethod
    def from_json(cls, data: bytes) -> ArchivedExecutionGraph:
        """The inverse of `to_json`. Raises InvalidInputError with the version for another schema."""
        try:
            archived = _ADAPTER.validate_json(data)
        except ValidationError as error:
            raise InvalidInputError(_unreadable(data), tuple(str(one["loc"]) for one in error.errors())) from error
        if archived.schema_version != ARCHIVE_SCHEMA_VERSION:
            raise InvalidInputError(_unreadable(data))
        return archived


_ADAPTER: TypeAdapter[ArchivedExecutionGraph] = TypeAdapter(ArchivedExecutionGraph)


def _unreadable(data: bytes) -> str:
    try:
        version = str(parse_json(data)["schema_version"])[:80]
    except (ValueError, KeyError, TypeError):
        version = "unknown"
    return f"cannot read an archived execution graph of schema {version}, this version reads {ARCHIVE_SCHEMA_VERSION}"
