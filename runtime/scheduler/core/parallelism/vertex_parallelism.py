"""Gives subtasks to the vertices that have no parallelism of their own, as soon as what they read is finished.

Invariants: a vertex is decided once; the decision is recorded with the acceptance of the last producer or before, so no
subtask of it can start under one owner, and find another number of siblings under the next (R10, R66).
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime.executiongraph.core.edges import ExecutionEdge
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.gateways.task import PartitionDescriptor, PartitionFile, PartitionKind
from runtime.scheduler.core.acceptance import Acceptance
from runtime.scheduler.core.job_events import ParallelismDecided
from runtime.scheduler.core.parallelism.choice import InputSize, choose
from runtime.scheduler.core.parallelism.settings import AdaptiveSettings
from runtime.scheduler.core.split_assigner import listed


class VertexParallelism:
    """The undecided vertices of one job."""

    __slots__ = ("_acceptance", "_graph", "_settings", "_undecided")

    def __init__(self, graph: ExecutionGraph, acceptance: Acceptance, settings: AdaptiveSettings) -> None:
        self._graph = graph
        self._acceptance = acceptance
        self._settings = settings
        self._undecided = [vertex for vertex in graph.vertices.values() if not vertex.is_decided]

    def decide(self, at_millis: int) -> list[ExecutionJobVertex]:
        """Decide each vertex whose producers have all finished. Returns those: their subtasks are CREATED."""
        if not self._undecided:
            return []
        ready = [vertex for vertex in self._undecided if self._is_ready(vertex)]
        for vertex in ready:
            self._decide(vertex, at_millis)
        self._undecided = [vertex for vertex in self._undecided if not vertex.is_decided]
        return ready

    def _is_ready(self, vertex: ExecutionJobVertex) -> bool:
        return all(self._graph.vertices[edge.source].is_finished for edge in vertex.inputs)

    def _decide(self, vertex: ExecutionJobVertex, at_millis: int) -> None:
        choice = choose(
            [self._size(edge, brings_splits=vertex.vertex.is_source) for edge in vertex.inputs],
            self._settings,
            subpartitions=vertex.vertex.subpartitions,
            rows_per_task=vertex.vertex.rows_per_task,
            required=self._graph.decided_with(vertex.id),
            most=self._graph.group_maximum(vertex.id),
        )
        self._acceptance.record(ParallelismDecided(vertex.id, choice.shares, choice.broadcast, choice.reason))
        self._graph.decide(vertex.id, choice.shares, choice.broadcast, choice.reason, at_millis)

    def _size(self, edge: ExecutionEdge, *, brings_splits: bool) -> InputSize:
        sizes = [0] * edge.subpartitions
        rows, is_divided, splits = 0, edge.is_dynamic, 0
        for partition in self._partitions(edge):
            is_divided = is_divided and partition.kind is not PartitionKind.JSON
            sizes[0] += len(partition.inline)
            splits += listed(partition) if brings_splits else 0
            for file in partition.files:
                rows += file.rows
                for index, size in _spread(file, edge):
                    sizes[index] += size
        return InputSize(
            input_index=edge.edge.input_index,
            source_name=edge.source_name,
            sizes=tuple(sizes) if is_divided else (sum(sizes),),
            rows=rows,
            is_divided=is_divided,
            is_splittable=edge.edge.splittable,
            broadcast_below=edge.edge.broadcast_below,
            splits=splits if brings_splits else None,
        )

    def _partitions(self, edge: ExecutionEdge) -> Iterator[PartitionDescriptor]:
        """Of each producer: accepted, or finished and not durable yet."""
        for index, execution in enumerate(self._graph.vertices[edge.source].executions):
            accepted = edge.partition(index)
            if accepted is not None:
                yield accepted
            else:
                yield from (one for one in execution.partitions if one.partition_id.output == edge.output)


def _spread(file: PartitionFile, edge: ExecutionEdge) -> Iterator[tuple[int, int]]:
    """The bytes of a file by subpartition: those of the heaviest by its rows, the others about evenly.

    A file for all consumers counts once.
    """
    if not edge.is_dynamic or file.consumer < 0:
        yield 0, file.size_bytes
        return
    numbers = range(file.consumer, min(file.consumer + max(file.span, 1), edge.subpartitions))
    left = file.size_bytes
    if file.heaviest in numbers and len(numbers) > 1 and file.rows:
        heavy = file.size_bytes * min(file.heaviest_rows, file.rows) // file.rows
        yield file.heaviest, heavy
        left -= heavy
        numbers_left = [number for number in numbers if number != file.heaviest]
    else:
        numbers_left = [*numbers]
    each, rest = divmod(left, max(len(numbers_left), 1))
    for offset, number in enumerate(numbers_left):
        yield number, each + (offset < rest)
