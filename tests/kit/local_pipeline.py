"""Runs a JobGraph's functions on one plain SparkSession, with the exchanges done by filters: a model of the runtime.

Rows move as semantics.md says: hash by `pmod(hash(keys), P)` with canonical key types, gather and broadcast as a union,
rebalance by row position. No cluster, no files between vertices, one subtask after another.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from runtime.common.exchange import ExchangeMode
from runtime.common.ids import VertexId
from runtime.jobgraph.graph import JobEdge, JobGraph, JobVertex, PickledCode
from runtime.jobgraph.regions import topological_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class LocalContext:
    """A TaskContext on a plain session. `output_path` is the base itself."""

    spark: SparkSession
    vertex_name: str
    operator_name: str
    subtask_index: int
    parallelism: int
    splits: Sequence[Any]
    params: Mapping[str, Any]
    job_id: str = "0" * 32
    job_name: str = "local"
    attempt_number: int = 0
    cancelled: bool = False

    @property
    def secrets(self) -> Mapping[str, str]:
        return {}

    @property
    def logger(self) -> logging.Logger:
        return logging.getLogger("local-pipeline")

    def report_progress(self, fraction: float, text: str = "") -> None:
        """Nobody watches."""

    def output_path(self, base: str) -> str:
        return base


def run_graph(spark: SparkSession, graph: JobGraph) -> dict[str, list[Any]]:
    """Values of the terminal vertices, by name, in subtask order."""
    outputs: dict[VertexId, list[Any]] = {}
    for vertex_id in topological_order(graph):
        vertex = graph.vertex(vertex_id)
        edges = graph.in_edges(vertex_id)
        outputs[vertex_id] = [
            _run_subtask(
                spark, graph, vertex, index, [_input(edge, outputs[edge.source], index, vertex) for edge in edges]
            )
            for index in range(vertex.parallelism)
        ]
    return {vertex.name: outputs[vertex.id] for vertex in graph.vertices if not graph.out_edges(vertex.id)}


def _run_subtask(spark: SparkSession, graph: JobGraph, vertex: JobVertex, index: int, inputs: list[Any]) -> Any:
    value: Any = None
    for operator in vertex.operators:
        assert isinstance(operator.code, PickledCode), operator
        splits = list(vertex.splits or ())[index :: vertex.parallelism]
        context = LocalContext(
            spark, vertex.name, operator.name, index, vertex.parallelism, splits, graph.params, job_name=graph.name
        )
        value = pickle.loads(operator.code.payload())(context, *inputs)
        inputs = [value]
    return value.localCheckpoint() if hasattr(value, "localCheckpoint") else value


def _input(edge: JobEdge, produced: list[Any], index: int, consumer: JobVertex) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - Spark's habit

    if edge.mode is ExchangeMode.FORWARD:
        frame: DataFrame = produced[index]
        return frame
    together: DataFrame = reduce(lambda left, right: left.unionByName(right), produced)
    if edge.mode in {ExchangeMode.GATHER, ExchangeMode.BROADCAST}:
        return together
    if edge.mode is ExchangeMode.REBALANCE:
        position = F.monotonically_increasing_id() % consumer.parallelism
        return together.where(position == index)
    keys = [_canonical(together, column) for column in edge.key_columns]
    return together.where(F.pmod(F.hash(*keys), F.lit(consumer.parallelism)) == index)


def _canonical(frame: DataFrame, column: str) -> Any:
    kind = frame.schema[column].dataType.typeName()
    wider = {"byte": "bigint", "short": "bigint", "integer": "bigint", "float": "double"}.get(kind)
    return frame[column].cast(wider) if wider else frame[column]
