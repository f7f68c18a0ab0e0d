"""Checkpoints to their durable form and back."""

from __future__ import annotations

from runtime.checkpoint.core.checkpoints import CompletedCheckpoint
from runtime.highavailability.records import CheckpointRecord


def checkpoint_record(one: CompletedCheckpoint) -> CheckpointRecord:
    """As it is stored."""
    return CheckpointRecord(one.checkpoint_id, one.trigger_millis, one.completed_millis, one.positions)


def checkpoint_of(record: CheckpointRecord) -> CompletedCheckpoint:
    """As an owner knows it."""
    return CompletedCheckpoint(record.checkpoint_id, record.trigger_millis, record.completed_millis, record.positions)
