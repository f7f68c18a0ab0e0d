"""Which operators run together in one task: Flink's rules, and those of lazy DataFrames.

Operators are chained over a forward edge when the upstream has exactly one consumer (a chained fork would run the
lazy source twice), the downstream exactly one input, and both have the same parallelism, maximum parallelism, slot
sharing group and resources, and neither asked to stay apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.common.exchange import ExchangeMode
from runtime.jobgraph.graph import DEFAULT_RESOURCES, ResourceSpec


@dataclass(frozen=True, slots=True)
class ChainNode:
    """One operator before chaining. One that `has_splits` heads a chain: splits belong to the vertex."""

    name: str
    parallelism: int
    max_parallelism: int
    slot_sharing_group: str = "default"
    resources: ResourceSpec = DEFAULT_RESOURCES
    has_splits: bool = False
    is_chainable: bool = True


@dataclass(frozen=True, slots=True)
class ChainEdge:
    """One edge before chaining."""

    source: str
    target: str
    mode: ExchangeMode


def can_chain(upstream: ChainNode, downstream: ChainNode, mode: ExchangeMode, *, consumers: int, inputs: int) -> bool:
    """True if the edge between the two needs no exchange."""
    return (
        mode is ExchangeMode.FORWARD
        and consumers == 1
        and inputs == 1
        and upstream.parallelism == downstream.parallelism
        and upstream.max_parallelism == downstream.max_parallelism
        and upstream.slot_sharing_group == downstream.slot_sharing_group
        and upstream.resources == downstream.resources
        and upstream.is_chainable
        and downstream.is_chainable
        and not downstream.has_splits
    )


def build_chains(nodes: Sequence[ChainNode], edges: Sequence[ChainEdge]) -> tuple[tuple[str, ...], ...]:
    """All chains, each from its head to its tail, in the order of their heads in `nodes`."""
    by_name = {node.name: node for node in nodes}
    consumers = Counter(edge.source for edge in edges)
    inputs = Counter(edge.target for edge in edges)
    follower = {
        edge.source: edge.target
        for edge in edges
        if can_chain(
            by_name[edge.source],
            by_name[edge.target],
            edge.mode,
            consumers=consumers[edge.source],
            inputs=inputs[edge.target],
        )
    }
    followers = set(follower.values())
    chains: list[tuple[str, ...]] = []
    for node in nodes:
        if node.name in followers:
            continue
        chain = [node.name]
        while chain[-1] in follower:
            chain.append(follower[chain[-1]])
        chains.append(tuple(chain))
    return tuple(chains)
