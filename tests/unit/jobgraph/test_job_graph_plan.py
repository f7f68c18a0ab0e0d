"""Chains, regions and slot needs."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from runtime.common.exchange import ExchangeMode as Mode
from runtime.jobgraph.chaining import ChainEdge, ChainNode, build_chains
from runtime.jobgraph.graph import JobGraph, ResourceSpec, vertex_id_of
from runtime.jobgraph.regions import pipelined_regions, topological_order
from runtime.jobgraph.slots import SlotNeed, slot_needs
from tests.kit.control_plane.job_graphs import diamond, edge, graph, source, vertex


def node(name: str, **fields: object) -> ChainNode:
    return ChainNode(**{"name": name, "parallelism": 2, "max_parallelism": 128, **fields})  # type: ignore[arg-type]  # any fields


def forward(*names: str) -> list[ChainEdge]:
    return [ChainEdge(first, second, Mode.FORWARD) for first, second in pairwise(names)]


def test_forward_edges_make_one_chain() -> None:
    assert build_chains([node("a"), node("b"), node("c")], forward("a", "b", "c")) == (("a", "b", "c"),)


@pytest.mark.parametrize(
    "change",
    [
        {"parallelism": 3},
        {"max_parallelism": 64},
        {"slot_sharing_group": "other"},
        {"resources": ResourceSpec(cpu_cores=1)},
        {"has_splits": True},
        {"is_chainable": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_keeps_operators_apart(change: dict[str, object]) -> None:
    assert build_chains([node("a"), node("b", **change)], forward("a", "b")) == (("a",), ("b",))


def test_splits_stay_with_the_head_of_a_chain() -> None:
    assert build_chains([node("a", has_splits=True), node("b")], forward("a", "b")) == (("a", "b"),)


@pytest.mark.parametrize("mode", [Mode.HASH, Mode.REBALANCE, Mode.BROADCAST, Mode.GATHER])
def test_only_forward_edges_are_chained(mode: Mode) -> None:
    assert build_chains([node("a"), node("b")], [ChainEdge("a", "b", mode)]) == (("a",), ("b",))


def test_a_fork_is_not_chained() -> None:
    edges = [*forward("a", "b"), *forward("a", "c")]
    assert build_chains([node("a"), node("b"), node("c")], edges) == (("a",), ("b",), ("c",))


def test_two_edges_to_the_same_consumer_are_a_fork_too() -> None:
    assert build_chains([node("a"), node("b")], forward("a", "b") * 2) == (("a",), ("b",))


def test_a_join_heads_a_chain_of_its_own() -> None:
    edges = [*forward("a", "c"), *forward("b", "c"), *forward("c", "d")]
    assert build_chains([node(n) for n in "abcd"], edges) == (("a",), ("b",), ("c", "d"))


def names(job_graph: JobGraph, regions: Sequence[frozenset[str]]) -> list[set[str]]:
    by_id = {v.id: v.name for v in job_graph.vertices}
    return [{by_id[vertex_id] for vertex_id in region} for region in regions]  # type: ignore[index]  # ids are strings


def test_every_vertex_is_a_region_behind_blocking_edges() -> None:
    assert names(diamond(), pipelined_regions(diamond())) == [{"read"}, {"left"}, {"right"}, {"join"}, {"report"}]


def test_pipelined_edges_join_vertices_to_one_region() -> None:
    job_graph = diamond()
    regions = pipelined_regions(job_graph, pipelined=lambda e: e.mode in {Mode.HASH, Mode.BROADCAST})
    assert names(job_graph, regions) == [{"read"}, {"left", "right", "join"}, {"report"}]


def test_producers_come_before_consumers() -> None:
    job_graph = graph(vertex("z"), vertex("y"), source("x"), edges=(edge("y", "z"), edge("x", "y")))
    assert topological_order(job_graph) == tuple(vertex_id_of(name) for name in "xyz")


def needs(job_graph: JobGraph) -> list[tuple[str, int, int]]:
    return [(need.slot_sharing_group, need.slots_min, need.slots_max) for need in slot_needs(job_graph)]


def test_a_job_needs_one_slot_and_uses_what_can_run_at_once() -> None:
    assert needs(diamond()) == [("default", 1, 5)]  # left (2) and right (3) at once; join alone is 4


def test_independent_branches_add_up() -> None:
    job_graph = graph(
        source("a", parallelism=3),
        vertex("b", parallelism=2),
        source("c", parallelism=2),
        vertex("d", parallelism=4),
        edges=(edge("a", "b"), edge("c", "d")),
    )
    assert needs(job_graph) == [("default", 1, 7)]


def test_groups_and_resources_are_counted_apart() -> None:
    big = ResourceSpec(memory_bytes=1 << 30)
    job_graph = graph(
        source("a", parallelism=3),
        source("b", parallelism=2, resources=big),
        vertex("c", parallelism=4, slot_sharing_group="other"),
        edges=(edge("a", "c"),),
    )
    assert slot_needs(job_graph)[1] == SlotNeed("default", big, (vertex_id_of("b"),), 1, 2)
    assert needs(job_graph) == [("default", 1, 3), ("default", 1, 2), ("other", 1, 4)]


def test_a_very_wide_graph_gets_an_upper_bound() -> None:
    assert needs(graph(*[source(f"v{i}") for i in range(300)])) == [("default", 1, 300)]
