"""Reports of attempts: the order in which they count, and reports of attempts that have ended already.

Invariant (R36): a report of an attempt that counted as lost, or was replaced, has no effect, with one exception: if it
says that user code has failed for good, and no other attempt of the subtask has begun, the job fails.
"""

from __future__ import annotations

from collections.abc import Iterable

from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.task import FailureInfo, TaskExecutionReport, TaskMetrics
from runtime.scheduler.core.failover.failover import Failover
from runtime.scheduler.core.slots.placement import Placement
from runtime.scheduler.core.task_managers.outbox import Outbox


def failures_last(reports: Iterable[TaskExecutionReport]) -> list[TaskExecutionReport]:
    """FINISHED counts first: a failure might cancel an attempt that has taken effect, and it would run again (R17)."""
    return sorted(reports, key=lambda report: report.state is ExecutionState.FAILED)


def failed_report(attempt_id: ExecutionAttemptId, failure: FailureInfo, millis: int) -> TaskExecutionReport:
    """The report of an attempt that could not be sent to any TaskManager."""
    return TaskExecutionReport(attempt_id, ExecutionState.FAILED, millis, failure, b"", (), (), TaskMetrics())


class LateReports:
    """Handles late reports of one job."""

    __slots__ = ("_failover", "_graph", "_outbox", "_placement")

    def __init__(self, graph: ExecutionGraph, placement: Placement, failover: Failover, outbox: Outbox) -> None:
        self._graph = graph
        self._placement = placement
        self._failover = failover
        self._outbox = outbox

    def take(self, report: TaskExecutionReport) -> tuple[FailureInfo, Execution | None] | None:
        """Tell the TaskManager what to do with the attempt.

        Returns the failure by which the job must fail, and its attempt; None if the job goes on.
        """
        execution = self._graph.execution(report.attempt_id)
        if execution is None or execution.location is None:
            execution = self._graph.prior_execution(report.attempt_id)
            if execution is not None and execution.location is not None:
                # It is to be stopped, and forgotten.
                letter = self._outbox.to(execution.location.incarnation)  # it reports, so it is connected
                (letter.acknowledged if report.state.is_terminal else letter.cancelled).append(execution.attempt_id)
        elif execution.is_accepted and report.state.is_terminal:  # R11: told again on a new stream
            self._placement.acknowledge(execution)
        if report.failure is None or report.state is not ExecutionState.FAILED:
            return None
        waiting = self._not_begun(report.attempt_id)
        problem = self._failover.final([waiting], report.failure) if waiting is not None else ""
        return (self._failover.suppressed(report.failure, problem), execution) if problem else None

    def _not_begun(self, attempt_id: ExecutionAttemptId) -> Execution | None:
        """The current attempt of the subtask, if it is the reported one or has not begun."""
        vertex = self._graph.vertices.get(attempt_id.vertex_id)
        if vertex is None or not 0 <= attempt_id.subtask_index < vertex.parallelism:
            return None
        current = vertex.executions[attempt_id.subtask_index]
        if current.is_accepted:
            return None
        return current if current.attempt_id == attempt_id or current.location is None else None
