"""Properties of random JobGraphs: JSON, validation, order, and slot needs against brute force."""

from contextlib import suppress
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.errors import InvalidInputError
from runtime.common.exchange import ExchangeMode as Mode
from runtime.jobgraph.chaining import ChainEdge, ChainNode, build_chains
from runtime.jobgraph.graph import JobGraph
from runtime.jobgraph.parsing import check_job_graph, parse_job_graph
from runtime.jobgraph.regions import pipelined_regions, topological_order
from runtime.jobgraph.slots import slot_needs
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=10,
)


@st.composite
def dags(draw: st.DrawFn) -> JobGraph:
    """Up to seven vertices; edges only from earlier to later ones, so never a cycle."""
    size = draw(st.integers(1, 7))
    possible = list(combinations(range(size), 2))
    chosen = draw(st.lists(st.sampled_from(possible), unique=True, max_size=10)) if possible else []
    parallelism = draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))
    targets = [target for _, target in chosen]
    vertices = [(vertex if i in targets else source)(f"v{i}", parallelism=parallelism[i]) for i in range(size)]
    edges = tuple(
        edge(f"v{s}", f"v{t}", Mode.REBALANCE, input_index=targets[:position].count(t))
        for position, (s, t) in enumerate(chosen)
    )
    return graph(*draw(st.permutations(vertices)), edges=edges, params=draw(st.dictionaries(st.text(), json_values)))


@given(dags())
def test_valid_graphs_survive_their_json(job_graph: JobGraph) -> None:
    data = job_graph.canonical_json()
    assert parse_job_graph(data) == job_graph
    assert parse_job_graph(data).canonical_json() == data


@given(dags(), st.data())
def test_closing_a_path_is_a_cycle_and_nothing_else(job_graph: JobGraph, data: st.DataObject) -> None:
    if not job_graph.edges:
        return
    back = data.draw(st.sampled_from(job_graph.edges))
    inputs = len(job_graph.in_edges(back.source))
    closed = job_graph.model_copy(
        update={"edges": (*job_graph.edges, edge_back(job_graph, back.target, back.source, inputs))}
    ).without_caches()
    with pytest.raises(InvalidInputError) as caught:
        check_job_graph(closed)
    assert any("cycle" in problem for problem in caught.value.problems)


def edge_back(job_graph: JobGraph, start: str, end: str, index: int) -> object:
    by_id = {v.id: v.name for v in job_graph.vertices}
    return edge(by_id[start], by_id[end], input_index=index)  # type: ignore[index]  # ids are strings


@given(dags())
def test_order_and_regions_respect_every_edge(job_graph: JobGraph) -> None:
    position = {vertex_id: i for i, vertex_id in enumerate(topological_order(job_graph))}
    assert len(position) == len(job_graph.vertices)
    assert all(position[e.source] < position[e.target] for e in job_graph.edges)
    assert [next(iter(region)) for region in pipelined_regions(job_graph)] == list(position)


@given(dags())
def test_most_slots_is_the_heaviest_set_of_unordered_vertices(job_graph: JobGraph) -> None:
    later: dict[str, set[str]] = {v.id: set() for v in job_graph.vertices}
    for vertex_id in reversed(topological_order(job_graph)):
        for e in job_graph.out_edges(vertex_id):
            later[vertex_id] |= {e.target} | later[e.target]
    best = 0
    for size in range(1, len(job_graph.vertices) + 1):
        for group in combinations(job_graph.vertices, size):
            ids = {v.id for v in group}
            if not any(later[v.id] & ids for v in group):
                best = max(best, sum(v.parallelism for v in group))
    assert [need.slots_max for need in slot_needs(job_graph)] == [best]


@given(st.binary(max_size=200) | json_values.map(lambda value: repr(value).encode("utf-8", "replace")))
def test_no_input_raises_anything_but_invalid_input(data: bytes) -> None:
    with suppress(InvalidInputError):
        parse_job_graph(data)


@given(st.data())
def test_chains_partition_the_operators(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 8))
    nodes = [ChainNode(f"n{i}", data.draw(st.integers(1, 2)), 128) for i in range(size)]
    possible = list(combinations(range(size), 2))
    chosen = data.draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    edges = [ChainEdge(f"n{s}", f"n{t}", data.draw(st.sampled_from([Mode.FORWARD, Mode.HASH]))) for s, t in chosen]
    chains = build_chains(nodes, edges)
    assert sorted(name for chain in chains for name in chain) == sorted(n.name for n in nodes)
    assert all(ChainEdge(a, b, Mode.FORWARD) in edges for chain in chains for a, b in pairwise(chain))
