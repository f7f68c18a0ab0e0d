"""Small JobGraphs for tests: built directly, without the Pipeline API, so that also wrong ones can be made."""

from __future__ import annotations

from typing import Any

from runtime.common.exchange import ExchangeMode
from runtime.jobgraph.graph import (
    FunctionReference,
    JobEdge,
    JobGraph,
    JobVertex,
    Operator,
    OperatorKind,
    vertex_id_of,
)


def operator(name: str, kind: OperatorKind = OperatorKind.APPLY, target: str = "jobs.code:run") -> Operator:
    """One operator that refers to a function."""
    return Operator(name=name, kind=kind, code=FunctionReference(target=target))


def vertex(name: str, kind: OperatorKind = OperatorKind.APPLY, /, **fields: Any) -> JobVertex:
    """A vertex of one operator."""
    return JobVertex(**{"id": vertex_id_of(name), "name": name, "operators": (operator(name, kind),), **fields})


def source(name: str, /, **fields: Any) -> JobVertex:
    """A vertex without inputs."""
    return vertex(name, OperatorKind.SOURCE, **fields)


def edge(source_name: str, target_name: str, mode: ExchangeMode = ExchangeMode.REBALANCE, **fields: Any) -> JobEdge:
    """An edge between two vertices by name; a hash edge gets the key `k`."""
    if mode is ExchangeMode.HASH:
        fields.setdefault("key_columns", ("k",))
    return JobEdge(source=vertex_id_of(source_name), target=vertex_id_of(target_name), mode=mode, **fields)


def graph(*vertices: JobVertex, edges: tuple[JobEdge, ...] = (), **fields: Any) -> JobGraph:
    """A graph named `job`."""
    return JobGraph(**{"name": "job", "vertices": vertices, "edges": edges, **fields})


def diamond() -> JobGraph:
    """read -> (left, right) -> join -> report, with hash, broadcast and gather edges."""
    return graph(
        source("read", parallelism=2),
        vertex("left", parallelism=2),
        vertex("right", parallelism=3),
        vertex("join", parallelism=4),
        vertex("report", OperatorKind.SINK),
        edges=(
            edge("read", "left"),
            edge("read", "right"),
            edge("left", "join", ExchangeMode.HASH),
            edge("right", "join", ExchangeMode.BROADCAST, input_index=1),
            edge("join", "report", ExchangeMode.GATHER),
        ),
    )


def two_readers() -> JobGraph:
    """read, twice -> report."""
    return graph(source("read", parallelism=2), vertex("report", OperatorKind.SINK), edges=(edge("read", "report"),))


def lone(vertex_name: str = "noop", /, **fields: Any) -> JobGraph:
    """A job of one function of parallelism 1."""
    return graph(vertex(vertex_name, OperatorKind.FUNCTION), **fields)
