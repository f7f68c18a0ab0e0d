"""Which subtasks want a slot: regions become runnable when their inputs are durable; subtasks queue by slot kind.

Invariants: a region starts once, all its vertices together, and subtasks that are reset wait anew; a subtask is queued
only when every partition that it reads is accepted (R10). An *anticipated* subtask is one whose inputs are all FINISHED
but not durable yet: it keeps a slot and counts as required, and is not deployed. An *errand* counts in the same way: it
is work for a TaskManager at a time when the job knows none. A *speculative* attempt takes what the others leave, on a
TaskManager that has no other attempt of its subtask (R67). Slots that a vertex *wishes* count as anticipated: it has no
subtasks for them yet (R68).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from runtime.common.ids import Incarnation, VertexId
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.gateways.resource_manager import ResourceRequirement
from runtime.gateways.task import ResourceProfile
from runtime.jobgraph.regions import pipelined_regions
from runtime.scheduler.core.slots.slot_pool import ActiveSlot, SlotKind

_OCCUPYING = (
    ExecutionState.SCHEDULED,
    ExecutionState.DEPLOYING,
    ExecutionState.INITIALIZING,
    ExecutionState.RUNNING,
    ExecutionState.CANCELING,
)


class Region:
    """Subtasks that start at the same time, and the vertices whose results they read."""

    __slots__ = ("producers", "subtasks")

    def __init__(
        self,
        subtasks: tuple[tuple[ExecutionJobVertex, Sequence[int]], ...],
        producers: tuple[ExecutionJobVertex, ...],
    ) -> None:
        self.subtasks = subtasks
        self.producers = producers

    @property
    def is_ready(self) -> bool:
        """True when every partition that its subtasks read is durable."""
        return all(
            edge.is_complete or all(edge.has_inputs_of(index) for index in indices)
            for vertex, indices in self.subtasks
            for edge in vertex.inputs
        )


class Demand:
    """Regions that have not started, and the queues of subtasks that can."""

    __slots__ = ("_graph", "_members", "_queues", "_speculative", "_waiting", "errand", "kinds", "wished")

    def __init__(self, graph: ExecutionGraph) -> None:
        assert graph.job_graph is not None, graph.job_id
        self._graph = graph
        self.kinds = {vertex.id: kind_of(vertex) for vertex in graph.vertices.values()}
        self._queues: dict[SlotKind, deque[Execution]] = {}
        self._speculative: list[Execution] = []
        self._members = pipelined_regions(graph.job_graph)
        self._waiting: list[Region] = []
        self.errand: ExecutionJobVertex | None = None
        """A vertex for which something is left to do on any TaskManager that would give it a slot."""
        self.wished: dict[VertexId, int] = {}
        self.wait([execution for execution in graph.executions() if execution.state is ExecutionState.CREATED])

    def wait(self, executions: Sequence[Execution]) -> None:
        """Note attempts that are CREATED: each starts as soon as its inputs are durable."""
        indices: dict[VertexId, list[int]] = {}
        for execution in executions:
            indices.setdefault(execution.attempt_id.vertex_id, []).append(execution.attempt_id.subtask_index)
        for members in self._members:
            vertices = [vertex for vertex_id in members if (vertex := self._graph.vertices[vertex_id]).id in indices]
            if vertices:
                vertices.sort(key=lambda vertex: vertex.order)
                self._waiting.append(self._region(vertices, indices, members))

    def _region(
        self, vertices: list[ExecutionJobVertex], indices: dict[VertexId, list[int]], members: frozenset[VertexId]
    ) -> Region:
        sources = {edge.source for vertex in vertices for edge in vertex.inputs} - members
        producers = tuple(self._graph.vertices[vertex_id] for vertex_id in sources)
        return Region(tuple((vertex, indices[vertex.id]) for vertex in vertices), producers)

    def take_ready(self) -> list[tuple[ExecutionJobVertex, list[Execution]]]:
        """The attempts that have become runnable, by vertex; the caller schedules and then enqueues them."""
        ready = [region for region in self._waiting if region.is_ready]
        if ready:
            self._waiting = [region for region in self._waiting if region not in ready]
        return [
            (vertex, [vertex.executions[index] for index in indices])
            for region in ready
            for vertex, indices in region.subtasks
        ]

    def enqueue(self, execution: Execution) -> None:
        """An attempt is SCHEDULED: it takes the next slot of its kind."""
        kind = self.kinds[execution.attempt_id.vertex_id]
        self._queues.setdefault(kind, deque()).append(execution)

    def speculate(self, execution: Execution) -> None:
        """A speculative attempt is SCHEDULED."""
        self._speculative.append(execution)

    @property
    def speculative(self) -> Sequence[Execution]:
        """The speculative attempts that wait for a slot."""
        return self._speculative

    def next_speculative(self, slot: ActiveSlot) -> Execution | None:
        """The speculative attempt that an idle slot takes, removed from its queue."""
        for execution in self._speculative:
            kind = self.kinds[execution.attempt_id.vertex_id]
            if slot.fits(kind) and slot.location.incarnation not in self.places_of(execution):
                self._speculative.remove(execution)
                return execution
        return None

    def places_of(self, execution: Execution) -> set[Incarnation]:
        """The TaskManagers that have an attempt of the subtask."""
        current = self._graph.current(execution)
        attempts = self._graph.with_concurrent([current])
        return {one.location.incarnation for one in attempts if one.location is not None}

    def withdraw(self, executions: Sequence[Execution]) -> None:
        """Take attempts out of the queues: they get no slot."""
        unwanted = {execution.attempt_id for execution in executions}
        if self._speculative:
            self._speculative = [one for one in self._speculative if one.attempt_id not in unwanted]
        for kind in {self.kinds[attempt_id.vertex_id] for attempt_id in unwanted} & self._queues.keys():
            kept = (execution for execution in self._queues[kind] if execution.attempt_id not in unwanted)
            self._queues[kind] = deque(kept)

    def forget(self, vertex_id: VertexId) -> None:
        """The subtasks of a vertex that shares its region with no other one are replaced: none of them waits."""
        self._waiting = [one for one in self._waiting if all(vertex.id != vertex_id for vertex, _ in one.subtasks)]
        self.withdraw(
            [one for queue in self._queues.values() for one in queue if one.attempt_id.vertex_id == vertex_id]
        )

    def clear(self) -> None:
        """Nothing is to be started any more."""
        self.wished.clear()
        self._queues.clear()
        self._speculative.clear()
        self._waiting.clear()
        self.errand = None

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
        """Subtasks by kind that become runnable as soon as the FINISHED ones are durable."""
        counts: dict[SlotKind, int] = {}
        for vertex, count in self._anticipated():
            kind = self.kinds[vertex.id]
            counts[kind] = counts.get(kind, 0) + count
        return counts

    def _anticipated(self) -> Iterator[tuple[ExecutionJobVertex, int]]:
        if self.errand is not None:
            yield self.errand, 1
        yield from ((self._graph.vertices[vertex_id], count) for vertex_id, count in self.wished.items())
        for region in self._waiting:
            if all(vertex.is_finished for vertex in region.producers):
                yield from ((vertex, len(indices)) for vertex, indices in region.subtasks)

    def requirements(self, unseen: Mapping[VertexId, int]) -> tuple[ResourceRequirement, ...]:
        """Attempts that run or could, and anticipated subtasks, per profile.

        Without `unseen` ones, and without speculative attempts that wait.
        """
        needed: dict[ResourceProfile, int] = {}
        anticipated: dict[VertexId, int] = {}
        for vertex, count in self._anticipated():
            anticipated[vertex.id] = anticipated.get(vertex.id, 0) + count
        beside: dict[VertexId, int] = {}
        for execution in self._graph.concurrent:
            if execution.location is None:
                continue
            beside[execution.attempt_id.vertex_id] = beside.get(execution.attempt_id.vertex_id, 0) + 1
        for vertex in self._graph.vertices.values():
            count = beside.get(vertex.id, 0)
            count += sum(vertex.counts.get(state, 0) for state in _OCCUPYING) + anticipated.get(vertex.id, 0)
            count -= unseen.get(vertex.id, 0)
            if count:
                profile = self.kinds[vertex.id].profile
                needed[profile] = needed.get(profile, 0) + count
        return tuple(ResourceRequirement(profile, count) for profile, count in needed.items())


def kind_of(vertex: ExecutionJobVertex) -> SlotKind:
    """The slot kind that subtasks of a vertex need."""
    spec = vertex.vertex.resources
    profile = ResourceProfile(spec.cpu_cores, spec.memory_bytes, spec.spark_profile, spec.labels)
    return SlotKind(profile, vertex.vertex.slot_sharing_group)
