"""The JobGraph: an immutable, versioned, JSON-serialisable DAG of operator chains.

Invariants: chains are already built (by the client), so every edge crosses a blocking exchange; a graph from
`runtime.jobgraph.parsing` has none of the problems that `runtime.jobgraph.validate` knows; equal graphs have equal
canonical JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import Annotated

from pydantic import BeforeValidator, FailFast, Field, JsonValue, TypeAdapter, ValidationError

from runtime.common.errors import InvalidInputError
from runtime.common.exchange import AUTO_PARALLELISM, ExchangeMode
from runtime.common.ids import VertexId
from runtime.common.labels import sorted_labels
from runtime.common.restart_strategies import UserFailures
from runtime.common.states import JobType
from runtime.common.version import JOB_GRAPH_SCHEMA_VERSION
from runtime.jobgraph.code import (
    INLINE_BYTES_MAX,
    PYTHON_VERSION,
    Artifact,
    BlobCode,
    CodeReference,
    FunctionReference,
    JarCode,
    JobGraphModel,
    PickledCode,
    ScriptCode,
)
from runtime.jobgraph.limits import EDGES_MAX, PROBLEMS_LISTED_MAX, PROBLEMS_SHOWN_MAX, VERTICES_MAX
from runtime.jobgraph.restart_strategy import RestartStrategyField
from runtime.jobgraph.savepoints import SavepointRestoreSettings
from runtime.jobgraph.splits import split_name
from runtime.jobgraph.streams import StreamSinkSpec

__all__ = [
    "AUTO_PARALLELISM",
    "DEFAULT_RESOURCES",
    "INLINE_BYTES_MAX",
    "PYTHON_VERSION",
    "Artifact",
    "BlobCode",
    "CodeReference",
    "ExchangeMode",
    "FunctionReference",
    "JarCode",
    "JobEdge",
    "JobGraph",
    "JobVertex",
    "Operator",
    "OperatorKind",
    "PickledCode",
    "ResourceSpec",
    "ScriptCode",
    "dump_operators",
    "parse_operators",
    "vertex_id_of",
]


class OperatorKind(Enum):
    """The API call that made an operator. `function` is a lone function (a decorated Airflow task), `jar` a Java or
    Scala application, `splits` finds those of a source. Map and apply behind a stream source are part of its streaming
    queries.
    """

    SOURCE = "source"
    MAP = "map"
    APPLY = "apply"
    SINK = "sink"
    SCRIPT = "script"
    FUNCTION = "function"
    JAR = "jar"
    SPLITS = "splits"
    STREAM_SOURCE = "stream-source"
    STREAM_SINK = "stream-sink"

    @property
    def is_application(self) -> bool:
        """True for whole spark-submit applications, whose effects are their own."""
        return self in {OperatorKind.SCRIPT, OperatorKind.JAR}


class Operator(JobGraphModel):
    """One function of a vertex: `fn(ctx, *inputs)`.

    `inputs` tells where each input comes from: the position of an earlier operator of the vertex, or `-1 - index` for
    an input of the vertex. None is a chain: the first operator has the inputs of the vertex, each other one its
    predecessor. `stream_sink` is set for stream sinks only.
    """

    name: str
    kind: OperatorKind
    code: CodeReference
    inputs: tuple[int, ...] | None = Field(default=None, exclude_if=lambda inputs: inputs is None)
    stream_sink: StreamSinkSpec | None = Field(default=None, exclude_if=lambda spec: spec is None)


def _sorted_labels(value: object) -> object:
    """One form for all that mean the same; what is none is left to the validator."""
    if isinstance(value, Mapping) or (isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)):
        return sorted_labels(value)
    return value


class ResourceSpec(JobGraphModel):
    """Resources of one subtask. 0 means a default slot's share, "" any spark profile.

    `labels`: those that its TaskManager has to have, `{"gpu": "a100"}` or `["gpu=a100"]`.
    """

    cpu_cores: float = 0.0
    memory_bytes: int = 0
    spark_profile: str = ""
    labels: Annotated[tuple[str, ...], FailFast(), BeforeValidator(_sorted_labels)] = Field(
        default=(), exclude_if=lambda labels: not labels
    )


DEFAULT_RESOURCES = ResourceSpec()
"""A default slot's share."""


