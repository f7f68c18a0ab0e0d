"""The checkpoints of a job as its archive has them, for REST and for whoever looks after the end of the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from runtime.checkpoint.core.checkpoint_coordinator import CheckpointCoordinator
from runtime.checkpoint.core.checkpoint_statistics import HISTORY_MAX
from runtime.checkpoint.core.checkpoints import CompletedCheckpoint, FailedCheckpoint, PendingCheckpoint
from runtime.checkpoint.core.stream_operations import StreamOperations
from runtime.common.ids import VertexId
from runtime.executiongraph.archived_checkpoints import (
    NO_SIZE,
    ArchivedCheckpoint,
    ArchivedCheckpoints,
    ArchivedSummary,
    CheckpointStatus,
    SubtaskOfCheckpoint,
)
from runtime.gateways.checkpoints import QueryPosition
from runtime.gateways.operations import StreamOperation

POSITIONS_MAX = 2_000
"""With more in all checkpoints that are shown, only the latest completed one has them: an archive is one message."""
_QUANTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


def archived_checkpoints(coordinator: CheckpointCoordinator) -> ArchivedCheckpoints:
    """What is shown of them now."""
    settings, told = coordinator.settings, coordinator.statistics
    retained = coordinator.retained
    latest, failed, restored = told.latest_completed, told.latest_failed, told.restored
    under_way = _under_way(coordinator)
    ended = [_ended(one, retained) for one in reversed(told.history)]
    history = [*([under_way] if under_way is not None else []), *ended]
    if sum(len(one.positions) + len(one.missing) for one in history) > POSITIONS_MAX:
        history = [replace(one, positions=(), missing=()) for one in history]
    return ArchivedCheckpoints(
        interval_millis=int(settings.interval * 1000),
        timeout_millis=int(settings.timeout * 1000),
        min_pause_millis=int(settings.min_pause * 1000),
        tolerable_failures=settings.tolerable_failures,
        restored_count=told.restored_count,
        in_progress_count=told.in_progress_count,
        completed_count=told.completed_count + told.savepoints_completed,
        failed_count=told.failed_count + told.savepoints_failed,
        state_bytes=summary_of([size for size, _ in told.samples]),
        duration_millis=summary_of([millis for _, millis in told.samples]),
        history=tuple(history),
        latest_completed=_completed(latest, retained) if latest is not None else None,
        latest_failed=replace(_failed(failed), positions=(), missing=()) if failed is not None else None,
        restored=replace(_completed(restored, retained), positions=()) if restored is not None else None,
        restored_millis=told.restored_millis if restored is not None else -1,
        retention=settings.retention,
    )


def with_savepoints(shown: ArchivedCheckpoints, operations: StreamOperations) -> ArchivedCheckpoints:
    """The same with the savepoints that the records of operations tell of, in one history by their numbers."""
    savepoints = [_savepoint(one, operations) for one in operations.all if one.directory]
    if not savepoints:
        return shown
    history = sorted((*shown.history, *savepoints), key=lambda one: -one.checkpoint_id)[: HISTORY_MAX + 1]
    completed = [one for one in savepoints if one.status is CheckpointStatus.COMPLETED]
    under_way = sum(one.status is CheckpointStatus.IN_PROGRESS for one in savepoints)
    return replace(
        shown,
        history=tuple(history),
        in_progress_count=shown.in_progress_count + under_way,
        latest_savepoint=max(completed, key=lambda one: one.checkpoint_id, default=None),
    )


def _savepoint(one: StreamOperation, operations: StreamOperations) -> ArchivedCheckpoint:
    total, acknowledged = operations.answers_of(one.trigger_id)
    ended = one.ended_millis or -1
    return ArchivedCheckpoint(
        checkpoint_id=one.checkpoint_id,
        status=CheckpointStatus[one.state.name],
        trigger_millis=one.trigger_millis,
        ended_millis=ended,
        latest_ack_millis=ended,
        state_bytes=one.size_bytes or NO_SIZE,
        tasks_total=total,
        tasks_acknowledged=acknowledged,
        failure=one.cause,
        savepoint=one.directory,
    )


def _under_way(coordinator: CheckpointCoordinator) -> ArchivedCheckpoint | None:
    """The one that queries are asked for, else the one whose record is being written."""
    if (pending := coordinator.pending) is not None:
        return _pending(pending)
    if (written := coordinator.writing) is not None:
        return replace(
            _completed(written, ()), status=CheckpointStatus.IN_PROGRESS, ended_millis=-1, is_discarded=False
        )
    return None


def _pending(one: PendingCheckpoint) -> ArchivedCheckpoint:
    awaited = sorted((attempt.vertex_id, attempt.subtask_index) for attempt in one.awaited)
    return ArchivedCheckpoint(
        checkpoint_id=one.checkpoint_id,
        status=CheckpointStatus.IN_PROGRESS,
        trigger_millis=one.trigger_millis,
        ended_millis=-1,
        latest_ack_millis=_latest(one.positions),
        state_bytes=sum(position.state_bytes for position in one.positions),
        tasks_total=one.tasks_total,
        tasks_acknowledged=len(one.positions),
        positions=one.positions,
        missing=_missing(awaited),
    )


def _ended(one: CompletedCheckpoint | FailedCheckpoint, retained: Sequence[int]) -> ArchivedCheckpoint:
    return _completed(one, retained) if isinstance(one, CompletedCheckpoint) else _failed(one)


def _completed(one: CompletedCheckpoint, retained: Sequence[int]) -> ArchivedCheckpoint:
    return ArchivedCheckpoint(
        checkpoint_id=one.checkpoint_id,
        status=CheckpointStatus.COMPLETED,
        trigger_millis=one.trigger_millis,
        ended_millis=one.completed_millis,
        latest_ack_millis=_latest(one.positions),
        state_bytes=one.state_bytes,
        tasks_total=len(one.positions),
        tasks_acknowledged=len(one.positions),
        is_discarded=one.checkpoint_id not in retained,
        positions=one.positions,
    )


def _failed(one: FailedCheckpoint) -> ArchivedCheckpoint:
    return ArchivedCheckpoint(
        checkpoint_id=one.checkpoint_id,
        status=CheckpointStatus.FAILED,
        trigger_millis=one.trigger_millis,
        ended_millis=one.failed_millis,
        latest_ack_millis=_latest(one.positions),
        state_bytes=sum(position.state_bytes for position in one.positions),
        tasks_total=one.tasks_total,
        tasks_acknowledged=one.tasks_acknowledged,
        failure=one.message,
        positions=one.positions,
        missing=_missing(one.missing),
    )


def _latest(positions: Sequence[QueryPosition]) -> int:
    return max((one.acknowledged_millis for one in positions), default=-1)


def _missing(awaited: Iterable[tuple[VertexId, int]]) -> tuple[SubtaskOfCheckpoint, ...]:
    return tuple(SubtaskOfCheckpoint(vertex_id, index) for vertex_id, index in awaited)


def summary_of(values: Sequence[int]) -> ArchivedSummary:
    """Least, most, mean and quantiles, as Flink interpolates them."""
    if not values:
        return ArchivedSummary()
    ordered = sorted(values)
    return ArchivedSummary(
        ordered[0],
        ordered[-1],
        sum(ordered) // len(ordered),
        tuple(_quantile(ordered, fraction) for fraction in _QUANTILES),
    )


def _quantile(ordered: Sequence[int], fraction: float) -> float:
    """Between the neighbours of position `fraction * (n + 1)`, counted from 1."""
    place = fraction * (len(ordered) + 1)
    below = int(place)
    if below < 1:
        return float(ordered[0])
    if below >= len(ordered):
        return float(ordered[-1])
    lower, upper = ordered[below - 1], ordered[below]
    return lower + (place - below) * (upper - lower)
