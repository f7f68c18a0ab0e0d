"""Checks of a JobGraph: one pass finds all problems.

Each check is a generator of sentences. None raises, however odd the graph is, so one mistake never hides another.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import VertexId, is_hex_id
from runtime.common.labels import label_problems
from runtime.common.version import JOB_GRAPH_SCHEMA_VERSION
from runtime.jobgraph import limits
from runtime.jobgraph.code import JarCode, ScriptCode
from runtime.jobgraph.graph import JobEdge, JobGraph, JobVertex, Operator, OperatorKind, ResourceSpec
from runtime.jobgraph.restart_strategy import restart_strategy_problems
from runtime.jobgraph.validate_code import artifact_problems, code_problems, file_name_problems
from runtime.jobgraph.validate_streams import stream_problems

ItemT = TypeVar("ItemT", bound=Hashable)

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}\Z")
_HEADS = frozenset({"source", "script", "function", "jar", "splits", "stream-source"})
_ALONE = frozenset({"script", "function", "jar", "splits"})
_APPLICATIONS = frozenset({"script", "jar"})
_INNER = frozenset({"map", "apply", "sink"})


def graph_problems(graph: JobGraph, *, python: str | None) -> Iterator[str]:
    """Every problem of the graph as one sentence each, at most PROBLEMS_SHOWN_MAX of them."""
    return islice(_all_problems(graph, python), limits.PROBLEMS_SHOWN_MAX)


def _all_problems(graph: JobGraph, python: str | None) -> Iterator[str]:
    yield from _job_problems(graph)
    yield from _identity_problems(graph)
    for vertex in graph.vertices:
        yield from _vertex_problems(vertex)
        yield from _chain_problems(vertex, python)
    yield from _edge_problems(graph)
    yield from _input_problems(graph)
    yield from _demand_problems(graph)
    yield from _cycle_problems(graph)
    yield from stream_problems(graph)
    yield from _file_problems(graph)


def _job_problems(graph: JobGraph) -> Iterator[str]:
    if graph.schema_version != JOB_GRAPH_SCHEMA_VERSION:
        yield f"schema version is {graph.schema_version}, this cluster speaks {JOB_GRAPH_SCHEMA_VERSION}"
    yield from _name_problems("job", graph.name)
    if not graph.vertices:
        yield "the job has no vertices"
    if len(graph.vertices) > limits.VERTICES_MAX:
        yield f"the job has {len(graph.vertices)} vertices, the limit is {limits.VERTICES_MAX}"
    subtasks = sum(max(vertex.parallelism, 0) for vertex in graph.vertices)
    if subtasks > limits.SUBTASKS_MAX:
        yield f"the job has {subtasks} subtasks, the limit is {limits.SUBTASKS_MAX}"
    yield from _option_problems(graph)
    yield from json_problems("params", graph.params)
    for name in graph.environment:
        if not _ENVIRONMENT_NAME.match(name):
            yield f"environment: {name[:80]!r} is not the name of an environment variable"
    yield from _secret_problems(graph.secrets)
    if any(vertex.is_jar for vertex in graph.vertices):
        yield from _application_problems(graph)
    for name, value in [*graph.environment.items(), *graph.spark_conf.items()]:
        if not name or "\0" in name or "\0" in value:
            yield f"{name[:80]!r}: names are not empty, and neither names nor values hold a NUL character"


def _option_problems(graph: JobGraph) -> Iterator[str]:
    timeout = graph.execution_timeout_seconds
    if timeout is not None and not timeout > 0:
        yield f"execution timeout is {timeout} s, it must be above 0"
    if graph.restart_strategy is not None:
        yield from restart_strategy_problems(graph.restart_strategy)


def _application_problems(graph: JobGraph) -> Iterator[str]:
    """Of a Java application: what has no meaning there, or no way to get there."""
    if len(graph.vertices) > 1:
        yield "a jar is the only vertex of its job"
    if graph.py_files or graph.wheels:
        yield "py-files and wheels are for Python: an application in a jar has jars"
    if graph.secrets:
        yield "secrets are read by Python code (task_secrets): give an application in a jar files, conf or environment"


def _secret_problems(secrets: tuple[str, ...]) -> Iterator[str]:
    if len(secrets) > limits.SECRETS_MAX:
        yield f"the job asks for {len(secrets)} secrets, the limit is {limits.SECRETS_MAX}"
    for name in secrets:
        if "=" in name:
            yield f"secrets: {name.partition('=')[0][:80]!r} has a value here: values are files of the TaskManagers"
        elif not _SECRET_NAME.match(name):
            yield f"secrets: {name[:80]!r} is not a secret's name: letters, digits, '_', '.' and '-', a letter first"
    for name in _duplicates(secrets):
        yield f"secret {name[:80]!r} is asked for more than once"


def _identity_problems(graph: JobGraph) -> Iterator[str]:
    for vertex_id in _duplicates(vertex.id for vertex in graph.vertices):
        yield f"vertex id {vertex_id[:80]!r} is used more than once"
    for name in _duplicates(vertex.name for vertex in graph.vertices):
        yield f"vertex name {name[:80]!r} is used more than once"
    for name in _duplicates(_operator_names(graph)):
        yield f"operator name {name[:80]!r} is used more than once"


def _operator_names(graph: JobGraph) -> Iterator[str]:
    """Names of operators; one that several streaming queries have in common counts once."""
    shared: dict[str, Operator] = {}
    for vertex in graph.vertices:
        for operator in vertex.operators:
            is_inner = vertex.stream_sink is not None and operator.kind is not OperatorKind.STREAM_SINK
            if not is_inner or shared.setdefault(operator.name, operator).code != operator.code:
                yield operator.name
    yield from shared


def _vertex_problems(vertex: JobVertex) -> Iterator[str]:
    label = f"vertex {vertex.name[:80]!r}"
    if not is_hex_id(vertex.id):
        yield f"{label}: id {vertex.id[:80]!r} is not 32 lower-case hex digits"
    yield from _name_problems("vertex", vertex.name, length_max=limits.NAME_LENGTH_MAX * 16)
    if vertex.parallelism < 1 and not vertex.is_auto:
        yield f"{label}: parallelism is {vertex.parallelism}, it must be at least 1, or -1 for one that is chosen"
    if vertex.is_auto and vertex.runs_queries:
        yield f"{label}: the state of a streaming query belongs to its parallelism: give it one"
    if vertex.rows_per_task is not None and not (vertex.is_auto and vertex.rows_per_task > 0):
        yield f"{label}: rows_per_task, at least 1, is for a vertex without a parallelism of its own"
    if vertex.parallelism > vertex.max_parallelism:
        yield f"{label}: parallelism {vertex.parallelism} is above its maximum parallelism {vertex.max_parallelism}"
    if not 1 <= vertex.max_parallelism <= limits.PARALLELISM_MAX:
        yield f"{label}: maximum parallelism {vertex.max_parallelism} is not within 1 and {limits.PARALLELISM_MAX}"
    if not vertex.slot_sharing_group:
        yield f"{label}: the slot sharing group has no name"
    yield from (f"{label}: {problem}" for problem in _resource_problems(vertex.resources))
    if vertex.splits is not None:
        yield from json_problems(f"{label}: splits", list(vertex.splits))


def _resource_problems(resources: ResourceSpec) -> Iterator[str]:
    if resources.cpu_cores < 0 or resources.memory_bytes < 0:
        yield "resources must not be negative"
    if resources.memory_bytes > limits.MEMORY_BYTES_MAX:
        yield f"resources must not have more than {limits.MEMORY_BYTES_MAX} bytes of memory"
    yield from label_problems(resources.labels)


def _chain_problems(vertex: JobVertex, python: str | None) -> Iterator[str]:
    label = f"vertex {vertex.name[:80]!r}"
    if not vertex.operators:
        yield f"{label} has no operators"
    if len(vertex.operators) > limits.OPERATORS_PER_VERTEX_MAX:
        yield f"{label} chains {len(vertex.operators)} operators, the limit is {limits.OPERATORS_PER_VERTEX_MAX}"
    for position, operator in enumerate(vertex.operators):
        kind = operator.kind.value
        yield from _name_problems("operator", operator.name)
        if position and kind not in _INNER and vertex.stream_sink is None:
            yield f"{label}: operator {operator.name[:80]!r} is a {kind} and can only be the first of a chain"
        if kind == "sink" and operator is not vertex.operators[-1]:
            yield f"{label}: sink {operator.name[:80]!r} is followed by another operator"
        if kind in _ALONE and len(vertex.operators) > 1:
            yield f"{label}: a {kind} is never chained"
        yield from _operator_code_problems(label, vertex, operator, python)


def _operator_code_problems(label: str, vertex: JobVertex, operator: Operator, python: str | None) -> Iterator[str]:
    kind, code_type = operator.kind.value, operator.code.type
    if kind != code_type and not _APPLICATIONS.isdisjoint({kind, code_type}):
        yield f"{label}: operator {operator.name[:80]!r} is a {kind} with code of type {code_type}"
    if kind in _APPLICATIONS and vertex.parallelism != 1:
        yield f"{label}: a {kind} has parallelism 1, not {vertex.parallelism}"
    for problem in code_problems(operator.code, python):
        yield f"{label}: operator {operator.name[:80]!r}: {problem}"


def _edge_problems(graph: JobGraph) -> Iterator[str]:
    by_id = graph.vertices_by_id
    for edge in graph.edges:
        for end in (edge.source, edge.target):
            if end not in by_id:
                yield f"an edge names the unknown vertex {end[:80]!r}"
        source, target = by_id.get(edge.source), by_id.get(edge.target)
        if source is not None and target is not None:
            yield from _exchange_problems(edge, source, target)


def _exchange_problems(edge: JobEdge, source: JobVertex, target: JobVertex) -> Iterator[str]:
    label = f"edge {source.name[:80]!r} -> {target.name[:80]!r}"
    if edge.mode is ExchangeMode.FORWARD and source.parallelism != target.parallelism:
        yield f"{label}: forward needs equal parallelism, not {source.parallelism} and {target.parallelism}"
    if edge.mode is ExchangeMode.GATHER and target.parallelism != 1:
        yield f"{label}: gather needs a consumer of parallelism 1, not {target.parallelism}"
    if (edge.splittable or edge.broadcast_below is not None) and not (
        target.is_auto and edge.mode is ExchangeMode.HASH
    ):
        yield f"{label}: splittable and broadcast_below are for hash edges to a vertex without a parallelism of its own"
    if edge.broadcast_below is not None and edge.broadcast_below < 1:
        yield f"{label}: broadcast_below is {edge.broadcast_below} bytes, it must be at least 1"
    if (edge.mode is ExchangeMode.HASH) != bool(edge.key_columns):
        yield f"{label}: key columns belong to hash edges, and a hash edge needs at least one"
    for column in _duplicates(edge.key_columns):
        yield f"{label}: key column {column[:80]!r} is named more than once"
    if not all(edge.key_columns):
        yield f"{label}: a key column has no name"
    if source.operators and source.operators[-1].kind.value in {"sink", *_ALONE} - {"splits"}:
        yield f"{label}: a {source.operators[-1].kind.value} has no consumers"


def _input_problems(graph: JobGraph) -> Iterator[str]:
    indices: defaultdict[VertexId, list[int]] = defaultdict(list)
    keys: defaultdict[VertexId, set[int]] = defaultdict(set)
    for edge in graph.edges:
        indices[edge.target].append(edge.input_index)
        if edge.mode is ExchangeMode.HASH:
            keys[edge.target].add(len(edge.key_columns))
    for vertex in graph.vertices:
        label = f"vertex {vertex.name[:80]!r}"
        found = sorted(indices[vertex.id])
        if found != list(range(len(found))):
            yield f"{label}: its inputs are numbered {found[:20]}, expected 0 to {len(found) - 1} without gaps"
        if len(keys[vertex.id]) > 1:
            yield f"{label}: its hash edges have different numbers of key columns: {sorted(keys[vertex.id])}"
        if vertex.stream_sink is not None:
            continue
        yield from _head_problems(label, vertex, graph)


def _head_problems(label: str, vertex: JobVertex, graph: JobGraph) -> Iterator[str]:
    head = vertex.operators[0].kind.value if vertex.operators else "source"
    edges = graph.in_edges(vertex.id)
    if head == "source" and len(edges) == 1:
        yield from _split_problems(label, vertex, edges[0], graph)
    elif head in _HEADS and edges:
        yield f"{label}: a {head} takes no inputs, this one has {len(edges)}"
    if head not in _HEADS and not edges:
        yield f"{label}: a {head} needs at least one input"
    if head == "map" and len(edges) > 1:
        yield f"{label}: a map takes one input, this one has {len(edges)}"


def _split_problems(label: str, vertex: JobVertex, edge: JobEdge, graph: JobGraph) -> Iterator[str]:
    """Of an edge into a source, which brings its splits: a list that one task has found."""
    if vertex.splits is not None:
        yield f"{label}: a source has its splits from a list, or from another vertex, not from both"
    if edge.mode is not ExchangeMode.BROADCAST:
        yield f"{label}: an edge into a source brings its splits, and is a broadcast one, not {edge.mode.value}"
    source = graph.vertices_by_id.get(edge.source)
    if source is not None and source.operators and source.operators[0].kind is not OperatorKind.SPLITS:
        yield f"{label}: a source takes no inputs but its splits, and {source.name[:80]!r} finds none"
    if source is not None and source.parallelism != 1:
        yield f"{label}: splits are found by one task, and {source.name[:80]!r} has parallelism {source.parallelism}"


def _demand_problems(graph: JobGraph) -> Iterator[str]:
    """Of sources whose subtasks take their splits one after the other (R12)."""
    for vertex in graph.vertices:
        label = f"vertex {vertex.name[:80]!r}"
        if not vertex.splits_on_demand:
            continue
        if not vertex.is_source:
            yield f"{label}: splits on demand are for a source of a batch"
        elif vertex.splits is None and not graph.in_edges(vertex.id):
            yield f"{label}: splits on demand, and no splits"
        for operator in vertex.operators[1:]:
            if operator.kind is OperatorKind.SINK:
                yield _not_forward(label, operator.name)
        for edge in graph.out_edges(vertex.id):
            target = graph.vertices_by_id.get(edge.target)
            if edge.mode is ExchangeMode.FORWARD and target is not None:
                yield _not_forward(label, target.name)


def _not_forward(label: str, reader: str) -> str:
    return (
        f"{label} takes its splits on demand, so which subtask has which rows is open until it has finished, and no "
        f"forward edge to {reader[:80]!r} can follow: use rebalance(), hash(), broadcast() or gather()"
    )


def _cycle_problems(graph: JobGraph) -> Iterator[str]:
    """Kahn's algorithm forward, then backward over what is left: exactly the vertices that lie on or between cycles."""
    left = {vertex.id for vertex in graph.vertices}
    edges = [(edge.source, edge.target) for edge in graph.edges]
    left = _peel(left, edges)
    left = _peel(left, [(target, source) for source, target in edges])
    if left:
        names = [vertex.name[:80] for vertex in graph.vertices if vertex.id in left]
        yield f"the graph has a cycle through {', '.join(repr(name) for name in names[:20])}"


