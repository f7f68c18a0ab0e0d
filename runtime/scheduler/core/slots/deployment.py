"""Deployment descriptors: a part that all tasks of a job share, one of all subtasks of a vertex, one of the attempt.

Invariants: the shared parts are built once per job and vertex; splits are dealt out round robin, so which subtask gets
which split depends on the graph alone, unless subtasks take them on demand (R12); equal programs have equal reuse keys,
whatever uploads brought their files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from runtime.common.ids import AllocationId, JobId, VertexId
from runtime.common.namespaces import DEFAULT_NAMESPACE
from runtime.common.states import ExecutionState
from runtime.executiongraph.core.execution import Execution
from runtime.executiongraph.core.graph import ExecutionGraph, ExecutionJobVertex
from runtime.gateways.task import (
    BlobReference,
    JobInformation,
    QueryShare,
    ResultPartitionSpec,
    TaskDeploymentDescriptor,
    TaskInformation,
)
from runtime.jobgraph.graph import (
    Artifact,
    BlobCode,
    CodeReference,
    FunctionReference,
    JarCode,
    JobGraph,
    PickledCode,
    ScriptCode,
    dump_operators,
)
from runtime.jobgraph.savepoints import dump_query_settings
from runtime.jobgraph.splits import share_of

NO_SPLITS = b"[]"


class DeploymentFactory:
    """Builds descriptors for the attempts of one job."""

    __slots__ = ("_all_splits", "_graph", "_outputs", "_tasks", "job")

    def __init__(self, graph: ExecutionGraph) -> None:
        assert graph.job_graph is not None, graph.job_id
        self._graph = graph
        by_split = {vertex.vertex.stream_sink: vertex.queries for vertex in graph.vertices.values() if vertex.queries}
        queries = {sink.uid: number for sink, number in by_split.items() if sink is not None}
        self.job = job_information(graph.job_graph, graph.job_id, graph.epoch, graph.namespace, queries)
        self._tasks: dict[VertexId, TaskInformation] = {}
        self._all_splits: dict[VertexId, bytes] = {}
        self._outputs: dict[VertexId, tuple[ResultPartitionSpec, ...]] = {}

    def descriptor(self, execution: Execution, allocation_id: AllocationId) -> TaskDeploymentDescriptor:
        """Everything a slot needs. All inputs of the attempt must be accepted."""
        vertex = self._graph.vertex_of(execution)
        task = self._tasks.get(vertex.id)
        if task is None:
            task = self._tasks[vertex.id] = task_information(vertex)
            self._outputs[vertex.id] = tuple(edge.spec() for edge in vertex.outputs)
        index = execution.attempt_id.subtask_index
        return TaskDeploymentDescriptor(
            attempt_id=execution.attempt_id,
            allocation_id=allocation_id,
            ordinal=execution.ordinal,
            task=task,
            splits=self._splits_of(vertex, index),
            inputs=tuple(edge.gate(index) for edge in vertex.inputs),
            outputs=self._outputs[vertex.id],
            deployed_millis=execution.timestamps.get(ExecutionState.DEPLOYING, 0),
            is_first_to_begin=execution.is_first_to_begin,
            committed_batch=None if vertex.queries else vertex.committed.get(index),
            queries=queries_of(vertex, index),
            is_stopped=self._graph.finishes_queries and vertex.vertex.runs_queries,
        )

    def _splits_of(self, vertex: ExecutionJobVertex, subtask_index: int) -> bytes:
        """On demand an attempt is told by numbers which of all splits it has (R12)."""
        if vertex.handed is None or not vertex.vertex.splits:
            return splits_of(vertex, subtask_index)
        known = self._all_splits.get(vertex.id)
        if known is None:
            known = self._all_splits[vertex.id] = canonical(list(vertex.vertex.splits))
        return known

    def forget(self, vertex_id: VertexId) -> None:
        """The vertex has another parallelism."""
        self._tasks.pop(vertex_id, None)


def queries_of(vertex: ExecutionJobVertex, subtask_index: int) -> tuple[QueryShare, ...]:
    """The queries that a subtask runs, where it runs one for each of its splits (R68)."""
    numbers = share_of(range(vertex.queries), subtask_index, vertex.parallelism)
    return tuple(QueryShare(number, vertex.committed.get(number)) for number in numbers)


def splits_of(vertex: ExecutionJobVertex, subtask_index: int) -> bytes:
    """The subtask's share as a JSON list."""
    if not vertex.vertex.splits:
        return NO_SPLITS
    return canonical(list(share_of(vertex.vertex.splits, subtask_index, vertex.parallelism)))


