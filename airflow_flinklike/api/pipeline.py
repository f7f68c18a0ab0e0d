"""The Pipeline API: sources, transformations and sinks over PySpark DataFrames, built into a JobGraph.

    pipeline = Pipeline("daily-sales")
    orders = pipeline.source("orders", read_orders, splits=days)
    clean = orders.map("clean", clean_orders)
    totals = clean.hash("customer").apply("totals", daily_totals)
    totals.gather().sink("report", write_report)

    events = pipeline.stream_source("events", read_events)
    events.map("clean", clean_events).stream_sink("to-table", write_table, trigger="10 seconds")

Every function is `fn(ctx, *dataframes) -> DataFrame | JSON value | None`; `ctx` is a TaskContext.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from airflow_flinklike.api.artifacts import ArtifactCollector
from airflow_flinklike.api.chosen_parallelism import join, settled
from airflow_flinklike.api.job_program import JobOptions, check_names, plain_json
from airflow_flinklike.api.operator_code import UserFunction, check_function
from airflow_flinklike.api.operator_graph import OperatorLink, OperatorNode, vertices_and_edges
from airflow_flinklike.api.operator_options import (
    AUTO,
    MapOptions,
    OperatorOptions,
    check_options,
    default_max_parallelism,
    inherited,
)
from airflow_flinklike.api.program import Program
from airflow_flinklike.api.streaming import Trigger, is_batch_function, trigger_of
from airflow_flinklike.exceptions import PipelineError
from runtime.common.exchange import AUTO_PARALLELISM, ExchangeMode
from runtime.common.spark_environments import size_bytes
from runtime.jobgraph.chaining import ChainNode
from runtime.jobgraph.graph import DEFAULT_RESOURCES, JobEdge, JobVertex, OperatorKind
from runtime.jobgraph.streams import StreamSinkSpec

DEFAULT_GROUP = "default"


class Pipeline(Program):
    """A DAG of operators under construction. `parallelism` is the default of its operators.

    Without it the cluster chooses the parallelism of operators that have consumers, by what they read.
    """

    def __init__(
        self,
        name: str,
        *,
        parallelism: int | None = None,
        spark_conf: Mapping[str, Any] | None = None,
        **options: Unpack[JobOptions],
    ) -> None:
        super().__init__(name, spark_conf, options)
        self.parallelism = parallelism
        self._nodes: dict[str, OperatorNode] = {}
        self._links: list[OperatorLink] = []

    def source(
        self,
        name: str,
        function: UserFunction,
        *,
        splits: Iterable[Any] | UserFunction | None = None,
        splits_on_demand: bool = False,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """Add a source, `function(ctx)`. `ctx.splits` is the share of `splits` that the subtask has.

        `splits` is a list of JSON values, or a function that finds them: `function(ctx)`, or 'module:function', which
        runs before the source, as a task of its own, and returns such a list.

        `splits_on_demand`: subtasks take one split after the other, with `for split in ctx.next_splits():`, so that a
        slow one holds back no others. A function that reads DataFrames then yields one for each split.
        """
        told: object = splits_on_demand
        if not isinstance(told, bool):
            message = f"operator {name!r}: splits_on_demand is True or False, not {splits_on_demand!r}"
            raise PipelineError(message)
        if splits is None and splits_on_demand:
            message = f"operator {name!r}: splits_on_demand has no effect without splits"
            raise PipelineError(message)
        if isinstance(splits, str) or callable(splits):
            finder = self._finder(name, splits, options)
            stream = self._add(name, OperatorKind.SOURCE, function, (finder.broadcast(),), options)
        else:
            given = None if splits is None else plain_json(f"operator {name!r}: splits", list(splits))
            stream = self._add(name, OperatorKind.SOURCE, function, (), options, splits=given)
        if splits_on_demand:
            self._nodes[name] = replace(self._nodes[name], splits_on_demand=True)
        return stream

    def _finder(self, name: str, function: UserFunction, options: OperatorOptions) -> Stream:
        """The operator that finds the splits of the source `name`."""
        own: OperatorOptions = {"parallelism": 1, "exclusive": False}
        if options.get("slot_sharing_group") is not None:
            own["slot_sharing_group"] = options["slot_sharing_group"]
        return self._add(f"splits of {name}", OperatorKind.SPLITS, function, (), own)

    def stream_source(
        self,
        name: str,
        function: UserFunction,
        *,
        splits: Iterable[Any] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> Stream:
        """Add a streaming source: `function(ctx)` returns a streaming DataFrame (`ctx.spark.readStream...`).

        `ctx.splits` is the share of `splits` that the subtask has: each subtask runs a query over its share.
        """
        if isinstance(splits, str) or callable(splits):
            message = f"operator {name!r}: splits of a stream are a list, since the state of its query belongs to them"
            raise PipelineError(message)
        given = None if splits is None else plain_json(f"operator {name!r}: splits", list(splits))
        return self._add(name, OperatorKind.STREAM_SOURCE, function, (), options, splits=given)

    def _graph(self, collector: ArtifactCollector) -> tuple[list[JobVertex], list[JobEdge]]:
        return vertices_and_edges(settled(self._nodes, self._links), self._links, collector)

    def parallelism_of(self, name: str) -> int:
        """That of an operator as far as it is known, AUTO_PARALLELISM where the cluster will choose it."""
        return self._nodes[name].chaining.parallelism

    def _add(
        self,
        name: str,
        kind: OperatorKind,
        function: UserFunction,
        edges: Sequence[Edge],
        options: OperatorOptions,
        *,
        splits: Sequence[Any] | None = None,
        stream_sink: StreamSinkSpec | None = None,
    ) -> Stream:
        check_names(f"operator {name!r}", options, OperatorOptions)
        self._check_new(name, edges)
        is_streaming = self._check_streaming(name, kind, edges, options)
        has_splits = splits is not None or (kind is OperatorKind.SOURCE and bool(edges))
        if stream_sink is None:
            check_function(name, function, 0 if kind is OperatorKind.SOURCE else len(edges))
        wanted = options.get("parallelism")
        check_options(name, {**options, "parallelism": self.parallelism if wanted is None else wanted})
        parallelism = self._parallelism_of(name, edges, wanted, divides=has_splits and not is_streaming)
        inputs = [self._nodes[edge.stream.name].chaining for edge in edges]
        is_forward = all(edge.mode is ExchangeMode.FORWARD for edge in edges)
        group = inherited(
            options.get("slot_sharing_group"), [node.slot_sharing_group for node in inputs], DEFAULT_GROUP
        )
        chaining = ChainNode(
            name,
            parallelism,
            # Another parallelism has another default.
            inherited(
                options.get("max_parallelism"),
                [node.max_parallelism for node in inputs if is_forward],
                default_max_parallelism(parallelism),
            ),
            group,
            inherited(options.get("resources"), [node.resources for node in inputs], DEFAULT_RESOURCES),
            has_splits=has_splits,
            is_chainable=options.get("chainable", True),
        )
        self._nodes[name] = OperatorNode(
            chaining,
            kind,
            function,
            options.get("exclusive"),
            None if splits is None else tuple(splits),
            is_streaming,
            stream_sink,
            options.get("rows_per_task"),
            is_auto_asked=wanted == AUTO,
        )
        self._links += [
            OperatorLink(
                edge.stream.name, name, edge.mode, edge.key_columns, index, edge.splittable, edge.broadcast_below
            )
            for index, edge in enumerate(edges)
        ]
        if parallelism != AUTO_PARALLELISM:
            join(self._nodes, self._links, name)
        return Stream(self, name, group, kind)

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
            sink = self._nodes[edge.stream.name].stream_sink
            if sink is not None and (sink.trigger is None or not sink.trigger.ends):
                message = (
                    f"operator {name!r}: the query {edge.stream.name!r} never ends, so nothing can read its result; "
                    "with trigger='availableNow' it ends when it has read what is there"
                )
                raise PipelineError(message)
            if edge.stream.kind is OperatorKind.SINK:
                message = f"operator {name!r}: {edge.stream.name!r} is a sink and has no consumers"
                raise PipelineError(message)

    def _check_streaming(self, name: str, kind: OperatorKind, edges: Sequence[Edge], options: OperatorOptions) -> bool:
        """True for an operator of a streaming query. Raises PipelineError for what no streaming query can have."""
        reads = [edge for edge in edges if self._nodes[edge.stream.name].is_running_query]
        if kind is not OperatorKind.STREAM_SOURCE and not reads:
            if kind is OperatorKind.STREAM_SINK:
                message = (
                    f"operator {name!r}: stream_sink() writes a stream that begins with stream_source(); use sink()"
                )
                raise PipelineError(message)
            return False
        if kind is OperatorKind.SINK:
            message = (
                f"operator {name!r}: {edges[0].stream.name!r} is a stream, which stream_sink() ends: sink() takes data"
            )
            raise PipelineError(message)
        for edge in reads:
            if edge.mode is not ExchangeMode.FORWARD:
                message = (
                    f"operator {name!r}: {edge.mode.value} writes what an ended task has made, and the stream "
                    f"{edge.stream.name!r} does not end. Inside a query Spark shuffles by itself (groupBy, repartition)"
                )
                raise PipelineError(message)
        if options.get("exclusive") is False:
            message = f"operator {name!r}: a streaming query is exclusive, two at once would write into one checkpoint"
            raise PipelineError(message)
        return True

    def _parallelism_of(self, name: str, edges: Sequence[Edge], given: int | str | None, *, divides: bool) -> int:
        """The parallelism that forward and gather edges dictate, else the given one, else the pipeline's default.

        Without any the cluster chooses, if the operator `divides` what it reads among its subtasks.
        """
        dictated = {edge.stream.parallelism for edge in edges if edge.mode is ExchangeMode.FORWARD}
        dictated |= {1 for edge in edges if edge.mode is ExchangeMode.GATHER}
        is_chosen = AUTO_PARALLELISM in dictated
        dictated.discard(AUTO_PARALLELISM)
        if len(dictated) > 1:
            message = f"operator {name!r}: its forward and gather edges ask for parallelism {sorted(dictated)} at once"
            raise PipelineError(message)
        if dictated:
            return self._dictated(name, dictated.pop(), given)
        own = self.parallelism if given is None and not is_chosen else given
        if isinstance(own, int):
            return own
        if is_chosen or divides or any(edge.mode.divides for edge in edges):
            return AUTO_PARALLELISM
        if given == AUTO:
            message = f"operator {name!r}: parallelism {AUTO!r} has no effect, since each subtask would read all rows"
            raise PipelineError(message)
        return 1

    def _dictated(self, name: str, wanted: int, given: int | str | None) -> int:
        if given not in {None, wanted}:
            message = (
                f"operator {name!r}: its inputs dictate parallelism {wanted}, not {given}; "
                "use rebalance(), hash() or broadcast() to change it"
            )
            raise PipelineError(message)
        return wanted


@dataclass(frozen=True, eq=False)
class Stream:
    """The output of one operator, to which consumers are attached."""

    pipeline: Pipeline
    name: str
    slot_sharing_group: str
    kind: OperatorKind = field(repr=False)

    @property
    def parallelism(self) -> int:
        """The number of subtasks as far as it is known, -1 where the cluster will choose it."""
        return self.pipeline.parallelism_of(self.name)

    def forward(self) -> Edge:
        """Rows of subtask i go to subtask i of a consumer of the same parallelism. Chained where possible."""
        return Edge(self, ExchangeMode.FORWARD)

    def hash(self, *columns: str, splittable: bool = False, broadcast_below: int | str | None = None) -> Edge:
        """Rows with equal values in these columns go to the same subtask.

        Both options are for a consumer whose parallelism the cluster chooses. `splittable`: rows of a key that has far
        more of them than others may go to several subtasks, which each get all rows of the other inputs with that key:
        right for a join that looks up each of these rows, wrong for what needs all rows of a key at once.
        `broadcast_below`: if the stream has fewer bytes than this ("10 mb"), each subtask gets all of it, and the rows
        of the other inputs go anywhere: right for the side of a join that is only looked up.
        """
        if not columns or not all(map(_is_name, columns)):
            message = f"stream {self.name!r}: hash() takes the names of one or more columns, not {columns!r}"
            raise PipelineError(message)
        return Edge(self, ExchangeMode.HASH, columns, splittable, _bytes_of(self.name, broadcast_below))

    def rebalance(self) -> Edge:
        """Each row goes to one subtask, about equally many to each."""
        return Edge(self, ExchangeMode.REBALANCE)

    def broadcast(self) -> Edge:
        """All rows go to every subtask."""
        return Edge(self, ExchangeMode.BROADCAST)

    def gather(self) -> Edge:
        """All rows go to one subtask: the consumer has parallelism 1."""
        return Edge(self, ExchangeMode.GATHER)

    def map(self, name: str, function: UserFunction, **options: Unpack[MapOptions]) -> Stream:
        """Add `function(ctx, dataframe)` behind a forward edge. It has the parallelism of this stream."""
        check_names(f"operator {name!r}", options, MapOptions)
        return self.forward().attach(
            name, OperatorKind.MAP, function, (), {"parallelism": None, "rows_per_task": None, **options}
        )

    def apply(
        self, name: str, function: UserFunction, *others: Edge | Stream, **options: Unpack[OperatorOptions]
    ) -> Stream:
        """`Edge.apply` behind a forward edge. Another parallelism than that of this stream is a PipelineError."""
        return self.forward().apply(name, function, *others, **options)

    def sink(
        self, name: str, function: UserFunction, *others: Edge | Stream, **options: Unpack[OperatorOptions]
    ) -> Stream:
        """`Edge.sink` behind a forward edge. Another parallelism than that of this stream is a PipelineError."""
        return self.forward().sink(name, function, *others, **options)

    def stream_sink(
        self,
        name: str,
        function: UserFunction,
        *,
        trigger: Trigger | None = None,
        output_mode: str = "",
        uid: str | None = None,
        foreach_batch: bool | None = None,
        **options: Unpack[MapOptions],
    ) -> Stream:
        """Add the end of a streaming query, which the cluster starts and restarts: one query for each subtask.

        `function(ctx, df)` returns a DataStreamWriter that is not started, or `function(ctx, batch, batch_id)` is
        called for each batch; `foreach_batch` says which where the signature does not. The cluster sets the name and
        the checkpoint location of the query. `trigger`: an interval, "availableNow", or Spark's keyword with its value.
        `uid` names the query's state, which is found again under it; default: the operator's name.

        With availableNow the query ends when it has read what was there, and its result is the number of its batches
        and rows. Raises PipelineError.
        """
        check_names(f"operator {name!r}", options, MapOptions)
        spec = StreamSinkSpec(
            uid=name if uid is None else uid,
            trigger=trigger_of(name, trigger),
            output_mode=output_mode,
            is_batch_function=is_batch_function(name, function, foreach_batch),
        )
        return self.pipeline._add(  # noqa: SLF001 - one class in three
            name,
            OperatorKind.STREAM_SINK,
            function,
            (self.forward(),),
            {"parallelism": None, "rows_per_task": None, **options},
            stream_sink=spec,
        )


@dataclass(frozen=True, eq=False)
class Edge:
    """The exchange between a stream and the consumer that will be attached to the edge."""

    stream: Stream
    mode: ExchangeMode
    key_columns: tuple[str, ...] = ()
    splittable: bool = False
    broadcast_below: int | None = None

    def apply(
        self, name: str, function: UserFunction, *others: Edge | Stream, **options: Unpack[OperatorOptions]
    ) -> Stream:
        """Add `function(ctx, dataframe, *dataframes of others)`. A Stream among `others` is a forward edge."""
        return self.attach(name, OperatorKind.APPLY, function, others, options)

    def sink(
        self, name: str, function: UserFunction, *others: Edge | Stream, **options: Unpack[OperatorOptions]
    ) -> Stream:
        """Like `apply`, for an operator without consumers. Its JSON value, if any, is the job's result."""
        return self.attach(name, OperatorKind.SINK, function, others, options)

    def attach(
        self,
        name: str,
        kind: OperatorKind,
        function: UserFunction,
        others: Sequence[Edge | Stream],
        options: OperatorOptions,
    ) -> Stream:
        """Add an operator behind this edge and `others`."""
        edges = (self, *(_edge_of(name, other) for other in others))
        return self.stream.pipeline._add(name, kind, function, edges, options)  # noqa: SLF001 - one class in three


def _edge_of(name: str, given: object) -> Edge:
    if isinstance(given, Stream):
        return given.forward()
    if isinstance(given, Edge):
        return given
    message = f"operator {name!r}: further inputs are streams or edges, not a {type(given).__name__}"
    raise PipelineError(message)


def _bytes_of(name: str, given: int | str | None) -> int | None:
    if given is None:
        return None
    size = given if isinstance(given, int) and not isinstance(given, bool) else None
    if isinstance(given, str):
        size = size_bytes(given.replace(" ", ""))
    if size is None or size < 1:
        message = f"stream {name!r}: broadcast_below is a size such as '10 mb', or bytes, not {given!r}"
        raise PipelineError(message)
    return size


def _is_name(given: object) -> bool:
    return isinstance(given, str) and bool(given.strip())