def _peel(vertices: set[VertexId], edges: list[tuple[VertexId, VertexId]]) -> set[VertexId]:
    left = set(vertices)
    followers: defaultdict[VertexId, list[VertexId]] = defaultdict(list)
    incoming: Counter[VertexId] = Counter()
    for source, target in edges:
        if source in left and target in left:
            followers[source].append(target)
            incoming[target] += 1
    ready = [vertex_id for vertex_id in vertices if not incoming[vertex_id]]
    while ready:
        vertex_id = ready.pop()
        left.discard(vertex_id)
        for target in followers[vertex_id]:
            incoming[target] -= 1
            if not incoming[target]:
                ready.append(target)
    return left


def _file_problems(graph: JobGraph) -> Iterator[str]:
    artifacts = graph.artifacts()
    if len(artifacts) > limits.ARTIFACTS_MAX:
        yield f"the job brings {len(artifacts)} files, the limit is {limits.ARTIFACTS_MAX}"
        return
    groups = {"py-file": graph.py_files, "file": graph.files, "archive": graph.archives, "wheel": graph.wheels}
    groups["jar"] = graph.jars
    for kind, group in groups.items():
        for artifact in group:
            yield from artifact_problems(kind, artifact)
            yield from file_name_problems(kind, artifact)
    for artifact in (*graph.wheels, *graph.jars):
        if artifact.url is not None:
            yield f"wheel or jar {artifact.name[:80]!r} has a URL: only files of the client are sent (see spark.jars)"
    for artifact in graph.jars:
        if "," in artifact.name:
            yield f"jar {artifact.name[:80]!r}: its name has a comma, which parts the names in spark.jars"
    yield from _place_problems(graph)
    for kind, group in (("py-file", graph.py_files), ("jar", graph.jars)):
        for name in _duplicates(artifact.name for artifact in group):
            yield f"{kind} {name[:80]!r} is given more than once"


