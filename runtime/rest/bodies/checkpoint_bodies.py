"""Flink's bodies of checkpoints, from what an archive has of them.

What Flink measures and this cluster has not is 0: there are no barriers to align, and a checkpoint writes no state, for
Spark has written it with each batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runtime.common.checkpoint_settings import CheckpointRetention
from runtime.common.ids import VertexId
from runtime.common.states import JobStatus
from runtime.common.stream_progress import NO_BATCH
from runtime.executiongraph.archived_checkpoints import (
    ArchivedCheckpoint,
    ArchivedCheckpoints,
    ArchivedSummary,
    CheckpointStatus,
)
from runtime.gateways.checkpoints import QueryPosition
from runtime.rest.bodies.schema import checkpoints as schema

NOT_ADDRESSABLE = "<checkpoint-not-externally-addressable>"
"""Flink's word for a checkpoint that no path leads to: no job can be started from it."""
SAVEPOINT_OF_ANOTHER_JOB = 0
"""The number of a savepoint that a job was started from: it was counted by the job that has made it."""
_CLASS_NAMES = {
    CheckpointStatus.COMPLETED: "completed",
    CheckpointStatus.FAILED: "failed",
    CheckpointStatus.IN_PROGRESS: "in_progress",
}
_NOTHING = ArchivedSummary()


def checkpoints(of: ArchivedCheckpoints) -> schema.Checkpoints:
    """The body of GET /jobs/:id/checkpoints."""
    total = of.in_progress_count + of.completed_count + of.failed_count
    none = _summary(_zeros(of.completed_count))
    return {
        "counts": {
            "restored": of.restored_count,
            "total": total,
            "in_progress": of.in_progress_count,
            "completed": of.completed_count,
            "failed": of.failed_count,
        },
        "summary": {
            "checkpointed_size": _summary(of.state_bytes),
            "state_size": _summary(of.state_bytes),
            "end_to_end_duration": _summary(of.duration_millis),
            "alignment_buffered": none,
            "processed_data": none,
            "persisted_data": none,
        },
        "latest": {
            "completed": _listed(of.latest_completed) if of.latest_completed is not None else None,
            "savepoint": _listed(of.latest_savepoint) if of.latest_savepoint is not None else None,
            "failed": _listed(of.latest_failed) if of.latest_failed is not None else None,
            "restored": _restored(of),
        },
        "history": [_listed(one) for one in of.history],
    }


def _restored(of: ArchivedCheckpoints) -> schema.RestoredCheckpoint | None:
    if of.restored is None and not of.restored_savepoint:
        return None
    return {
        "id": of.restored.checkpoint_id if of.restored is not None else SAVEPOINT_OF_ANOTHER_JOB,
        "restore_timestamp": of.restored_millis,
        "is_savepoint": of.restored is None,
        "external_path": NOT_ADDRESSABLE if of.restored is not None else of.restored_savepoint,
    }


def _listed(one: ArchivedCheckpoint) -> schema.Checkpoint:
    body: schema.Checkpoint = {
        "className": _CLASS_NAMES[one.status],
        "id": one.checkpoint_id,
        "status": one.status.value,
        "is_savepoint": bool(one.savepoint),
        "savepointFormat": "CANONICAL" if one.savepoint else None,
        "trigger_timestamp": one.trigger_millis,
        "latest_ack_timestamp": one.latest_ack_millis,
        "checkpointed_size": one.state_bytes,
        "state_size": one.state_bytes,
        "end_to_end_duration": one.duration_millis,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": one.tasks_total,
        "num_acknowledged_subtasks": one.tasks_acknowledged,
        "queries_without_batch": sum(1 for position in one.positions if position.batch_id == NO_BATCH),
        "checkpoint_type": "SAVEPOINT" if one.savepoint else "CHECKPOINT",
        "tasks": {},
    }
    if one.status is CheckpointStatus.COMPLETED:
        body["external_path"] = Path(one.savepoint).as_uri() if one.savepoint else NOT_ADDRESSABLE
        body["discarded"] = one.is_discarded
    elif one.status is CheckpointStatus.FAILED:
        body["failure_timestamp"] = one.ended_millis
        body["failure_message"] = one.failure
    return body


def checkpoint_details(one: ArchivedCheckpoint) -> schema.Checkpoint:
    """The body of GET /jobs/:id/checkpoints/details/:checkpoint."""
    vertices = dict.fromkeys([*(at.vertex_id for at in one.positions), *(at.vertex_id for at in one.missing)])
    return {
        **_listed(one),
        "tasks": {vertex_id: _task(one, vertex_id) for vertex_id in vertices},
        "positions": [_position(position) for position in one.positions],
    }


