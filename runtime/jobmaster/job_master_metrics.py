"""What a process that runs JobMasters counts of them (D-110)."""

from __future__ import annotations

from runtime.gateways.operations import OperationKind, OperationState, StreamOperation
from runtime.metrics import table
from runtime.metrics.registry import NO_METRICS, MetricRegistry


class JobMasterMetrics:
    """The counters of all JobMasters of a process, bound once."""

    __slots__ = ("_ended", "preemptions", "restarts", "takeovers")

    def __init__(self, registry: MetricRegistry = NO_METRICS) -> None:
        self.restarts = registry.counter(table.RESTARTS)
        self.preemptions = registry.counter(table.PREEMPTIONS)
        self.takeovers = registry.counter(table.TAKEOVERS)
        self._ended = {
            (kind, outcome): registry.counter(table.CHECKPOINTS, kind, outcome)
            for kind in table.CHECKPOINT_KINDS
            for outcome in table.CHECKPOINT_OUTCOMES
        }

    def checkpoints_failed(self, count: int) -> None:
        """So many checkpoints of a job will not be made."""
        self._ended["checkpoint", "failed"].inc(count)

    def checkpoint_completed(self) -> None:
        """The record of a checkpoint is durable."""
        self._ended["checkpoint", "completed"].inc()

    def operation_ended(self, operation: StreamOperation) -> None:
        """The outcome of an operation is durable. A checkpoint on request counts with the other checkpoints."""
        if operation.kind is not OperationKind.CHECKPOINT and operation.state is not OperationState.IN_PROGRESS:
            self._ended["savepoint", operation.state.name.lower()].inc()


NO_JOB_MASTER_METRICS = JobMasterMetrics()