class JobVertex(JobGraphModel):
    """A chain of operators that runs as one task per subtask."""

    id: VertexId
    name: str
    operators: Annotated[tuple[Operator, ...], FailFast()]
    parallelism: int = 1
    """AUTO_PARALLELISM: the scheduler chooses it, up to `max_parallelism`, when what the vertex reads is finished."""
    max_parallelism: int = 128
    slot_sharing_group: str = "default"
    resources: ResourceSpec = DEFAULT_RESOURCES
    exclusive: bool | None = None
    splits: tuple[JsonValue, ...] | None = None
    splits_on_demand: bool = Field(default=False, exclude_if=lambda is_set: not is_set)
    """Its subtasks take the splits one after the other, each when it has finished the one before (R12)."""
    rows_per_task: int | None = Field(default=None, exclude_if=lambda rows: rows is None)
    """With AUTO_PARALLELISM: the most rows that one subtask should read; None: their number does not matter."""

    @property
    def is_auto(self) -> bool:
        """True where the scheduler chooses the parallelism."""
        return self.parallelism == AUTO_PARALLELISM

    @property
    def subpartitions(self) -> int:
        """Into how many parts an edge that divides rows is written for this consumer."""
        return self.max_parallelism if self.is_auto else self.parallelism

    @property
    def is_source(self) -> bool:
        """True if it reads splits: what an edge brings it are those (a list that another vertex has found)."""
        return bool(self.operators) and self.operators[0].kind is OperatorKind.SOURCE

    @property
    def is_jar(self) -> bool:
        """True if it is a Java or Scala application."""
        return any(operator.kind is OperatorKind.JAR for operator in self.operators)

    @property
    def stream_sink(self) -> StreamSinkSpec | None:
        """What its streaming query asks for; None for a vertex of a batch."""
        return self.operators[-1].stream_sink if self.operators else None

    @property
    def is_unbounded(self) -> bool:
        """True for streaming queries that do not end by themselves."""
        sink = self.stream_sink
        return self.is_streaming_script or (sink is not None and (sink.trigger is None or not sink.trigger.ends))

    @property
    def is_streaming_script(self) -> bool:
        """True for a script that starts queries by itself, and was submitted as a streaming job (R63)."""
        codes = (operator.code for operator in self.operators)
        return any(isinstance(code, ScriptCode) and code.starts_queries for code in codes)

    @property
    def runs_queries(self) -> bool:
        """True if it runs streaming queries that keep state, so that a restart goes on where they were."""
        return self.stream_sink is not None or self.is_streaming_script

    def is_exclusive(self, graph: JobGraph) -> bool:
        """True if this vertex's code must never run twice at once (protocol.md, words)."""
        if self.stream_sink is not None:
            return True  # R59: two queries would write into one checkpoint directory
        if self.exclusive is not None:
            return self.exclusive
        return any(operator.kind.is_application for operator in self.operators) or not graph.out_edges(self.id)


class JobEdge(JobGraphModel):
    """A blocking exchange. `input_index` is the position of its DataFrame in the consumer's arguments, from 0."""

    source: VertexId
    target: VertexId
    mode: ExchangeMode
    key_columns: Annotated[tuple[str, ...], FailFast()] = ()
    input_index: int = 0
    splittable: bool = Field(default=False, exclude_if=lambda is_set: not is_set)
    """Rows of one key may go to several subtasks, which each get all rows of the other inputs with that key."""
    broadcast_below: int | None = Field(default=None, exclude_if=lambda size: size is None)
    """With fewer bytes than this, each subtask gets all rows of this input, and others are divided as suits."""


def _is_empty(configuration: dict[str, str]) -> bool:
    return not configuration


