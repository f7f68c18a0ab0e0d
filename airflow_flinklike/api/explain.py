"""The plan of a JobGraph: its chains, exchanges, pipelined regions and slots, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from runtime.common.exchange import AUTO_PARALLELISM
from runtime.common.ids import VertexId
from runtime.jobgraph.graph import JobGraph, JobVertex
from runtime.jobgraph.regions import pipelined_regions
from runtime.jobgraph.slots import slot_needs


@dataclass(frozen=True, slots=True)
class ChainInfo:
    """One vertex: the operators that run together as one task per subtask."""

    vertex: str
    operators: tuple[str, ...]
    parallelism: int
    """-1 where the cluster chooses it."""
    max_parallelism: int
    exclusive: bool
    splits: int
    slot_sharing_group: str
    splits_on_demand: bool = False


@dataclass(frozen=True, slots=True)
class ExchangeInfo:
    """One edge between chains."""

    source: str
    target: str
    mode: str
    key_columns: tuple[str, ...]
    input_index: int


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """Slots of one sharing group and kind: the job runs with `minimum` and never uses more than `maximum`."""

    slot_sharing_group: str
    resources: dict[str, Any]
    vertices: tuple[str, ...]
    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The plan of a job. `regions` are in the order in which they can start."""

    name: str
    chains: tuple[ChainInfo, ...]
    exchanges: tuple[ExchangeInfo, ...]
    regions: tuple[tuple[str, ...], ...]
    slots: tuple[SlotInfo, ...]

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return asdict(self)

    def to_text(self) -> str:
        """The plan as text for people."""
        lines = [f"job {self.name}", "chains:"]
        for chain in self.chains:
            chosen = f"parallelism chosen at run time, up to {chain.max_parallelism}"
            marks = [chosen if chain.parallelism == AUTO_PARALLELISM else f"parallelism {chain.parallelism}"]
            marks += [f"{chain.splits} splits"] if chain.splits else []
            marks += ["splits on demand"] if chain.splits_on_demand else []
            marks += ["exclusive"] if chain.exclusive else []
            lines.append(f"  {chain.vertex}  ({', '.join(marks)})")
        lines.append("exchanges:" if self.exchanges else "exchanges: none")
        for exchange in self.exchanges:
            keys = f" on {', '.join(exchange.key_columns)}" if exchange.key_columns else ""
            lines.append(f"  {exchange.source}  =={exchange.mode}{keys}==>  {exchange.target}")
        lines.append("regions:")
        lines += [f"  {number}. {', '.join(region)}" for number, region in enumerate(self.regions, 1)]
        lines.append("slots:")
        for slot in self.slots:
            asked = f" ({_asked(slot.resources)})" if _asked(slot.resources) else ""
            lines.append(
                f"  group {slot.slot_sharing_group}{asked}: runs with {slot.minimum}, uses up to {slot.maximum}"
            )
        return "\n".join(lines) + "\n"


def explain_graph(graph: JobGraph) -> Explanation:
    """The plan of a valid graph."""

    def name_of(vertex_id: VertexId) -> str:
        return graph.vertex(vertex_id).name

    return Explanation(
        name=graph.name,
        chains=tuple(_chain(graph, vertex) for vertex in graph.vertices),
        exchanges=tuple(
            ExchangeInfo(
                name_of(edge.source), name_of(edge.target), edge.mode.value, edge.key_columns, edge.input_index
            )
            for edge in graph.edges
        ),
        regions=tuple(tuple(sorted(name_of(one) for one in region)) for region in pipelined_regions(graph)),
        slots=tuple(
            SlotInfo(
                need.slot_sharing_group,
                need.resources.model_dump(),
                tuple(name_of(one) for one in need.vertices),
                need.slots_min,
                need.slots_max,
            )
            for need in slot_needs(graph)
        ),
    )


def _asked(resources: Mapping[str, Any]) -> str:
    """What a task needs of its slots; "" for any slot."""
    shown = {
        **resources,
        "memory_bytes": f"{resources['memory_bytes'] / 2**20:g} MiB" if resources["memory_bytes"] else 0,
    }
    texts = {name: ",".join(value) if name == "labels" else value for name, value in shown.items() if value}
    return ", ".join(f"{name.removesuffix('_bytes')} {text}" for name, text in texts.items())


def _chain(graph: JobGraph, vertex: JobVertex) -> ChainInfo:
    return ChainInfo(
        vertex=vertex.name,
        operators=tuple(operator.name for operator in vertex.operators),
        parallelism=vertex.parallelism,
        max_parallelism=vertex.max_parallelism,
        exclusive=vertex.is_exclusive(graph),
        splits=len(vertex.splits or ()),
        slot_sharing_group=vertex.slot_sharing_group,
        splits_on_demand=vertex.splits_on_demand,
    )
