"""Flink's rule that derives the state of a vertex from the states of its subtasks."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.common.states import ExecutionState

_DOMINANT = (
    ExecutionState.FAILED,
    ExecutionState.CANCELING,
    ExecutionState.CANCELED,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
)


def aggregate_state(counts: Mapping[ExecutionState, int], parallelism: int) -> ExecutionState:
    """The state of a vertex with `parallelism` subtasks: the first dominant state of any subtask.

    Without a dominant state: RUNNING while some but not all are FINISHED, FINISHED when all are, otherwise CREATED.
    """
    for state in _DOMINANT:
        if counts.get(state, 0) > 0:
            return state
    finished = counts.get(ExecutionState.FINISHED, 0)
    if finished == 0:
        return ExecutionState.CREATED
    return ExecutionState.FINISHED if finished == parallelism else ExecutionState.RUNNING
