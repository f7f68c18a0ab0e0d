"""What the attempts of a job have counted, merged over the subtasks of each vertex (R57, D-116).

Invariants: of a subtask only the current attempt counts, and only while it runs or once it has FINISHED; so nothing
counts twice, whatever ran again. What it takes in an archive is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.common.accumulators import UserAccumulator, merged
from runtime.common.ids import VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.graph import ExecutionGraph

ENTRIES_OF_SUBTASKS_MAX = 5_000
"""With more of all subtasks, an archive has those of vertices only: it must fit into one message."""
ENTRIES_OF_VERTICES_MAX = 1_000
"""Of a job; the others, by vertex and name, are left out, and told."""
_DOES_NOT_COUNT = {ExecutionState.FAILED, ExecutionState.CANCELED, ExecutionState.CANCELING}


@dataclass(frozen=True, slots=True)
class Accumulators:
    """`has_each`: few enough to show those of each attempt. `left_out`: how many entries of vertices are missing."""

    of_vertices: Mapping[VertexId, tuple[UserAccumulator, ...]] = field(default_factory=dict)
    has_each: bool = True
    left_out: int = 0


_NOTHING = Accumulators()


def counted(graph: ExecutionGraph) -> Accumulators:
    """Those of all vertices now."""
    entries = sum(len(execution.accumulators) for execution in graph.executions())
    if not entries:
        return _NOTHING
    of_vertices: dict[VertexId, tuple[UserAccumulator, ...]] = {}
    room, left_out = ENTRIES_OF_VERTICES_MAX, 0
    for vertex in graph.vertices.values():
        counting = (one.accumulators for one in vertex.executions if one.state not in _DOES_NOT_COUNT)
        found = merged(counting)
        of_vertices[vertex.id] = found[:room]
        left_out += max(0, len(found) - room)
        room = max(0, room - len(found))
    return Accumulators(of_vertices, entries <= ENTRIES_OF_SUBTASKS_MAX, left_out)
