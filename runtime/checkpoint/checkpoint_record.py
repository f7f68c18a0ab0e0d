"""Checkpoints to their durable form and back."""

from __future__ import annotations

from runtime.checkpoint.core.checkpoints import CompletedCheckpoint, QueryPosition
from runtime.highavailability.records import CheckpointRecord, QueryPositionRecord


def checkpoint_record(checkpoint: CompletedCheckpoint) -> CheckpointRecord:
    """As it is stored."""
    return CheckpointRecord(
        checkpoint.checkpoint_id,
        checkpoint.trigger_millis,
        checkpoint.completed_millis,
        tuple(
            QueryPositionRecord(
                one.vertex_id,
                one.subtask_index,
                one.uid,
                one.query_id,
                one.batch_id,
                one.state_rows,
                one.state_bytes,
                one.acknowledged_millis,
            )
            for one in checkpoint.positions
        ),
    )


def checkpoint_of(record: CheckpointRecord) -> CompletedCheckpoint:
    """As an owner knows it."""
    return CompletedCheckpoint(
        record.checkpoint_id,
        record.trigger_millis,
        record.completed_millis,
        tuple(
            QueryPosition(
                one.vertex_id,
                one.subtask_index,
                one.uid,
                one.query_id,
                one.batch_id,
                one.state_rows,
                one.state_bytes,
                one.acknowledged_millis,
            )
            for one in record.positions
        ),
    )
