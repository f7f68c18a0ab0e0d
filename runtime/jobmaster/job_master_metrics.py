"""What a process that runs JobMasters counts of them (D-110)."""

from __future__ import annotations

from runtime.gateways.operations import OperationKind, OperationState, StreamOperation
from runtime.metrics import table
from runtime.metrics.registry import NO_METRICS, MetricRegistry
from runtime.scheduler.core.speculation.speculative_execution import SpeculationCounts


class JobMasterMetrics:
    """The counters of all JobMasters of a process, bound once."""

    __slots__ = ("_effective", "_ended", "_slow", "_wasted", "preemptions", "restarts", "takeovers")

    def __init__(self, registry: MetricRegistry = NO_METRICS) -> None:
        self.restarts = registry.counter(table.RESTARTS)
        self.preemptions = registry.counter(table.PREEMPTIONS)
        self.takeovers = registry.counter(table.TAKEOVERS)
        self._slow = registry.counter(table.SLOW_SUBTASKS)
        self._effective, self._wasted = (
            registry.counter(table.SPECULATIVE_EXECUTIONS, outcome) for outcome in table.SPECULATION_OUTCOMES
        )
        self._ended = {
            (kind, outcome): registry.counter(table.CHECKPOINTS, kind, outcome)
            for kind in table.CHECKPOINT_KINDS
            for outcome in table.CHECKPOINT_OUTCOMES
        }

    def speculated(self, before: SpeculationCounts, after: SpeculationCounts) -> None:
        """What has come to the counts of a job."""
        self._slow.inc(after.slow - before.slow)
        self._effective.inc(after.effective - before.effective)
        self._wasted.inc(after.wasted - before.wasted)

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
