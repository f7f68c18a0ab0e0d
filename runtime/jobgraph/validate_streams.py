"""Checks of the streaming queries of a JobGraph: which operators make one, and how they hang together (R59)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from runtime.jobgraph.graph import JobGraph, JobVertex, Operator, OperatorKind
from runtime.jobgraph.savepoints import savepoint_problems
from runtime.jobgraph.streams import checkpoint_name_problems, sink_spec_problems

_INNER = frozenset({OperatorKind.MAP, OperatorKind.APPLY})


def stream_problems(graph: JobGraph) -> Iterator[str]:
    """Every problem of the graph's streaming queries as one sentence each."""
    uids = Counter(vertex.stream_sink.uid for vertex in graph.vertices if vertex.stream_sink is not None)
    for uid, count in uids.items():
        if count > 1:
            yield f"stream uid {uid[:80]!r} is used more than once: each query has a state of its own"
    is_of_script = any(vertex.is_streaming_script for vertex in graph.vertices)
    yield from savepoint_problems(graph.savepoint, graph.queries, is_of_script=is_of_script)
    if graph.checkpoint_name:
        yield from checkpoint_name_problems(graph.checkpoint_name)
        if not any(vertex.runs_queries for vertex in graph.vertices):
            yield (
                f"checkpoint name {graph.checkpoint_name[:80]!r} has no effect: the job has no stream sink, and is "
                "no script with --streaming; queries of other scripts keep their state where these say"
            )
        if graph.savepoint is not None:
            yield (
                f"the job goes on from what lies under its checkpoint name {graph.checkpoint_name[:80]!r}, so it "
                "cannot be started from a savepoint: leave out one of them"
            )
    for vertex in graph.vertices:
        yield from _vertex_problems(graph, vertex)


def _vertex_problems(graph: JobGraph, vertex: JobVertex) -> Iterator[str]:
    label = f"vertex {vertex.name[:80]!r}"
    for operator in vertex.operators:
        if (operator.stream_sink is None) == (operator.kind is OperatorKind.STREAM_SINK):
            yield f"{label}: operator {operator.name[:80]!r} is a {operator.kind.value}: only stream sinks have a uid"
            return
    sink = vertex.stream_sink
    if sink is None:
        for operator in vertex.operators:
            if operator.kind is OperatorKind.STREAM_SOURCE or operator.inputs is not None:
                yield f"{label}: {operator.name[:80]!r} is of a streaming query, and no stream sink ends it"
        return
    yield from sink_spec_problems(label, sink)
    yield from _operator_problems(label, vertex.operators, len(graph.in_edges(vertex.id)))
    if vertex.exclusive is False:
        yield f"{label}: a streaming query is exclusive: two at once would write into one checkpoint directory"
    if vertex.is_unbounded and graph.out_edges(vertex.id):
        yield f"{label} never ends, so nothing can read its result: use the trigger availableNow"


def _operator_problems(label: str, operators: tuple[Operator, ...], edges: int) -> Iterator[str]:
    """Of a whole query: each operator reads what comes before it, and all of them lead to the sink."""
    used: set[int] = set()
    for position, operator in enumerate(operators):
        name = f"{label}: operator {operator.name[:80]!r}"
        if operator.inputs is None:
            yield f"{name} does not say what it reads, as each one of a streaming query does"
            return
        is_source = operator.kind is OperatorKind.STREAM_SOURCE
        if not is_source and operator.kind not in _INNER | {OperatorKind.STREAM_SINK}:
            yield f"{name} is a {operator.kind.value}, which is no part of a streaming query"
        if is_source == bool(operator.inputs):
            yield f"{name} is a {operator.kind.value} with {len(operator.inputs)} inputs"
        if any(not -edges <= read < position for read in operator.inputs):
            yield f"{name} reads {list(operator.inputs)[:20]}, which is not there yet"
        if operator.kind is OperatorKind.STREAM_SINK and (len(operator.inputs) != 1 or operator.inputs[0] < 0):
            yield f"{name} is a stream sink, which has one streaming input"
        used.update(operator.inputs)
    if not any(operator.kind is OperatorKind.STREAM_SOURCE for operator in operators):
        yield f"{label} has no stream source"
    if unread := [one.name for place, one in enumerate(operators[:-1]) if place not in used]:
        yield f"{label}: nothing reads {unread[0][:80]!r}"
    if unread_edges := sorted(index for index in range(edges) if -1 - index not in used):
        yield f"{label}: no operator reads its inputs {unread_edges[:20]}"
