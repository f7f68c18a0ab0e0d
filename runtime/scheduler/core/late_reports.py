"""Reports of attempts that have ended before, as far as their owner knows: they counted as lost, or were replaced.

Invariant (R36): what such a report says of an attempt takes no effect any more, but for one thing. User code that has
failed for good is not begun again: as long as no other attempt of its subtask has begun, the job fails by it.
"""

from __future__ import annotations

from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.gateways.task import FailureInfo, TaskExecutionReport
from runtime.scheduler.core.outbox import Outbox
from runtime.scheduler.core.work import Work


def take(
    graph: ExecutionGraph, work: Work, outbox: Outbox, report: TaskExecutionReport
) -> tuple[FailureInfo, Execution | None] | None:
    """What the TaskManager has to know follows. Returns by which failure, of which attempt, the job must fail."""
    execution = graph.execution(report.attempt_id)
    if execution is None or execution.location is None:
        execution = graph.prior_execution(report.attempt_id)
        if execution is not None and execution.location is not None:
            # It is to be stopped, and forgotten.
            letter = outbox.to(execution.location.incarnation)  # whoever reports is connected
            (letter.acknowledged if report.state.is_terminal else letter.cancelled).append(execution.attempt_id)
    elif execution.is_accepted and report.state.is_terminal:  # R11: told again on a new stream
        work.placement.acknowledge(execution)
    if report.failure is None or report.state is not ExecutionState.FAILED:
        return None
    waiting = _not_begun(graph, report.attempt_id)
    problem = work.failover.final([waiting], report.failure) if waiting is not None else ""
    return (work.failover.suppressed(report.failure, problem), execution) if problem else None


def _not_begun(graph: ExecutionGraph, attempt_id: ExecutionAttemptId) -> Execution | None:
    """The attempt of its subtask that counts, if it is this one or has not begun."""
    vertex = graph.vertices.get(attempt_id.vertex_id)
    if vertex is None or not 0 <= attempt_id.subtask_index < vertex.parallelism:
        return None
    current = vertex.executions[attempt_id.subtask_index]
    if current.is_accepted:
        return None
    return current if current.attempt_id == attempt_id or current.location is None else None