class JobGraph(JobGraphModel):
    """A whole job, without its id: the client chooses the id and sends it beside the graph."""

    schema_version: int = JOB_GRAPH_SCHEMA_VERSION
    name: str
    vertices: Annotated[tuple[JobVertex, ...], FailFast(), Field(max_length=VERTICES_MAX)]
    edges: Annotated[tuple[JobEdge, ...], FailFast(), Field(max_length=EDGES_MAX)] = ()
    params: dict[str, JsonValue] = Field(default_factory=dict)
    spark_conf: Annotated[dict[str, str], FailFast()] = Field(default_factory=dict)
    environment: Annotated[dict[str, str], FailFast()] = Field(default_factory=dict)
    py_files: Annotated[tuple[Artifact, ...], FailFast()] = ()
    files: Annotated[tuple[Artifact, ...], FailFast()] = ()
    archives: Annotated[tuple[Artifact, ...], FailFast()] = ()
    wheels: Annotated[tuple[Artifact, ...], FailFast()] = ()
    jars: Annotated[tuple[Artifact, ...], FailFast()] = Field(default=(), exclude_if=lambda jars: not jars)
    secrets: Annotated[tuple[str, ...], FailFast()] = ()
    execution_timeout_seconds: float | None = None
    restart_strategy: RestartStrategyField | None = None
    user_failures: UserFailures | None = None
    configuration: Annotated[dict[str, str], FailFast()] = Field(default_factory=dict, exclude_if=_is_empty)
    checkpoint_name: str = Field(default="", exclude_if=lambda name: not name)
    """Names the directory of the state of all streaming queries of the job, in place of its id; "": the id does."""
    client_version: str = ""
    savepoint: SavepointRestoreSettings | None = Field(default=None, exclude_if=lambda savepoint: savepoint is None)

    def canonical_json(self) -> bytes:
        """The JSON form that is stored and digested: sorted keys, no spaces, ASCII."""
        return _canonical(self.document())

    def document(self) -> dict[str, JsonValue]:
        """This graph as JSON. A field that earlier releases do not know is left out while it is not set (D-029)."""
        return self.model_dump(mode="json", exclude={"user_failures"} if self.user_failures is None else None)

    def digest(self) -> str:
        """sha256 of the canonical JSON, in hex."""
        return hashlib.sha256(self.canonical_json()).hexdigest()

    def vertex(self, vertex_id: VertexId) -> JobVertex:
        """The vertex with that id. KeyError if there is none."""
        return self.vertices_by_id[vertex_id]

    def in_edges(self, vertex_id: VertexId) -> Sequence[JobEdge]:
        """Edges into a vertex, by input index."""
        return self.edges_by_target.get(vertex_id, ())

    def out_edges(self, vertex_id: VertexId) -> Sequence[JobEdge]:
        """Edges out of a vertex. The position in this order is the `output` number of partitions."""
        return self.edges_by_source.get(vertex_id, ())

    @cached_property
    def vertices_by_id(self) -> dict[VertexId, JobVertex]:
        """Index of the vertices."""
        return {vertex.id: vertex for vertex in self.vertices}

    @cached_property
    def edges_by_source(self) -> dict[VertexId, tuple[JobEdge, ...]]:
        """Index of the edges by producer, in the graph's order."""
        return _grouped(self.edges, lambda edge: edge.source)

    @property
    def job_type(self) -> JobType:
        """Streaming if a query of it does not end by itself."""
        is_unbounded = any(vertex.is_unbounded for vertex in self.vertices)
        return JobType.STREAMING if is_unbounded else JobType.BATCH

    @property
    def queries(self) -> dict[str, int]:
        """The parallelism of each streaming query by its uid."""
        sinks = ((vertex.stream_sink, vertex.parallelism) for vertex in self.vertices)
        return {sink.uid: parallelism for sink, parallelism in sinks if sink is not None}

    @property
    def queries_by_split(self) -> dict[str, int]:
        """The same where queries that can be rescaled run once for each split (R68): those that have splits, do not
        end by themselves, and exchange no data.
        """
        connected = {end for edge in self.edges for end in (edge.source, edge.target)}
        alone = [vertex for vertex in self.vertices if vertex.id not in connected and vertex.splits]
        found = dict(self.queries)
        for vertex in alone:
            sink = vertex.stream_sink
            if sink is not None and (sink.trigger is None or not sink.trigger.ends):
                found[sink.uid] = len(vertex.splits or ())
        return found

    @property
    def query_splits(self) -> dict[str, tuple[str, ...]]:
        """The names of the splits of each streaming query that has some, by its uid."""
        return {
            vertex.stream_sink.uid: tuple(map(split_name, vertex.splits))
            for vertex in self.vertices
            if vertex.stream_sink is not None and vertex.splits
        }

    @cached_property
    def edges_by_target(self) -> dict[VertexId, tuple[JobEdge, ...]]:
        """Index of the edges by consumer, in the order of its arguments."""
        return _grouped(sorted(self.edges, key=lambda edge: edge.input_index), lambda edge: edge.target)

    def artifacts(self) -> tuple[Artifact, ...]:
        """Every file of the job: its own ones, then those of its code."""
        own = self.py_files + self.files + self.archives + self.wheels + self.jars
        codes = (operator.code.artifact for vertex in self.vertices for operator in vertex.operators)
        return own + tuple(artifact for artifact in codes if artifact is not None)

    def map_artifacts(self, change: Callable[[Artifact], Artifact]) -> JobGraph:
        """The same graph with `change` applied to every artifact. A client fills in keys this way after an upload."""
        return self.model_copy(
            update={
                **{
                    field: tuple(change(artifact) for artifact in getattr(self, field))
                    for field in ("py_files", "files", "archives", "wheels", "jars")
                },
                "vertices": tuple(_map_vertex(vertex, change) for vertex in self.vertices),
            }
        ).without_caches()

    def without_caches(self) -> JobGraph:
        """The same graph with empty indexes, which model_copy would keep."""
        return JobGraph.model_construct(**{name: getattr(self, name) for name in JobGraph.model_fields})