def _place_problems(graph: JobGraph) -> Iterator[str]:
    """Files with one name in the job's directory. An application may be brought as a file too."""
    codes = [operator.code for vertex in graph.vertices for operator in vertex.operators]
    applications = [code.artifact for code in codes if isinstance(code, ScriptCode | JarCode)]
    fetched = [artifact for artifact in graph.py_files if artifact.url is not None]
    placed = [artifact.name.partition("#") for artifact in (*graph.files, *graph.archives, *fetched)]
    names = [alias or name for name, _, alias in placed]
    for name in _duplicates(names):
        yield f"two files or archives would be {name[:80]!r} in the job's directory"
    contents = {alias or name: one.sha256 for one in graph.files for name, _, alias in (one.name.partition("#"),)}
    for application in applications:
        if application is None or application.name not in names:
            continue
        if contents.get(application.name) != application.sha256:
            yield f"the application and another file would be {application.name[:80]!r} in the job's directory"


def _name_problems(kind: str, name: str, *, length_max: int = limits.NAME_LENGTH_MAX) -> Iterator[str]:
    if not name.strip():
        yield f"a {kind} has no name"
    if len(name) > length_max:
        yield f"{kind} name {name[:40]!r}... has {len(name)} characters, the limit is {length_max}"
    if any(ord(character) < 32 or 0xD800 <= ord(character) <= 0xDFFF for character in name):
        yield f"{kind} name {name[:80]!r} has control characters"


