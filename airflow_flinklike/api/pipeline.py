"""The Pipeline API: sources, transformations and sinks over PySpark DataFrames, built into a JobGraph.

    pipeline = Pipeline("daily-sales")
    orders = pipeline.source("orders", read_orders, splits=days, parallelism=4)
    clean = orders.map("clean", clean_orders)
    totals = clean.hash("customer").apply("totals", daily_totals, parallelism=4)
    totals.gather().sink("report", write_report)

Every function is `fn(ctx, *dataframes) -> DataFrame | JSON value | None`; `ctx` is a TaskContext.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from types import NoneType
from typing import Any, TypedDict, TypeVar, Unpack

from airflow_flinklike.api.artifacts import ArtifactCollector, FilePath
from airflow_flinklike.api.operator_code import UserFunction, check_function, code_of
from airflow_flinklike.api.program import JobOptions, JobProgram, Program, assemble, plain_json
from airflow_flinklike.exceptions import PipelineError
from runtime.common.exchange import ExchangeMode
from runtime.jobgraph.chaining import ChainEdge, ChainNode, build_chains
from runtime.jobgraph.graph import (
    DEFAULT_RESOURCES,
    JobEdge,
    JobVertex,
    Operator,
    OperatorKind,
    ResourceSpec,
    vertex_id_of,
)
from runtime.jobgraph.limits import PARALLELISM_MAX
from runtime.jobgraph.restart_strategy import RestartStrategy

T = TypeVar("T")

DEFAULT_GROUP = "default"
MAX_PARALLELISM_FLOOR = 128


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What a user may set per operator. None: inherited from the inputs, or the default."""

    max_parallelism: int | None = None
    slot_sharing_group: str | None = None
    resources: ResourceSpec | None = None
    exclusive: bool | None = None
    chainable: bool = True


class OperatorOptions(TypedDict, total=False):
    """The same as keyword arguments."""

    parallelism: int | None
    max_parallelism: int | None
    slot_sharing_group: str | None
    resources: ResourceSpec | None
    exclusive: bool | None
    chainable: bool


@dataclass(frozen=True, slots=True)
class _Node:
    name: str
    kind: OperatorKind
    function: UserFunction
    parallelism: int
    max_parallelism: int
    group: str
    resources: ResourceSpec
    exclusive: bool | None
    is_chainable: bool
    splits: tuple[Any, ...] | None

    def chain_node(self) -> ChainNode:
        return ChainNode(
            self.name,
            self.parallelism,
            self.max_parallelism,
            self.group,
            self.resources,
            has_splits=self.splits is not None,
            is_chainable=self.is_chainable,
        )


@dataclass(frozen=True, slots=True)
class _Link:
    source: str
    target: str
    mode: ExchangeMode
    key_columns: tuple[str, ...]
    input_index: int


