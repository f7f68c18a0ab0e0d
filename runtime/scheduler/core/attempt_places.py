"""Whether slots and attempts of a job agree."""

from __future__ import annotations

from runtime.common.states import ExecutionState
from runtime.executiongraph.core.graph import ExecutionGraph
from runtime.scheduler.core.slots.placement import ON_ITS_WAY, Placement
from runtime.scheduler.core.task_managers.losses import Losses


def check_places(graph: ExecutionGraph, placement: Placement, losses: Losses) -> None:
    """Raises AssertionError where an attempt is deployed nowhere, or is in a slot and is not, or lacks its inputs."""
    in_slots = {one for slot in placement.pool.allocations() for one in slot.attempts}
    for execution in graph.attempts():
        is_deployed = execution.state in ON_ITS_WAY or execution.state is ExecutionState.CANCELING
        is_somewhere = execution.attempt_id in in_slots or losses.holds(execution.attempt_id)
        assert is_deployed <= is_somewhere, (execution.attempt_id, execution.state)
        assert is_deployed or execution.attempt_id not in in_slots, (execution.attempt_id, execution.state)
        if execution.state in ON_ITS_WAY:
            index, inputs = execution.attempt_id.subtask_index, graph.vertex_of(execution).inputs
            assert all(edge.has_inputs_of(index) for edge in inputs), execution.attempt_id