def job_information(
    graph: JobGraph, job_id: JobId, epoch: int, namespace: str, queries: Mapping[str, int] | None = None
) -> JobInformation:
    """The part of a descriptor that all tasks of the job share. `queries`: how many there are where there is one for
    each split, by uid."""
    return JobInformation(
        job_id=job_id,
        job_name=graph.name,
        epoch=epoch,
        params=canonical(graph.params),
        spark_conf=canonical(graph.spark_conf),
        environment=canonical(graph.environment),
        py_files=_references(graph.py_files),
        files=_references(graph.files),
        archives=_references(graph.archives),
        wheels=_references(graph.wheels),
        jars=_references(graph.jars),
        reuse_key=reuse_key(graph, namespace),
        secrets=graph.secrets,
        namespace=namespace,
        savepoint=dump_query_settings(graph.savepoint, {**graph.queries, **(queries or {})}, graph.query_splits),
        checkpoint_name=graph.checkpoint_name,
    )


def task_information(vertex: ExecutionJobVertex) -> TaskInformation:
    """The part of a descriptor that all subtasks of the vertex share."""
    operators = vertex.vertex.operators
    artifacts = [artifact for operator in operators if (artifact := operator.code.artifact) is not None]
    return TaskInformation(
        vertex_id=vertex.id,
        vertex_name=vertex.vertex.name,
        operators=dump_operators(operators),
        code_blobs=_references(tuple(artifacts)),
        parallelism=vertex.parallelism,
        is_exclusive=vertex.is_exclusive,
        stream_uid=sink.uid if (sink := vertex.vertex.stream_sink) is not None else "",
        queries=vertex.queries,
        splits_on_demand=vertex.handed is not None,
    )


def reuse_key(graph: JobGraph, namespace: str = DEFAULT_NAMESPACE) -> str:
    """Equal for jobs that may run one after another in the same slot process (semantics.md, Slots and scheduling).

    Made of everything that shapes a process: code and files by digest (not by upload), Spark conf, environment, and the
    namespace and the names of secrets. Not of params, other names or parallelism. "" for a job with files that are
    fetched, whose content nothing tells: no other job may follow it.
    """
    if any(artifact.url for artifact in graph.artifacts()):
        return ""
    codes = {_code_identity(operator.code) for vertex in graph.vertices for operator in vertex.operators}
    files = {
        kind: [[artifact.name, artifact.sha256] for artifact in artifacts]
        for kind, artifacts in (
            ("py_files", graph.py_files),
            ("files", graph.files),
            ("archives", graph.archives),
            ("wheels", graph.wheels),
            ("jars", graph.jars),
        )
    }
    identity = {
        "code": sorted(codes),
        **files,
        "spark_conf": graph.spark_conf,
        "environment": graph.environment,
        "secrets": sorted(graph.secrets),
        "namespace": namespace,
    }
    return hashlib.sha256(canonical(identity)).hexdigest()


def canonical(value: Any) -> bytes:
    """The one JSON form of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _code_identity(code: CodeReference) -> str:
    match code:
        case FunctionReference(target=target):
            return f"reference {target}"
        case PickledCode(sha256=sha256, python=python):
            return f"pickled {sha256} {python}"
        case BlobCode(blob=blob, python=python):
            return f"pickled {blob.sha256} {python}"
        case ScriptCode(script=script):
            return f"script {script.sha256}"
        case JarCode(jar=jar):
            return f"jar {jar.sha256}"


def _references(artifacts: tuple[Artifact, ...]) -> tuple[BlobReference, ...]:
    return tuple(
        BlobReference(
            key=artifact.key or "",
            sha256=artifact.sha256,
            size_bytes=artifact.size_bytes,
            name=artifact.name,
            inline=artifact.inline_bytes(),
            url=artifact.url or "",
        )
        for artifact in artifacts
    )
