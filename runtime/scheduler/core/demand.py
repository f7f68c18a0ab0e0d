"""What wants to run: regions become runnable when their inputs are durable, and their subtasks queue per slot kind.

Invariants: a region is started once, all its vertices together; a subtask is queued only when every partition it reads
is accepted (R10); *anticipated* subtasks are those whose inputs are all FINISHED but not durable yet: they keep slots
and count as required, and are never deployed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from runtime.common.ids import VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.gateways.resource_manager import ResourceRequirement
from runtime.gateways.task import ResourceProfile
from runtime.jobgraph.regions import pipelined_regions
from runtime.scheduler.core.slot_pool import ActiveSlot, SlotKind

_OCCUPYING = (
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
    ExecutionState.CANCELING,
)


class Region:
    """Vertices that run at the same time, and the vertices whose results they read."""

    __slots__ = ("producers", "vertices")

    def __init__(self, vertices: tuple[ExecutionJobVertex, ...], producers: tuple[ExecutionJobVertex, ...]) -> None:
        self.vertices = vertices
        self.producers = producers


class Demand:
    """Regions that have not started, and the queues of subtasks that can."""

    __slots__ = ("_graph", "_queues", "_waiting", "kinds")

    def __init__(self, graph: ExecutionGraph) -> None:
        assert graph.job_graph is not None, graph.job_id
        self._graph = graph
        self.kinds = {vertex.id: kind_of(vertex) for vertex in graph.vertices.values()}
        self._queues: dict[SlotKind, deque[Execution]] = {}
        self._waiting = [self._region(members) for members in pipelined_regions(graph.job_graph)]

    def _region(self, members: frozenset[VertexId]) -> Region:
        vertices = tuple(vertex for vertex in self._graph.vertices.values() if vertex.id in members)
        sources = {edge.source for vertex in vertices for edge in vertex.inputs} - members
        return Region(vertices, tuple(vertex for vertex in self._graph.vertices.values() if vertex.id in sources))

    def take_ready(self) -> list[ExecutionJobVertex]:
        """The vertices whose inputs have become durable; the caller schedules and then enqueues their attempts."""
        ready = [region for region in self._waiting if all(vertex.is_accepted for vertex in region.producers)]
        if ready:
            self._waiting = [region for region in self._waiting if region not in ready]
        return [vertex for region in ready for vertex in region.vertices]

    def enqueue(self, execution: Execution) -> None:
        """An attempt is SCHEDULED: it takes the next slot of its kind."""
        kind = self.kinds[execution.attempt_id.vertex_id]
        self._queues.setdefault(kind, deque()).append(execution)

    def clear(self) -> None:
        """Nothing is to be started any more."""
        self._queues.clear()
        self._waiting.clear()

    def next_for(self, slot: ActiveSlot) -> Execution | None:
        """The attempt that an idle slot takes next, removed from its queue."""
        for kind, queue in self._queues.items():
            if queue and slot.fits(kind):
                return queue.popleft()
        return None

    def next_like(self, slot: ActiveSlot) -> Execution | None:
        """The next attempt of the vertex that a busy slot works on, removed from its queue."""
        queue = self._queues.get(slot.kind) if slot.kind is not None else None
        if queue and queue[0].attempt_id.vertex_id == slot.vertex_id:
            return queue.popleft()
        return None

    @property
    def has_queued(self) -> bool:
        """True when a subtask waits for a slot."""
        return any(self._queues.values())

    def open_counts(self) -> dict[SlotKind, int]:
        """Subtasks by kind that have no slot yet: queued and anticipated ones."""
        counts = self.anticipated_counts()
        for kind, queue in self._queues.items():
            counts[kind] = counts.get(kind, 0) + len(queue)
        return counts

    def anticipated_counts(self) -> dict[SlotKind, int]:
        """Subtasks by kind that will be runnable as soon as what is FINISHED is durable."""
        counts: dict[SlotKind, int] = {}
        for vertex in self._anticipated():
            kind = self.kinds[vertex.id]
            counts[kind] = counts.get(kind, 0) + vertex.parallelism
        return counts

    def _anticipated(self) -> Iterator[ExecutionJobVertex]:
        for region in self._waiting:
            if all(vertex.is_finished for vertex in region.producers):
                yield from region.vertices

    def requirements(self) -> tuple[ResourceRequirement, ...]:
        """Runnable, anticipated and running subtasks, per profile."""
        needed: dict[ResourceProfile, int] = {}
        anticipated = {vertex.id for vertex in self._anticipated()}
        for vertex in self._graph.vertices.values():
            count = sum(vertex.counts.get(state, 0) for state in _OCCUPYING)
            if vertex.id in anticipated:
                count = vertex.parallelism
            if count:
                profile = self.kinds[vertex.id].profile
                needed[profile] = needed.get(profile, 0) + count
        return tuple(ResourceRequirement(profile, count) for profile, count in needed.items())


def kind_of(vertex: ExecutionJobVertex) -> SlotKind:
    """What a vertex asks of a slot."""
    spec = vertex.vertex.resources
    profile = ResourceProfile(spec.cpu_cores, spec.memory_bytes, spec.spark_profile)
    return SlotKind(profile, vertex.vertex.slot_sharing_group)