def vertex_id_of(name: str) -> VertexId:
    """The id of the vertex with that name. A name gives the same id in every build."""
    return VertexId(hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32])


_OPERATORS: TypeAdapter[tuple[Operator, ...]] = TypeAdapter(tuple[Operator, ...])


def dump_operators(operators: tuple[Operator, ...]) -> bytes:
    """A chain as canonical JSON, the form in which a slot process gets it."""
    return _canonical(_OPERATORS.dump_python(operators, mode="json"))


def parse_operators(data: bytes) -> tuple[Operator, ...]:
    """The inverse of `dump_operators`. Raises InvalidInputError."""
    try:
        return _OPERATORS.validate_json(data)
    except ValidationError as error:
        problems = validation_problems(error)
        message = f"operator chain is not well-formed: {'; '.join(problems)}"
        raise InvalidInputError(message, problems) from error


def validation_problems(error: ValidationError) -> tuple[str, ...]:
    """A pydantic error as one sentence per problem, without the input. Too many problems are counted only (R41)."""
    if error.error_count() > PROBLEMS_LISTED_MAX:
        return (f"it has {error.error_count()} problems: too many to list",)
    found = error.errors(include_input=False, include_url=False, include_context=False)
    sentences = [
        f"{'.'.join(str(part)[:60] for part in item['loc']) or 'input'}: {item['msg'][:300]}" for item in found
    ]
    more = len(sentences) - PROBLEMS_SHOWN_MAX
    return tuple(sentences[:PROBLEMS_SHOWN_MAX] + ([f"and {more} more problems"] if more > 0 else []))


def _canonical(value: JsonValue) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def _grouped(edges: Sequence[JobEdge], key: Callable[[JobEdge], VertexId]) -> dict[VertexId, tuple[JobEdge, ...]]:
    groups: defaultdict[VertexId, list[JobEdge]] = defaultdict(list)
    for edge in edges:
        groups[key(edge)].append(edge)
    return {vertex_id: tuple(group) for vertex_id, group in groups.items()}


def _map_vertex(vertex: JobVertex, change: Callable[[Artifact], Artifact]) -> JobVertex:
    operators = tuple(_map_operator(operator, change) for operator in vertex.operators)
    return vertex if operators == vertex.operators else vertex.model_copy(update={"operators": operators})


def _map_operator(operator: Operator, change: Callable[[Artifact], Artifact]) -> Operator:
    artifact = operator.code.artifact
    if artifact is None:
        return operator
    return operator.model_copy(update={"code": operator.code.with_artifact(change(artifact))})
