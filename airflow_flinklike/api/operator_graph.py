"""From the operators of a pipeline to the vertices and edges of its JobGraph.

Operators of batches are chained; each streaming query is one vertex, with all that it reads from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_flinklike.api.artifacts import ArtifactCollector
from airflow_flinklike.api.operator_code import UserFunction, code_of
from airflow_flinklike.api.streaming import ancestors
from airflow_flinklike.exceptions import PipelineError
from runtime.common.exchange import AUTO_PARALLELISM, ExchangeMode
from runtime.jobgraph.chaining import ChainEdge, ChainNode, build_chains
from runtime.jobgraph.graph import CodeReference, JobEdge, JobVertex, Operator, OperatorKind, vertex_id_of
from runtime.jobgraph.streams import StreamSinkSpec


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """An operator: what chaining needs to know, and what becomes of its vertex."""

    chaining: ChainNode
    kind: OperatorKind
    function: UserFunction
    exclusive: bool | None
    splits: tuple[Any, ...] | None
    is_streaming: bool
    stream_sink: StreamSinkSpec | None = None
    rows_per_task: int | None = None
    is_auto_asked: bool = False
    """The user has written parallelism="auto"."""
    splits_on_demand: bool = False

    @property
    def is_auto(self) -> bool:
        """True while the cluster chooses its parallelism."""
        return self.chaining.parallelism == AUTO_PARALLELISM

    @property
    def is_running_query(self) -> bool:
        """True for a stream that is read on: the result of a sink is none."""
        return self.is_streaming and self.stream_sink is None


@dataclass(frozen=True, slots=True)
class OperatorLink:
    """An edge between two operators, by their names. `input_index` is the place of `source` among the inputs."""

    source: str
    target: str
    mode: ExchangeMode
    key_columns: tuple[str, ...]
    input_index: int
    splittable: bool = False
    broadcast_below: int | None = None


def vertices_and_edges(
    nodes: Mapping[str, OperatorNode], links: Sequence[OperatorLink], collector: ArtifactCollector
) -> tuple[list[JobVertex], list[JobEdge]]:
    """The graph's parts. The collector gets the code that they name. Raises PipelineError, UnpicklableError."""
    codes = {name: code_of(name, node.function, collector) for name, node in nodes.items()}
    batch = {name: node for name, node in nodes.items() if not node.is_streaming}
    chains = build_chains(
        [node.chaining for node in batch.values()],
        [ChainEdge(one.source, one.target, one.mode) for one in links if {one.source, one.target} <= batch.keys()],
    )
    vertex_of: dict[str, JobVertex] = {}
    for chain in chains:
        vertex_of.update(dict.fromkeys(chain, _chain_vertex(chain, nodes, codes)))
    heads = {chain[0] for chain in chains}
    edges = [(link, link.target, link.input_index) for link in links if link.target in heads]
    queries = _queries(nodes, links)
    for query in queries:
        reads = [link for name in query for link in links if link.target == name and link.source not in query]
        vertex_of[query[-1]] = _query_vertex(query, nodes, links, reads, codes)
        edges += [(link, query[-1], index) for index, link in enumerate(reads)]
    vertices = [vertex_of[chain[0]] for chain in chains] + [vertex_of[query[-1]] for query in queries]
    return vertices, [_edge(link, vertex_of, target, index) for link, target, index in edges]


def _edge(link: OperatorLink, vertex_of: Mapping[str, JobVertex], target: str, input_index: int) -> JobEdge:
    return JobEdge(
        source=vertex_of[link.source].id,
        target=vertex_of[target].id,
        mode=link.mode,
        key_columns=link.key_columns,
        input_index=input_index,
        splittable=link.splittable,
        broadcast_below=link.broadcast_below,
    )


def _queries(nodes: Mapping[str, OperatorNode], links: Sequence[OperatorLink]) -> list[tuple[str, ...]]:
    """The operators of each streaming query, its sink last. Raises PipelineError for streams that no sink reads."""
    inputs: dict[str, list[str]] = {}
    for link in links:
        if nodes[link.source].is_running_query:
            inputs.setdefault(link.target, []).append(link.source)
    sinks = [name for name, node in nodes.items() if node.stream_sink is not None]
    queries = [ancestors(sink, inputs, [*nodes]) for sink in sinks]
    read = {name for query in queries for name in query}
    unread = [name for name, node in nodes.items() if node.is_streaming and name not in read]
    if unread:
        message = f"no stream_sink() reads the stream {unread[-1]!r}: a streaming query begins at its sink"
        raise PipelineError(message)
    return queries


def _query_vertex(
    query: Sequence[str],
    nodes: Mapping[str, OperatorNode],
    links: Sequence[OperatorLink],
    reads: Sequence[OperatorLink],
    codes: Mapping[str, CodeReference],
) -> JobVertex:
    place = {name: position for position, name in enumerate(query)}
    place_of_read = {(link.target, link.input_index): -1 - index for index, link in enumerate(reads)}
    operators = []
    for name in query:
        own = sorted((link for link in links if link.target == name), key=lambda link: link.input_index)
        inputs = [place_of_read.get((name, link.input_index), place.get(link.source, 0)) for link in own]
        node = nodes[name]
        operators.append(
            Operator(name=name, kind=node.kind, code=codes[name], inputs=tuple(inputs), stream_sink=node.stream_sink)
        )
    splits = [given for name in query if (given := nodes[name].splits) is not None]
    if len(splits) > 1:
        message = f"stream {query[-1]!r} reads two sources with splits: ctx.splits would be those of both"
        raise PipelineError(message)
    return _vertex(query, operators, nodes[query[-1]].chaining, exclusive=None, splits=splits[0] if splits else None)


def _chain_vertex(
    chain: Sequence[str], nodes: Mapping[str, OperatorNode], codes: Mapping[str, CodeReference]
) -> JobVertex:
    operators = [Operator(name=name, kind=nodes[name].kind, code=codes[name]) for name in chain]
    exclusive = _chain_exclusive([nodes[name].exclusive for name in chain])
    head = nodes[chain[0]]
    rows = [given for name in chain if (given := nodes[name].rows_per_task) is not None]
    vertex = _vertex(chain, operators, head.chaining, exclusive=exclusive, splits=head.splits)
    more = {"rows_per_task": min(rows)} if rows else {}
    return vertex.model_copy(update={**more, "splits_on_demand": head.splits_on_demand})


def _vertex(
    names: Sequence[str],
    operators: Sequence[Operator],
    chaining: ChainNode,
    *,
    exclusive: bool | None,
    splits: tuple[Any, ...] | None,
) -> JobVertex:
    name = " -> ".join(names)
    return JobVertex(
        id=vertex_id_of(name),
        name=name,
        operators=tuple(operators),
        parallelism=chaining.parallelism,
        max_parallelism=chaining.max_parallelism,
        slot_sharing_group=chaining.slot_sharing_group,
        resources=chaining.resources,
        exclusive=exclusive,
        splits=splits,
    )


def _chain_exclusive(given: Sequence[bool | None]) -> bool | None:
    """A chain is exclusive when one of its operators asks for it; otherwise its last operator decides."""
    return True if any(given) else given[-1]