def _task(one: ArchivedCheckpoint, vertex_id: VertexId) -> schema.TaskOfCheckpoint:
    found = [position for position in one.positions if position.vertex_id == vertex_id]
    missing = sum(1 for at in one.missing if at.vertex_id == vertex_id)
    size = sum(position.state_bytes for position in found)
    latest = max((position.acknowledged_millis for position in found), default=-1)
    return {
        "id": one.checkpoint_id,
        "status": one.status.value,
        "latest_ack_timestamp": latest,
        "checkpointed_size": size,
        "state_size": size,
        "end_to_end_duration": max(0, latest - one.trigger_millis) if found else -1,
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": len(found) + missing,
        "num_acknowledged_subtasks": len(found),
    }


def _position(one: QueryPosition) -> schema.PositionOfQuery:
    return {
        "vertex": one.vertex_id,
        "subtask": one.subtask_index,
        "uid": one.uid,
        "query-id": one.query_id,
        "batch-id": one.batch_id,
        "state-rows": one.state_rows,
        "state-bytes": one.state_bytes,
        "acknowledged": one.acknowledged_millis,
    }


def subtask_details(one: ArchivedCheckpoint, vertex_id: VertexId) -> schema.TaskOfCheckpointDetails | None:
    """The body of .../details/:checkpoint/subtasks/:vertex; None for a vertex that the checkpoint is not of."""
    found = [position for position in one.positions if position.vertex_id == vertex_id]
    missing = [at.subtask_index for at in one.missing if at.vertex_id == vertex_id]
    if not found and not missing:
        return None
    subtasks = [_answered(position, one.trigger_millis) for position in found]
    subtasks += [{"className": "pending", "index": index, "status": "pending_or_failed"} for index in missing]
    sizes = _summary(_of_values([position.state_bytes for position in found]))
    spent = [max(0, position.acknowledged_millis - one.trigger_millis) for position in found]
    none = _summary(_zeros(len(found)))
    return {
        **_task(one, vertex_id),
        "summary": {
            "checkpointed_size": sizes,
            "state_size": sizes,
            "end_to_end_duration": _summary(_of_values(spent)),
            "checkpoint_duration": {"sync": none, "async": none},
            "alignment": {"buffered": none, "processed": none, "persisted": none, "duration": none},
            "start_delay": none,
        },
        "subtasks": sorted(subtasks, key=lambda subtask: subtask["index"]),
    }


def _answered(one: QueryPosition, trigger_millis: int) -> schema.SubtaskOfCheckpoint:
    return {
        "className": "completed",
        "index": one.subtask_index,
        "status": "completed",
        "ack_timestamp": one.acknowledged_millis,
        "end_to_end_duration": max(0, one.acknowledged_millis - trigger_millis),
        "checkpointed_size": one.state_bytes,
        "state_size": one.state_bytes,
        "checkpoint": {"sync": 0, "async": 0},
        "alignment": {"buffered": 0, "processed": 0, "persisted": 0, "duration": 0},
        "start_delay": 0,
        "unaligned_checkpoint": False,
        "aborted": False,
        "uid": one.uid,
        "query-id": one.query_id,
        "batch-id": one.batch_id,
        "state-rows": one.state_rows,
    }


def configuration(of: ArchivedCheckpoints) -> schema.CheckpointConfiguration:
    """The body of GET /jobs/:id/checkpoints/config."""
    return {
        "mode": "exactly_once",
        "interval": of.interval_millis,
        "timeout": of.timeout_millis,
        "min_pause": of.min_pause_millis,
        "max_concurrent": 1,
        "externalization": {
            "enabled": of.retention is not CheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS,
            "delete_on_cancellation": of.retention.deletes(JobStatus.CANCELED),
        },
        "state_backend": "SparkStateStore",
        "checkpoint_storage": "SparkStreamingCheckpoints",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": of.tolerable_failures,
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
        "changelog_periodic_materialization_interval": 600_000,
        "changelog_storage": "memory",
    }


def _of_values(values: Sequence[int]) -> ArchivedSummary:
    """Without quantiles, which Flink does not have of subtasks either."""
    return ArchivedSummary(min(values), max(values), sum(values) // len(values)) if values else _NOTHING


def _zeros(count: int) -> ArchivedSummary:
    return ArchivedSummary(quantiles=(0.0,) * 5) if count else _NOTHING


def _summary(of: ArchivedSummary) -> schema.StatsSummary:
    quantiles: tuple[schema.Quantile, ...] = of.quantiles or ("NaN",) * 5
    p50, p90, p95, p99, p999 = quantiles
    return {
        "min": of.least,
        "max": of.most,
        "avg": of.mean,
        "p50": p50,
        "p90": p90,
        "p95": p95,
        "p99": p99,
        "p999": p999,
    }
