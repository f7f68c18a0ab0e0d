"""Forward groups (Flink's ForwardGroup): vertices that forward edges join have one parallelism (R66)."""

from __future__ import annotations

from collections.abc import Mapping

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import VertexId
from runtime.jobgraph.graph import JobGraph, JobVertex
from runtime.jobgraph.limits import PARALLELISM_MAX
from runtime.jobgraph.regions import topological_order


def forward_groups(graph: JobGraph) -> Mapping[VertexId, VertexId]:
    """Of each vertex without a parallelism of its own: the vertex that names its group."""
    leader = {vertex.id: vertex.id for vertex in graph.vertices if vertex.is_auto}

    def find(vertex_id: VertexId) -> VertexId:
        while leader[vertex_id] != vertex_id:
            leader[vertex_id] = vertex_id = leader[leader[vertex_id]]
        return vertex_id

    for edge in graph.edges:
        if edge.mode is ExchangeMode.FORWARD and edge.target in leader and edge.source in leader:
            leader[find(edge.target)] = find(edge.source)
    return {vertex_id: find(vertex_id) for vertex_id in leader}


def known_parallelism(graph: JobGraph, groups: Mapping[VertexId, VertexId]) -> dict[VertexId, int]:
    """The parallelism of each vertex that needs no data to be known: its own one, or that of the splits of a source.

    It follows from the graph alone, so each owner of a job finds the same.
    """
    if not groups:  # most jobs: nothing is to be found out
        return {vertex.id: vertex.parallelism for vertex in graph.vertices}
    of_group: dict[VertexId, int] = {}
    most: dict[VertexId, int] = {}
    for vertex_id, group in groups.items():
        most[group] = min(graph.vertex(vertex_id).max_parallelism, most.get(group, PARALLELISM_MAX))
    known: dict[VertexId, int] = {}
    for vertex_id in topological_order(graph):
        vertex = graph.vertex(vertex_id)
        edges = graph.in_edges(vertex_id)
        if not vertex.is_auto:
            known[vertex_id] = vertex.parallelism
            continue
        if not edges:
            known[vertex_id] = of_group.setdefault(groups[vertex_id], _of_source(vertex, most[groups[vertex_id]]))
        elif groups[vertex_id] in of_group and not any(edge.mode.divides for edge in edges):
            known[vertex_id] = of_group[groups[vertex_id]]
    return known


def _of_source(vertex: JobVertex, most: int) -> int:
    """A subtask for each split; without splits each subtask would read everything."""
    return max(1, min(len(vertex.splits or ()), most))
