"""Bounds of the parallelism of vertices, and how slots are divided among those that could take more (R69). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from runtime.common.ids import VertexId
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.gateways.rescales import VertexBounds

NOT_ADAPTIVE = (
    "the job keeps its parallelism: a streaming job is rescaled where jobmanager.scheduler is Adaptive, or "
    "scheduler-mode is reactive, when it is submitted"
)
QUERIES_PER_SLOT_MAX = 20
"""So many queries of one slot process are watched (`spark_host/stream_progress.py`)."""


def can_rescale(vertex: ExecutionJobVertex) -> bool:
    """True for a streaming query with splits that does not end by itself, and that exchanges no data (R68)."""
    sink = vertex.vertex.stream_sink
    ends = sink is not None and sink.trigger is not None and sink.trigger.ends
    return sink is not None and not ends and bool(vertex.vertex.splits) and not (vertex.inputs or vertex.outputs)


def smallest(vertex: ExecutionJobVertex) -> int:
    """The fewest subtasks that run all queries of a vertex."""
    return -(-vertex.queries // QUERIES_PER_SLOT_MAX)


def initial_bounds(graph: ExecutionGraph, *, is_reactive: bool) -> dict[VertexId, VertexBounds]:
    """Of each vertex that can be rescaled: from one subtask to as many as the graph says, or as it has splits."""
    found = {}
    for vertex in graph.vertices.values():
        if vertex.queries:
            asked = vertex.queries if is_reactive else min(vertex.vertex.parallelism, vertex.queries)
            lower = smallest(vertex)
            found[vertex.id] = VertexBounds(vertex.id, lower, max(lower, asked))
    return found


def bounds_problems(graph: ExecutionGraph, bounds: Sequence[VertexBounds]) -> Iterator[str]:
    """Every problem of bounds that a client wants, as one sentence each."""
    if len({one.vertex_id for one in bounds}) < len(bounds):
        yield "a vertex is named twice"
    for one in bounds:
        vertex = graph.vertices.get(one.vertex_id)
        if vertex is None:
            yield f"the job has no vertex {one.vertex_id}"
            continue
        name = vertex.vertex.name
        if not 1 <= one.lower <= one.upper:
            yield f"{name!r} from {one.lower} to {one.upper}: a lower bound is at least 1, and at most the upper one"
        elif vertex.queries and one.upper > vertex.queries:
            yield f"{name!r} has {vertex.queries} splits, so at most as many subtasks, and {one.upper} are wanted"
        elif vertex.queries and one.lower < smallest(vertex):
            yield (
                f"{name!r} has {vertex.queries} splits, and a subtask runs at most {QUERIES_PER_SLOT_MAX} queries: "
                f"its lower bound is at least {smallest(vertex)}"
            )
        elif not vertex.queries and (one.lower, one.upper) != (vertex.parallelism, vertex.parallelism):
            yield (
                f"{name!r} keeps its {vertex.parallelism} subtasks: only streaming queries with splits, which do not "
                "end by themselves and exchange no data with other vertices, are rescaled"
            )


def divided(slots: int, bounds: Sequence[VertexBounds]) -> dict[VertexId, int] | None:
    """How many subtasks each vertex has with so many slots: evenly, within its bounds. None with too few slots."""
    found = {one.vertex_id: one.lower for one in bounds}
    left = slots - sum(found.values())
    if left < 0:
        return None
    upper = {one.vertex_id: one.upper for one in bounds}
    while left > 0:
        growing = [vertex_id for vertex_id, count in found.items() if count < upper[vertex_id]]
        if not growing:
            break
        found[min(growing, key=found.__getitem__)] += 1
        left -= 1
    return found


def shown_bounds(graph: ExecutionGraph, bounds: Mapping[VertexId, VertexBounds]) -> tuple[VertexBounds, ...]:
    """Of all vertices; those that keep their parallelism have it as both bounds."""
    return tuple(
        bounds.get(vertex.id) or VertexBounds(vertex.id, vertex.parallelism, vertex.parallelism)
        for vertex in graph.vertices.values()
    )