class Pipeline(Program):
    """A DAG of operators under construction. `parallelism` is the default of its operators."""

    def __init__(
        self,
        name: str,
        *,
        parallelism: int = 1,
        params: Mapping[str, Any] | None = None,
        spark_conf: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        py_files: Iterable[FilePath] = (),
        files: Iterable[FilePath] = (),
        archives: Iterable[FilePath] = (),
        wheels: Iterable[FilePath] = (),
        execution_timeout: float | timedelta | None = None,
        secrets: Iterable[str] = (),
        restart_strategy: RestartStrategy | str | None = None,
        user_failures: str | None = None,
    ) -> None:
        self.name = name
        self.parallelism = parallelism
        self._options = JobOptions(
            params or {},
            spark_conf or {},
            environment or {},
            py_files,
            files,
            archives,
            wheels,
            execution_timeout,
            secrets,
            restart_strategy,
            user_failures,
        )
        self._nodes: dict[str, _Node] = {}
        self._links: list[_Link] = []

    @property
    def params(self) -> Mapping[str, Any]:
        """The job's parameters, as `ctx.params` shows them."""
        return dict(self._options.params)

    def source(
        self,
        name: str,
        function: UserFunction,
        *,
        splits: Iterable[Any] | None = None,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        slot_sharing_group: str | None = None,
        resources: ResourceSpec | None = None,
        exclusive: bool | None = None,
        chainable: bool = True,
    ) -> Stream:
        """`function(ctx)` makes a DataFrame, from its share of `splits` (`ctx.splits`) when there are some."""
        settings = OperatorSettings(max_parallelism, slot_sharing_group, resources, exclusive, chainable)
        given = None if splits is None else plain_json(f"operator {name!r}: splits", list(splits))
        return self._add(name, OperatorKind.SOURCE, function, (), parallelism, settings, splits=given)

    def _build(self, params: Mapping[str, Any] | None) -> JobProgram:
        collector = ArtifactCollector()
        chains = build_chains(
            [node.chain_node() for node in self._nodes.values()],
            [ChainEdge(link.source, link.target, link.mode) for link in self._links],
        )
        vertices = [self._vertex(chain, collector) for chain in chains]
        vertex_of = {name: vertex for chain, vertex in zip(chains, vertices, strict=True) for name in chain}
        heads = {chain[0] for chain in chains}
        edges = [
            JobEdge(
                source=vertex_of[link.source].id,
                target=vertex_of[link.target].id,
                mode=link.mode,
                key_columns=link.key_columns,
                input_index=link.input_index,
            )
            for link in self._links
            if link.target in heads
        ]
        return assemble(self.name, vertices, edges, self._options, collector, params)

    def _vertex(self, chain: Sequence[str], collector: ArtifactCollector) -> JobVertex:
        nodes = [self._nodes[name] for name in chain]
        name = " -> ".join(chain)
        return JobVertex(
            id=vertex_id_of(name),
            name=name,
            operators=tuple(
                Operator(name=node.name, kind=node.kind, code=code_of(node.name, node.function, collector))
                for node in nodes
            ),
            parallelism=nodes[0].parallelism,
            max_parallelism=nodes[0].max_parallelism,
            slot_sharing_group=nodes[0].group,
            resources=nodes[0].resources,
            exclusive=_chain_exclusive([node.exclusive for node in nodes]),
            splits=nodes[0].splits,
        )

    def _add(
        self,
        name: str,
        kind: OperatorKind,
        function: UserFunction,
        edges: Sequence[Edge],
        parallelism: int | None,
        settings: OperatorSettings,
        *,
        splits: Sequence[Any] | None = None,
    ) -> Stream:
        self._check_new(name, edges)
        check_function(name, function, len(edges))
        _check_settings(name, self.parallelism if parallelism is None else parallelism, settings)
        chosen = self._parallelism_of(name, edges, parallelism)
        inputs = [self._nodes[edge.stream.name] for edge in edges]
        is_forward = all(edge.mode is ExchangeMode.FORWARD for edge in edges)
        node = self._nodes[name] = _Node(
            name,
            kind,
            function,
            chosen,
            # Another parallelism has another default.
            _chosen(
                settings.max_parallelism,
                [node.max_parallelism for node in inputs if is_forward],
                default_max_parallelism(chosen),
            ),
            _chosen(settings.slot_sharing_group, [node.group for node in inputs], DEFAULT_GROUP),
            _chosen(settings.resources, [node.resources for node in inputs], DEFAULT_RESOURCES),
            settings.exclusive,
            settings.chainable,
            None if splits is None else tuple(splits),
        )
        self._links += [
            _Link(edge.stream.name, name, edge.mode, edge.key_columns, index) for index, edge in enumerate(edges)
        ]
        return Stream(self, name, chosen, node.group, kind)

    def _check_new(self, name: str, edges: Sequence[Edge]) -> None:
        if not _is_name(name):
            message = "an operator needs a name"
            raise PipelineError(message)
        if name in self._nodes:
            message = f"operator {name!r} exists already: names are unique in a pipeline"
            raise PipelineError(message)
        for edge in edges:
            if edge.stream.pipeline is not self:
                message = f"operator {name!r}: its input {edge.stream.name!r} belongs to another pipeline"
                raise PipelineError(message)
            if edge.stream.kind is OperatorKind.SINK:
                message = f"operator {name!r}: {edge.stream.name!r} is a sink and has no consumers"
                raise PipelineError(message)

    def _parallelism_of(self, name: str, edges: Sequence[Edge], given: int | None) -> int:
        """Forward edges and gather dictate it, otherwise the user's number or the pipeline's default."""
        dictated = {edge.stream.parallelism for edge in edges if edge.mode is ExchangeMode.FORWARD}
        dictated |= {1 for edge in edges if edge.mode is ExchangeMode.GATHER}
        if len(dictated) > 1:
            message = f"operator {name!r}: its forward and gather edges ask for parallelism {sorted(dictated)} at once"
            raise PipelineError(message)
        if not dictated:
            return self.parallelism if given is None else given
        wanted = dictated.pop()
        if given not in {None, wanted}:
            message = (
                f"operator {name!r}: its inputs dictate parallelism {wanted}, not {given}; "
                "use rebalance(), hash() or broadcast() to change it"
            )
            raise PipelineError(message)
        return wanted


