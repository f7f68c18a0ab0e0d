"""Pipelined regions: the sets of vertices that must run at the same time, the units of scheduling and restart.

Every edge is blocking until there are streaming jobs, so each vertex is a region of its own now. The predicate
`pipelined` is a parameter.
"""

from __future__ import annotations

from collections.abc import Callable

from runtime.common.ids import VertexId
from runtime.jobgraph.graph import JobEdge, JobGraph


def is_pipelined(edge: JobEdge) -> bool:
    """True if producer and consumer of the edge run at the same time. False for all present modes."""
    del edge
    return False


def pipelined_regions(
    graph: JobGraph, *, pipelined: Callable[[JobEdge], bool] = is_pipelined
) -> tuple[frozenset[VertexId], ...]:
    """The connected components over pipelined edges, in topological order of the blocking edges between them."""
    leader = {vertex.id: vertex.id for vertex in graph.vertices}

    def find(vertex_id: VertexId) -> VertexId:
        while leader[vertex_id] != vertex_id:
            leader[vertex_id] = vertex_id = leader[leader[vertex_id]]
        return vertex_id

    for edge in graph.edges:
        if pipelined(edge):
            leader[find(edge.target)] = find(edge.source)
    members: dict[VertexId, set[VertexId]] = {}
    for vertex_id in topological_order(graph):
        members.setdefault(find(vertex_id), set()).add(vertex_id)
    waits_for = {region: set[VertexId]() for region in members}
    for edge in graph.edges:
        producer, consumer = find(edge.source), find(edge.target)
        if producer != consumer:
            waits_for[consumer].add(producer)
    return tuple(frozenset(members[region]) for region in _ordered(list(members), waits_for))


def topological_order(graph: JobGraph) -> tuple[VertexId, ...]:
    """The vertices, producers before consumers; vertices of one depth are in the graph's order."""
    waits_for: dict[VertexId, set[VertexId]] = {vertex.id: set() for vertex in graph.vertices}
    for edge in graph.edges:
        waits_for[edge.target].add(edge.source)
    return _ordered([vertex.id for vertex in graph.vertices], waits_for)


def _ordered(items: list[VertexId], waits_for: dict[VertexId, set[VertexId]]) -> tuple[VertexId, ...]:
    consumers: dict[VertexId, list[VertexId]] = {item: [] for item in items}
    for item in items:
        for producer in waits_for[item]:
            consumers[producer].append(item)
    missing = {item: len(waits_for[item]) for item in items}
    position = {item: number for number, item in enumerate(items)}
    ready = [item for item in items if not missing[item]]
    ordered: list[VertexId] = []
    while ready:
        ordered.extend(ready)
        unblocked: list[VertexId] = []
        for producer in ready:
            for item in consumers[producer]:
                missing[item] -= 1
                if not missing[item]:
                    unblocked.append(item)
        ready = sorted(unblocked, key=position.__getitem__)
    assert len(ordered) == len(items), "graph has a cycle: it was not validated"
    return tuple(ordered)
