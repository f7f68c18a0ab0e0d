"""The messages about a task that JobMaster and TaskManager share: deployment, inputs, outputs, reports."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from runtime.common.accumulators import UserAccumulator
from runtime.common.exchange import ExchangeMode as ExchangeMode  # noqa: PLC0414 - re-exported
from runtime.common.exchange import InputShare
from runtime.common.ids import AllocationId, ExecutionAttemptId, JobId, PartitionId, VertexId
from runtime.common.states import ExecutionState
from runtime.common.stream_progress import StreamProgress
from runtime.gateways.spark_work import SparkWork


@dataclass(frozen=True, slots=True)
class ResourceProfile:
    """The resources of a slot, or the need of a vertex. 0 means "the default slot"; `spark_profile` "" means any.

    `labels`: those of the TaskManager, or those that it has to have (`runtime.common.labels`).
    """

    cpu_cores: float = 0.0
    memory_bytes: int = 0
    spark_profile: str = ""
    labels: tuple[str, ...] = ()


DEFAULT_PROFILE = ResourceProfile()
"""The profile of the default slot, which fits every requirement without amounts."""


class PartitionKind(Enum):
    """The content of a result partition: parquet files, or one JSON value. NOTHING: the task got no split (R12)."""

    PARQUET = "PARQUET"
    JSON = "JSON"
    NOTHING = "NOTHING"


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """One file of a parquet partition. `consumer` is the subtask that reads it, -1 for all subtasks.

    On a dynamic edge `consumer` is the first of the `span` subpartitions whose rows it has, and `heaviest` the one with
    most of its rows, `heaviest_rows`; -1 where that was not counted.
    """

    path: str
    size_bytes: int
    rows: int
    consumer: int
    span: int = 1
    heaviest: int = -1
    heaviest_rows: int = 0

    def share_read(self, share: InputShare) -> float:
        """About which part of its rows that share reads, by the subpartitions that both have."""
        span = max(self.span, 1)
        both = min(self.consumer + span, share.end) - max(self.consumer, share.first)
        return 1.0 if self.consumer < 0 else max(both, 0) / span / share.parts


@dataclass(frozen=True, slots=True)
class PartitionDescriptor:
    """The result partition of a finished attempt for one out-edge; it exists once its event is committed (R10).

    `schema` is Spark's schema as JSON: Spark reads neither an empty output nor a missing directory, so the
    schema travels and an empty partition becomes an empty DataFrame. A JSON value is in `inline`, or,
    when it is large, in the one file; then there is a `directory`.
    """

    partition_id: PartitionId
    kind: PartitionKind
    directory: str
    schema: str
    files: tuple[PartitionFile, ...]
    inline: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ResultPartitionSpec:
    """One out-edge to write: `output` numbers it among the vertex's out-edges.

    A JSON value of more than `inline_size_max` bytes goes into a file. `is_dynamic`: the number of consumers is not
    known yet, and `consumer_parallelism` is that of subpartitions, of which each will read some.
    """

    output: int
    mode: ExchangeMode
    key_columns: tuple[str, ...]
    consumer_parallelism: int
    inline_size_max: int
    is_dynamic: bool = False


@dataclass(frozen=True, slots=True)
class InputGate:
    """One in-edge to read, in the order of the operator's arguments; partitions in subtask order.

    A partition without a schema has that of the first one. `share`: of a dynamic edge, which of its `subpartitions`
    the consumer reads.
    """

    source_name: str
    mode: ExchangeMode
    key_columns: tuple[str, ...]
    partitions: tuple[PartitionDescriptor, ...]
    share: InputShare | None = None
    subpartitions: int = 0

    def part_read(self, file: PartitionFile, subtask_index: int) -> float:
        """Which part of a file's rows a consumer reads: 0.0 for a file of others."""
        if self.share is not None:
            return file.share_read(self.share)
        return float(file.consumer in {-1, subtask_index})


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A file of the job: its object in the blob store, and its name in the job's directory.

    A small file travels in `inline` and then has no object: `key` is "". A file with a `url` has neither: the slot
    process fetches it.
    """

    key: str
    sha256: str
    size_bytes: int
    name: str
    inline: bytes = field(default=b"", repr=False)
    url: str = ""


@dataclass(frozen=True, slots=True)
class JobInformation:
    """The data that all tasks of a job share. Sent once per (job, TaskManager), before the job's first deployment.

    `params`, `spark_conf` and `environment` are canonical JSON objects. `reuse_key` is equal for jobs that
    may run one after another in the same slot process. `secrets` are names: the values never leave the TaskManager,
    which has some of them for one `namespace` only; "" from older owners means the default one. `jars` are for the
    class path of the job's Spark. `savepoint`: what streaming queries are started from (jobgraph's form), b"" for none.
    `checkpoint_name` names the state of its streaming queries; "": its id does (R59).
    """

    job_id: JobId
    job_name: str
    epoch: int
    # Not in logs, which show messages at DEBUG: they may hold secrets.
    params: bytes = field(repr=False)
    spark_conf: bytes = field(repr=False)
    environment: bytes = field(repr=False)
    py_files: tuple[BlobReference, ...]
    files: tuple[BlobReference, ...]
    archives: tuple[BlobReference, ...]
    wheels: tuple[BlobReference, ...]
    reuse_key: str
    secrets: tuple[str, ...] = ()
    namespace: str = ""
    jars: tuple[BlobReference, ...] = ()
    savepoint: bytes = b""
    checkpoint_name: str = ""


@dataclass(frozen=True, slots=True)
class QueryShare:
    """One query of a subtask that runs several (R68): that of the split with this number among those of its vertex.

    `committed_batch`: as in a TaskDeploymentDescriptor.
    """

    number: int
    committed_batch: int | None = None


@dataclass(frozen=True, slots=True)
class TaskInformation:
    """The data that all subtasks of a chain share. `operators` is the chain as canonical JSON (jobgraph's form).

    `stream_uid` names the state of a streaming query; "" for tasks that are none. `queries`: of one that can be
    rescaled, how many queries all subtasks have together, one for each split; 0 for others (R68). `splits_on_demand`:
    they take their splits one after the other, and each attempt is told all that there are (R12).
    """

    vertex_id: VertexId
    vertex_name: str
    operators: bytes = field(repr=False)
    code_blobs: tuple[BlobReference, ...]
    parallelism: int
    is_exclusive: bool
    stream_uid: str = ""
    queries: int = 0
    splits_on_demand: bool = False


@dataclass(frozen=True, slots=True)
class TaskDeploymentDescriptor:
    """Everything a slot needs to run one attempt. `splits` is a JSON list; `ordinal` is what users see.

    `deployed_millis`: the begin of its deployment by the owner's clock, for later owners; 0 from older processes.
    `is_first_to_begin`: no earlier attempt of the subtask has begun, under any ordinal (D-067); False from older
    processes. `committed_batch`: of a streaming query, the last batch that it has committed as far as the owner knows,
    which its directory must have (R59); None before the first. `is_stopped`: the job was stopped with a savepoint: its
    query finishes before it begins (R61). `queries`: those of a task that runs one for each of its splits, in their
    order; () for others.
    """

    attempt_id: ExecutionAttemptId
    allocation_id: AllocationId
    ordinal: int
    task: TaskInformation
    splits: bytes = field(repr=False)
    inputs: tuple[InputGate, ...]
    outputs: tuple[ResultPartitionSpec, ...]
    deployed_millis: int = 0
    is_first_to_begin: bool = False
    committed_batch: int | None = None
    is_stopped: bool = False
    queries: tuple[QueryShare, ...] = ()


class Fault(Enum):
    """Whose fault a failure was (R36), as the component says that saw it.

    USER: the task's own code, or its own use of memory. SYSTEM: the cluster, its Spark or its machine; restart
    strategies count it. NOBODY: another job, or the operation of the cluster; the task runs again, and nothing counts.
    """

    USER = "USER"
    SYSTEM = "SYSTEM"
    NOBODY = "NOBODY"


TASK_ISOLATED = "TaskIsolated"
"""The class name of failures by a fence, or after lost contact (R14)."""
SLOT_PREEMPTED = "SlotPreempted"
"""The class name of failures whose slot went to another queue (R64)."""


@dataclass(frozen=True, slots=True)
class FailureInfo:
    """An exception that crossed a process: class name, message, full text, and whether a retry can help.

    `kind` (USER, SYSTEM, RESOURCE or CANCELED) is for display; decisions rest on `at_fault`. `lost_partitions` names
    the inputs that the task could not read: their producers have to run again. `is_isolation`: the attempt was stopped
    by a fence, after lost contact (R14), without an owner (R18), or by a drain; no restart strategy counts it.
    `is_restart_vain`: a restart seconds later would fail again, so no strategy restarts it; a later try may succeed,
    unless `is_recoverable` is False too (D-061).
    """

    class_name: str
    message: str
    stack_trace: str
    kind: str
    is_recoverable: bool
    timestamp_millis: int
    lost_partitions: tuple[PartitionId, ...] = ()
    is_isolation: bool = False
    fault: Fault | None = None
    is_restart_vain: bool = False

    @property
    def at_fault(self) -> Fault:
        """Whose fault it was; derived from `kind` for reports of earlier releases."""
        if self.fault is not None:
            return self.fault
        if self.is_isolation:
            return Fault.NOBODY
        return Fault.USER if self.kind == "USER" else Fault.SYSTEM


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """Counters of one attempt; 0 where unknown."""

    read_bytes: int = 0
    write_bytes: int = 0
    read_records: int = 0
    write_records: int = 0
    cpu_millis: int = 0
    memory_bytes_peak: int = 0


OVERWRITE = "overwrite"
APPEND = "append"
ERROR = "error"
OVERWRITE_PARTITIONS = "overwrite_partitions"
OUTPUT_MODES = (OVERWRITE, APPEND, ERROR, OVERWRITE_PARTITIONS)
"""What a commit does with existing files of a base; names and meanings are those of Spark's writers."""


@dataclass(frozen=True, slots=True)
class OutputDirectory:
    """One `ctx.output_path(base)`: the attempt wrote into `directory`, to be moved into `base` by the commit.

    `mode` is one of OUTPUT_MODES; records from before there were modes mean "append".
    """

    base: str
    directory: str
    mode: str = APPEND


def one_spelling(base: str) -> str:
    """The canonical spelling of a base."""
    if base.startswith("file:"):
        base = "/" + base.removeprefix("file:")
    scheme, separator, path = base.rpartition("://")
    if separator:
        return f"{scheme}{separator}{posixpath.normpath(path)}"
    return posixpath.normpath(f"/{base.lstrip('/')}" if base.startswith("/") else base)


def outer_bases(base: str) -> Iterator[str]:
    """The directories above a base, nearest first, in canonical spelling."""
    scheme, separator, path = base.rpartition("://")
    while (outer := posixpath.dirname(path)) not in {path, ""}:
        path = outer
        yield f"{scheme}{separator}{path}"


@dataclass(frozen=True, slots=True)
class TaskExecutionReport:
    """The report of a state change of one attempt. The TaskManager keeps terminal reports until acknowledged (R10).

    `value` is the JSON result of a terminal vertex's function (FINISHED only); b"" when there is none. `has_not_begun`:
    no user code of the attempt ran or will run; False from older processes. `accumulators`: what its code has counted;
    they count in the job's result if the attempt is FINISHED. `spark_work`: None without Spark.
    """

    attempt_id: ExecutionAttemptId
    state: ExecutionState
    timestamp_millis: int
    failure: FailureInfo | None
    value: bytes = field(repr=False)
    partitions: tuple[PartitionDescriptor, ...]
    outputs: tuple[OutputDirectory, ...]
    metrics: TaskMetrics
    has_not_begun: bool = False
    accumulators: tuple[UserAccumulator, ...] = ()
    spark_work: SparkWork | None = None


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Progress of a running attempt: the text of report_progress(), Spark's stages and tasks, what it has counted, and
    its streaming queries.
    """

    attempt_id: ExecutionAttemptId
    fraction: float
    text: str
    spark_jobs_active: int
    spark_stages_active: int
    spark_tasks_completed: int
    spark_tasks_total: int
    accumulators: tuple[UserAccumulator, ...] = ()
    streams: tuple[StreamProgress, ...] = ()
