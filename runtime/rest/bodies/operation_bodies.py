"""Flink's bodies of operations, from what is stored of them."""

from __future__ import annotations

from pathlib import Path

from runtime.gateways.operations import OperationState, SavepointDisposal, StreamOperation
from runtime.rest.bodies.java_throwable import serialized_throwable
from runtime.rest.bodies.schema import operations as schema

_CLASS = "org.apache.flink.runtime.checkpoint.CheckpointException"
_DISPOSAL_CLASS = "org.apache.flink.util.FlinkException"


def savepoint_operation(of: StreamOperation) -> schema.SavepointOperation:
    """The body of GET /jobs/:id/savepoints/:triggerid."""
    outcome: schema.SavepointOutcome | None = None
    if of.state is OperationState.COMPLETED:
        outcome = {"location": Path(of.directory).as_uri()}
    elif of.state is OperationState.FAILED:
        outcome = {"failure-cause": _cause(of)}
    return {"status": _status(of), "operation": outcome}


def checkpoint_operation(of: StreamOperation) -> schema.CheckpointOperation:
    """The body of GET /jobs/:id/checkpoints/:triggerid."""
    outcome: schema.CheckpointOutcome | None = None
    if of.state is OperationState.COMPLETED:
        outcome = {"checkpointId": of.checkpoint_id}
    elif of.state is OperationState.FAILED:
        outcome = {"failureCause": _cause(of)}
    return {"status": _status(of), "operation": outcome}


def disposal_operation(of: SavepointDisposal) -> schema.DisposalOperation:
    """The body of GET /savepoint-disposal/:triggerid."""
    outcome: schema.DisposalOutcome | None = None
    if of.state is OperationState.COMPLETED:
        outcome = {}
    elif of.state is OperationState.FAILED:
        outcome = {"failure-cause": _cause_of(f"Could not dispose savepoint {of.path}: {of.cause}", _DISPOSAL_CLASS)}
    return {"status": _status(of), "operation": outcome}


def _status(of: StreamOperation | SavepointDisposal) -> schema.OperationStatus:
    return {"id": "IN_PROGRESS" if of.state is OperationState.IN_PROGRESS else "COMPLETED"}


def _cause(of: StreamOperation) -> schema.CauseOfOperation:
    return _cause_of(of.cause, _CLASS)


def _cause_of(cause: str, of_class: str) -> schema.CauseOfOperation:
    trace = f"{of_class}: {cause}"
    return {
        "class": of_class,
        "stack-trace": trace,
        "serialized-throwable": serialized_throwable(of_class, cause, trace),
    }
