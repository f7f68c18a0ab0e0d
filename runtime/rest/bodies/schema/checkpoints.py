"""Flink's bodies of checkpoints. Times are milliseconds, -1 for one that has not come; sizes are bytes of state."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

Quantile = float | Literal["NaN"]
"""NaN where there is no checkpoint to tell of."""


class StatsSummary(TypedDict):
    """Of a number of checkpoints or subtasks."""

    min: int
    max: int
    avg: int
    p50: Quantile
    p90: Quantile
    p95: Quantile
    p99: Quantile
    p999: Quantile


class CheckpointCounts(TypedDict):
    """How many there were. `failed` is of the job's present owner."""

    restored: int
    total: int
    in_progress: int
    completed: int
    failed: int


class CheckpointSummary(TypedDict):
    """Of the last completed ones."""

    checkpointed_size: StatsSummary
    state_size: StatsSummary
    end_to_end_duration: StatsSummary
    alignment_buffered: StatsSummary
    processed_data: StatsSummary
    persisted_data: StatsSummary


class _TaskOfCheckpointFields(TypedDict):
    id: int
    status: str
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int


class TaskOfCheckpoint(_TaskOfCheckpointFields):
    """A vertex of one checkpoint."""


PositionOfQuery = TypedDict(
    "PositionOfQuery",
    {
        "vertex": str,
        "subtask": int,
        "uid": str,
        "query-id": str,
        "batch-id": int,
        "state-rows": int,
        "state-bytes": int,
        "acknowledged": int,
    },
)
"""`batch-id`: the last committed batch of the query, -1 before the first."""


class Checkpoint(TypedDict):
    """`className` says which of the optional fields there are: completed, failed or in_progress.

    `tasks` and `positions` are filled for one checkpoint, and empty in lists. `queries_without_batch`: those that have
    answered, as far as their positions are kept, and had committed no batch yet: there is no state of them.
    """

    className: str
    id: int
    status: str
    is_savepoint: bool
    savepointFormat: str | None
    trigger_timestamp: int
    latest_ack_timestamp: int
    checkpointed_size: int
    state_size: int
    end_to_end_duration: int
    alignment_buffered: int
    processed_data: int
    persisted_data: int
    num_subtasks: int
    num_acknowledged_subtasks: int
    queries_without_batch: int
    checkpoint_type: str
    tasks: dict[str, TaskOfCheckpoint]
    external_path: NotRequired[str]
    discarded: NotRequired[bool]
    failure_timestamp: NotRequired[int]
    failure_message: NotRequired[str]
    positions: NotRequired[list[PositionOfQuery]]


class RestoredCheckpoint(TypedDict):
    """The checkpoint that queries have gone on behind last, and when; of a savepoint of another job `id` is 0."""

    id: int
    restore_timestamp: int
    is_savepoint: bool
    external_path: str


class LatestCheckpoints(TypedDict):
    """The latest one of each kind."""

    completed: Checkpoint | None
    savepoint: Checkpoint | None
    failed: Checkpoint | None
    restored: RestoredCheckpoint | None


class Checkpoints(TypedDict):
    """What is known of the checkpoints of a job; `history` is newest first."""

    counts: CheckpointCounts
    summary: CheckpointSummary
    latest: LatestCheckpoints
    history: list[Checkpoint]


class Externalization(TypedDict):
    """Records end with the job; Spark's files stay."""

    enabled: bool
    delete_on_cancellation: bool


class CheckpointConfiguration(TypedDict):
    """The settings of the cluster that have an effect here, and Flink's others as they are where nobody sets them."""

    mode: str
    interval: int
    timeout: int
    min_pause: int
    max_concurrent: int
    externalization: Externalization
    state_backend: str
    checkpoint_storage: str
    unaligned_checkpoints: bool
    tolerable_failed_checkpoints: int
    aligned_checkpoint_timeout: int
    checkpoints_after_tasks_finish: bool
    state_changelog_enabled: bool
    changelog_periodic_materialization_interval: int
    changelog_storage: str


CheckpointDurations = TypedDict("CheckpointDurations", {"sync": int, "async": int})
CheckpointDurationSummaries = TypedDict("CheckpointDurationSummaries", {"sync": StatsSummary, "async": StatsSummary})


class CheckpointAlignment(TypedDict):
    """Always 0: there are no barriers that could be aligned."""

    buffered: int
    processed: int
    persisted: int
    duration: int


class CheckpointAlignmentSummaries(TypedDict):
    """Always 0."""

    buffered: StatsSummary
    processed: StatsSummary
    persisted: StatsSummary
    duration: StatsSummary


class SubtaskSummary(TypedDict):
    """Of the subtasks that have answered."""

    checkpointed_size: StatsSummary
    state_size: StatsSummary
    end_to_end_duration: StatsSummary
    checkpoint_duration: CheckpointDurationSummaries
    alignment: CheckpointAlignmentSummaries
    start_delay: StatsSummary


SubtaskOfCheckpoint = TypedDict(
    "SubtaskOfCheckpoint",
    {
        "className": str,
        "index": int,
        "status": str,
        "ack_timestamp": NotRequired[int],
        "end_to_end_duration": NotRequired[int],
        "checkpointed_size": NotRequired[int],
        "state_size": NotRequired[int],
        "checkpoint": NotRequired[CheckpointDurations],
        "alignment": NotRequired[CheckpointAlignment],
        "start_delay": NotRequired[int],
        "unaligned_checkpoint": NotRequired[bool],
        "aborted": NotRequired[bool],
        "uid": NotRequired[str],
        "query-id": NotRequired[str],
        "batch-id": NotRequired[int],
        "state-rows": NotRequired[int],
    },
)
"""`className` completed: with all fields; pending: index and status only, as Flink has them."""


class TaskOfCheckpointDetails(_TaskOfCheckpointFields):
    """A vertex of one checkpoint with each of its subtasks."""

    summary: SubtaskSummary
    subtasks: list[SubtaskOfCheckpoint]
