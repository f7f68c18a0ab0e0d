"""What the user code of simulated jobs computes: a digest of who it is and of everything that it has read.

So a job's result says which subtask read what: of whose partitions, which files of them, and which splits. `expected`
says the same from the job graph alone, without any of the product's own reckoning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import ExecutionAttemptId, JobId, PartitionId, VertexId
from runtime.gateways.task import PartitionDescriptor, PartitionKind, ResultPartitionSpec, TaskDeploymentDescriptor
from runtime.jobgraph.graph import JobGraph, JobVertex
from tests.kit.control_plane.job_master_driver import parquet
from tests.kit.simulation.chosen_rows import expected_rows, files_of, joined, rows_read, tells_rows
from tests.kit.simulation.split_readers import splits_read

_FOR_ALL = -1
_ONE_FILE_EACH = frozenset({ExchangeMode.HASH, ExchangeMode.REBALANCE})
"""How producers write for these: one file for each consumer. For others one for all of them."""

_Inputs = list[list[tuple[str, list[int]]]]


class Exchange:
    """What attempts have written, for those that read it."""

    def __init__(self) -> None:
        self._written: dict[PartitionId, str] = {}

    def run(
        self, task: TaskDeploymentDescriptor, splits: Sequence[int] | None = None
    ) -> tuple[str, tuple[PartitionDescriptor, ...]]:
        """The value of an attempt that finishes, and what it leaves for others. `splits`: that it took on demand."""
        attempt_id = task.attempt_id
        inputs = [[self._read(partition) for partition in gate.partitions] for gate in task.inputs]
        if splits is not None:
            value = splits_read(splits)
        elif task.inputs and task.inputs[0].share is not None:
            value = rows_read(task.inputs[0], inputs[0])
        elif task.inputs and task.inputs[0].mode is ExchangeMode.FORWARD and tells_rows(inputs[0][0][0]):
            value = inputs[0][0][0]
        else:
            inputs = [_joined(read) for read in inputs]
            value = _computed(attempt_id.job_id, attempt_id.vertex_id, attempt_id.subtask_index, task.splits, inputs)
        has_rows = splits is None or bool(splits)
        written = tuple(_partition(attempt_id, spec, has_rows=has_rows) for spec in task.outputs)
        for partition in written:
            self._written[partition.partition_id] = value
        return value, written

    def _read(self, partition: PartitionDescriptor) -> tuple[str, list[int]]:
        return self._written[partition.partition_id], sorted(file.consumer for file in partition.files)


def expected(job_id: JobId, graph: JobGraph) -> object:
    """The value of the whole job, as its client sees it."""
    vertices = {vertex.id: vertex for vertex in graph.vertices}

    @cache
    def value(vertex_id: VertexId, index: int) -> str:
        vertex = vertices[vertex_id]
        into = next((one for one in graph.edges if one.target == vertex_id), None)
        if vertex.is_auto and into is not None:
            if into.mode is ExchangeMode.FORWARD:
                return value(into.source, 0)
            return expected_rows(
                value(into.source, producer) for producer in range(_parallelism(vertices[into.source]))
            )
        inputs: _Inputs = []
        for edge in sorted((one for one in graph.edges if one.target == vertex_id), key=lambda one: one.input_index):
            is_forward = edge.mode is ExchangeMode.FORWARD
            if vertices[edge.source].splits_on_demand:
                read_once = splits_read(range(len(vertices[edge.source].splits or ())))
                inputs.append([(read_once, [_FOR_ALL])])
                continue
            if vertices[edge.source].is_auto and vertices[edge.source].splits is None:
                inputs.append([(value(edge.source, 0), [_FOR_ALL])])
                continue
            producers: Sequence[int] = (index,) if is_forward else range(_parallelism(vertices[edge.source]))
            consumer = index if edge.mode in _ONE_FILE_EACH else _FOR_ALL
            inputs.append([(value(edge.source, producer), [consumer]) for producer in producers])
        return _computed(job_id, vertex_id, index, _share(vertex, index), inputs)

    sources = {edge.source for edge in graph.edges}
    ends = [vertex for vertex in graph.vertices if vertex.id not in sources]
    values = {vertex.name: [value(vertex.id, index) for index in range(vertex.parallelism)] for vertex in ends}
    return values[ends[0].name][0] if len(ends) == 1 and ends[0].parallelism == 1 else values


def _share(vertex: JobVertex, index: int) -> bytes:
    splits = [one for number, one in enumerate(vertex.splits or ()) if number % _parallelism(vertex) == index]
    return json.dumps(splits).encode()


def _parallelism(vertex: JobVertex) -> int:
    """A source whose parallelism is chosen has a subtask for each split."""
    return len(vertex.splits or ()) if vertex.is_auto else vertex.parallelism


def _joined(read: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """One entry for all subtasks of a vertex whose parallelism was chosen."""
    whole = joined(value for value, _ in read)
    return read if whole is None or not read else [(whole, [_FOR_ALL])]


def _computed(job_id: JobId, vertex_id: VertexId, index: int, splits: bytes, inputs: _Inputs) -> str:
    text = json.dumps([job_id, vertex_id, index, json.loads(splits or b"[]"), inputs])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _partition(
    attempt_id: ExecutionAttemptId, spec: ResultPartitionSpec, *, has_rows: bool = True
) -> PartitionDescriptor:
    if not has_rows:
        return PartitionDescriptor(PartitionId(attempt_id, spec.output), PartitionKind.NOTHING, "", "", (), b"")
    found = parquet(attempt_id, spec, per_consumer=spec.mode in _ONE_FILE_EACH)
    if spec.is_dynamic:
        found = replace(found, files=files_of(attempt_id.subtask_index, spec))
    return found