def json_problems(label: str, value: object) -> Iterator[str]:
    """Problems of a value that is to travel as JSON: depth, huge integers, NaN, other types."""
    pending: list[tuple[object, int]] = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > limits.JSON_DEPTH_MAX:
            yield f"{label}: nested deeper than {limits.JSON_DEPTH_MAX} levels"
            return
        if isinstance(item, Mapping):
            if not all(isinstance(key, str) for key in item):
                yield f"{label}: a JSON object has a key that is not a string"
            pending.extend((child, depth + 1) for child in item.values())
        elif isinstance(item, list | tuple):
            pending.extend((child, depth + 1) for child in item)
        elif problem := _scalar_problem(item):
            yield f"{label}: {problem}"
            return


def _scalar_problem(item: object) -> str:
    if isinstance(item, float) and (item != item or item in {float("inf"), float("-inf")}):  # noqa: PLR0124 - NaN test
        return f"{item} is not a JSON number"
    if isinstance(item, int) and item.bit_length() > limits.INTEGER_BITS_MAX:
        return f"an integer has more than {limits.INTEGER_BITS_MAX} bits"
    if not isinstance(item, str | int | float | bool | None):
        return f"a value of type {type(item).__name__} is not JSON"
    return ""


def _duplicates(items: Iterable[ItemT]) -> list[ItemT]:
    return [item for item, count in Counter(items).items() if count > 1]