@dataclass(frozen=True, eq=False)
class Stream:
    """The output of one operator: where the next one is attached."""

    pipeline: Pipeline
    name: str
    parallelism: int
    slot_sharing_group: str
    kind: OperatorKind = field(repr=False)

    def forward(self) -> Edge:
        """Subtask i to subtask i of a consumer of the same parallelism; chained where that is possible."""
        return Edge(self, ExchangeMode.FORWARD)

    def hash(self, *columns: str) -> Edge:
        """Rows with equal values in these columns to the same subtask."""
        if not columns or not all(map(_is_name, columns)):
            message = f"stream {self.name!r}: hash() takes the names of one or more columns, not {columns!r}"
            raise PipelineError(message)
        return Edge(self, ExchangeMode.HASH, columns)

    def rebalance(self) -> Edge:
        """Each row to exactly one subtask, about equally many to each."""
        return Edge(self, ExchangeMode.REBALANCE)

    def broadcast(self) -> Edge:
        """All rows to every subtask."""
        return Edge(self, ExchangeMode.BROADCAST)

    def gather(self) -> Edge:
        """All rows to one subtask."""
        return Edge(self, ExchangeMode.GATHER)

    def map(
        self,
        name: str,
        function: UserFunction,
        *,
        max_parallelism: int | None = None,
        slot_sharing_group: str | None = None,
        resources: ResourceSpec | None = None,
        exclusive: bool | None = None,
        chainable: bool = True,
    ) -> Stream:
        """`function(ctx, dataframe)` behind a forward edge, with the same parallelism."""
        settings = OperatorSettings(max_parallelism, slot_sharing_group, resources, exclusive, chainable)
        return self.forward().attach(name, OperatorKind.MAP, function, (), None, settings)

    def apply(
        self, name: str, function: UserFunction, *others: Edge | Stream, **options: Unpack[OperatorOptions]
    ) -> Stream:
        """`Edge.apply` behind a forward edge: another parallelism there is an error."""
        return self.forward().apply(name, function, *others, **options)

    def sink(
        self, name: str, function: UserFunction, *others: Edge | Stream, **options: Unpack[OperatorOptions]
    ) -> Stream:
        """`Edge.sink` behind a forward edge: another parallelism there is an error."""
        return self.forward().sink(name, function, *others, **options)


@dataclass(frozen=True, eq=False)
class Edge:
    """How a stream's rows reach the operator that is attached to it."""

    stream: Stream
    mode: ExchangeMode
    key_columns: tuple[str, ...] = ()

    def apply(
        self,
        name: str,
        function: UserFunction,
        *others: Edge | Stream,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        slot_sharing_group: str | None = None,
        resources: ResourceSpec | None = None,
        exclusive: bool | None = None,
        chainable: bool = True,
    ) -> Stream:
        """`function(ctx, dataframe, *dataframes of others)`, in that order. A Stream among them is a forward edge."""
        settings = OperatorSettings(max_parallelism, slot_sharing_group, resources, exclusive, chainable)
        return self.attach(name, OperatorKind.APPLY, function, others, parallelism, settings)

    def sink(
        self,
        name: str,
        function: UserFunction,
        *others: Edge | Stream,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        slot_sharing_group: str | None = None,
        resources: ResourceSpec | None = None,
        exclusive: bool | None = None,
        chainable: bool = True,
    ) -> Stream:
        """Like `apply`, and nothing can follow: the function writes, or returns a JSON value as the job's result."""
        settings = OperatorSettings(max_parallelism, slot_sharing_group, resources, exclusive, chainable)
        return self.attach(name, OperatorKind.SINK, function, others, parallelism, settings)

    def attach(
        self,
        name: str,
        kind: OperatorKind,
        function: UserFunction,
        others: Sequence[Edge | Stream],
        parallelism: int | None,
        settings: OperatorSettings,
    ) -> Stream:
        """Add an operator behind this edge and `others`."""
        edges = (self, *(_edge_of(name, other) for other in others))
        return self.stream.pipeline._add(name, kind, function, edges, parallelism, settings)  # noqa: SLF001 - one class in three


def _edge_of(name: str, given: object) -> Edge:
    if isinstance(given, Stream):
        return given.forward()
    if isinstance(given, Edge):
        return given
    message = f"operator {name!r}: further inputs are streams or edges, not a {type(given).__name__}"
    raise PipelineError(message)


_SETTING_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "parallelism": ((int, NoneType), "a whole number"),
    "max_parallelism": ((int, NoneType), "a whole number"),
    "slot_sharing_group": ((str, NoneType), "a text"),
    "resources": ((ResourceSpec, NoneType), "a ResourceSpec"),
    "exclusive": ((bool, NoneType), "True or False"),
    "chainable": ((bool,), "True or False"),
}


def _is_name(given: object) -> bool:
    return isinstance(given, str) and bool(given.strip())


def _check_settings(name: str, parallelism: object, settings: OperatorSettings) -> None:
    given = {"parallelism": parallelism, **{field.name: getattr(settings, field.name) for field in fields(settings)}}
    problems = tuple(
        f"operator {name!r}: {key} is {wanted}, not {given[key]!r}"
        for key, (types, wanted) in _SETTING_TYPES.items()
        # True is an int for Python, but nobody means it so.
        if not isinstance(given[key], types) or (isinstance(given[key], bool) and bool not in types)
    )
    if problems:
        raise PipelineError("; ".join(problems), problems)


def _chosen(given: T | None, inherited: Sequence[T], default: T) -> T:
    """What the user has set, else what all inputs agree on, else the default."""
    if given is not None:
        return given
    agreed = inherited and all(one == inherited[0] for one in inherited)
    return inherited[0] if agreed else default


def default_max_parallelism(parallelism: int) -> int:
    """Flink's default: the next power of two above 1.5 times the parallelism, within 128 and 32768."""
    wanted = parallelism + parallelism // 2
    power = 1 << max(wanted - 1, 0).bit_length()
    return min(max(power, MAX_PARALLELISM_FLOOR), PARALLELISM_MAX)


def _chain_exclusive(given: Sequence[bool | None]) -> bool | None:
    """A chain is exclusive when one of its operators asks for it; otherwise its last operator decides."""
    return True if any(given) else given[-1]
