"""How many slots a job needs at least and can use at most, per slot sharing group and resources.

A slot runs one task at a time, and the vertices of a group use it one after the other, so one slot is enough; but
streaming queries that do not end keep theirs. The maximum is the largest number of subtasks that may be runnable at
once: the heaviest antichain of vertices.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from runtime.common.ids import VertexId
from runtime.jobgraph.graph import JobGraph, ResourceSpec
from runtime.jobgraph.regions import topological_order

EXACT_VERTICES_MAX = 200
"""For larger graphs `slots_max` is the sum of all parallelisms, which is an upper bound."""


@dataclass(frozen=True, slots=True)
class SlotNeed:
    """Slots of one kind: the job runs with `slots_min` and never uses more than `slots_max` at once."""

    slot_sharing_group: str
    resources: ResourceSpec
    vertices: tuple[VertexId, ...]
    slots_min: int
    slots_max: int


def slot_needs(graph: JobGraph) -> tuple[SlotNeed, ...]:
    """One entry per slot sharing group and resource spec, in the order of the graph's vertices."""
    kinds: dict[tuple[str, ResourceSpec], list[VertexId]] = {}
    for vertex in graph.vertices:
        kinds.setdefault((vertex.slot_sharing_group, vertex.resources), []).append(vertex.id)
    is_small = len(graph.vertices) <= EXACT_VERTICES_MAX
    later = _descendants(graph) if is_small else {}
    needs: list[SlotNeed] = []
    for (group, resources), members in kinds.items():
        weight = {member: graph.vertex(member).subpartitions for member in members}
        most = _heaviest_antichain(weight, later) if is_small else sum(weight.values())
        kept = sum(weight[member] for member in members if graph.vertex(member).is_unbounded)
        needs.append(SlotNeed(group, resources, tuple(members), max(1, kept), most))
    return tuple(needs)


def _descendants(graph: JobGraph) -> dict[VertexId, set[VertexId]]:
    later: dict[VertexId, set[VertexId]] = {}
    for vertex_id in reversed(topological_order(graph)):
        reached: set[VertexId] = set()
        for edge in graph.out_edges(vertex_id):
            reached.add(edge.target)
            reached |= later[edge.target]
        later[vertex_id] = reached
    return later


def _heaviest_antichain(weight: dict[VertexId, int], later: dict[VertexId, set[VertexId]]) -> int:
    """Dilworth with weights: the total minus a maximum flow from each vertex's copy to its descendants' copies."""
    left, right = dict(weight), dict(weight)
    flow: dict[VertexId, dict[VertexId, int]] = {vertex: {} for vertex in weight}
    pushed = 0
    while path := _augmenting_path(weight, later, left, right, flow):
        amount = min(left[path[0]], right[path[-1]])
        back_steps = [(path[i + 1], path[i]) for i in range(1, len(path) - 1, 2)]
        amount = min([amount, *(flow[producer][consumer] for producer, consumer in back_steps)])
        for i in range(0, len(path), 2):
            flow[path[i]][path[i + 1]] = flow[path[i]].get(path[i + 1], 0) + amount
        for producer, consumer in back_steps:
            flow[producer][consumer] -= amount
        left[path[0]] -= amount
        right[path[-1]] -= amount
        pushed += amount
    return sum(weight.values()) - pushed


def _augmenting_path(
    weight: dict[VertexId, int],
    later: dict[VertexId, set[VertexId]],
    left: dict[VertexId, int],
    right: dict[VertexId, int],
    flow: dict[VertexId, dict[VertexId, int]],
) -> list[VertexId]:
    """Producer, consumer, producer, ... consumer: forward over the order, back over flow that can be taken away."""
    came_from: dict[VertexId, VertexId] = {}
    went_back: dict[VertexId, VertexId | None] = {vertex: None for vertex in weight if left[vertex] > 0}
    queue = deque(went_back)
    while queue:
        producer = queue.popleft()
        for consumer in sorted(later[producer] & weight.keys()):
            if consumer in came_from:
                continue
            came_from[consumer] = producer
            if right[consumer] > 0:
                return _trace(consumer, came_from, went_back)
            for other, flows in flow.items():
                if flows.get(consumer, 0) > 0 and other not in went_back:
                    went_back[other] = consumer
                    queue.append(other)
    return []


def _trace(
    consumer: VertexId, came_from: dict[VertexId, VertexId], went_back: dict[VertexId, VertexId | None]
) -> list[VertexId]:
    path = [consumer, came_from[consumer]]
    while (before := went_back[path[-1]]) is not None:
        path += [before, came_from[before]]
    return path[::-1]
