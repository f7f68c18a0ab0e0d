"""Checkpoints of a streaming job as data: the part of an archive that REST shows of them, live or archived.

Times are milliseconds since 1970, -1 for one that has not come.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from runtime.common.checkpoint_settings import CheckpointRetention
from runtime.common.ids import VertexId
from runtime.gateways.checkpoints import QueryPosition


class CheckpointStatus(Enum):
    """Flink's CheckpointStatsStatus."""

    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class SubtaskOfCheckpoint:
    """A query that was asked and has not answered."""

    vertex_id: VertexId
    subtask_index: int


NO_SIZE = -1
"""The size of a savepoint that is not whole, or whose record is of an earlier release."""


@dataclass(frozen=True, slots=True)
class ArchivedCheckpoint:
    """One checkpoint. `failure`: why there will be none. `is_discarded`: its record was dropped for a later one.
    `savepoint`: the directory of one that was asked for as a savepoint, "" for any other.
    `state_bytes`: of a savepoint the size of its files, NO_SIZE where that is not known.

    `positions` and `missing` are empty where an archive has too many of them: only the numbers are kept then.
    """

    checkpoint_id: int
    status: CheckpointStatus
    trigger_millis: int
    ended_millis: int
    latest_ack_millis: int
    state_bytes: int
    tasks_total: int
    tasks_acknowledged: int
    is_discarded: bool = False
    failure: str = ""
    positions: tuple[QueryPosition, ...] = ()
    missing: tuple[SubtaskOfCheckpoint, ...] = ()
    savepoint: str = ""

    @property
    def duration_millis(self) -> int:
        """From its trigger to the last answer, or to its failure; -1 while nothing has answered."""
        end = self.ended_millis if self.status is CheckpointStatus.FAILED else self.latest_ack_millis
        return max(0, end - self.trigger_millis) if end >= 0 else -1


@dataclass(frozen=True, slots=True)
class ArchivedSummary:
    """Of a number of completed checkpoints; `quantiles` are p50, p90, p95, p99, p999, none without a checkpoint."""

    least: int = 0
    most: int = 0
    mean: int = 0
    quantiles: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ArchivedCheckpoints:
    """All that is shown of a job's checkpoints. `interval_millis` 0: none is made by itself.

    `history` is newest first, with the one under way. Counts are those since the first owner, as far as records tell;
    `failed_count` is of this owner. The summaries are of the last completed ones. `restored_savepoint`: what queries
    were started from, as long as none has gone on behind a checkpoint, which is `restored` then.
    `retention`: of directories.
    """

    interval_millis: int
    timeout_millis: int
    min_pause_millis: int
    tolerable_failures: int
    restored_count: int = 0
    in_progress_count: int = 0
    completed_count: int = 0
    failed_count: int = 0
    state_bytes: ArchivedSummary = ArchivedSummary()
    duration_millis: ArchivedSummary = ArchivedSummary()
    history: tuple[ArchivedCheckpoint, ...] = ()
    latest_completed: ArchivedCheckpoint | None = None
    latest_failed: ArchivedCheckpoint | None = None
    restored: ArchivedCheckpoint | None = None
    restored_millis: int = -1
    restored_savepoint: str = ""
    retention: CheckpointRetention = CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    latest_savepoint: ArchivedCheckpoint | None = None

    def checkpoint(self, checkpoint_id: int) -> ArchivedCheckpoint | None:
        """The one with that number, None for one that is not kept any more."""
        kept = (*self.history, self.latest_completed, self.latest_failed, self.restored, self.latest_savepoint)
        return next((one for one in kept if one is not None and one.checkpoint_id == checkpoint_id), None)
