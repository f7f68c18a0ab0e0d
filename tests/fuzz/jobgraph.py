"""JobGraph JSON, as POST /jobs takes it: whatever is accepted can be stored, read again, scheduled and sent."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from runtime.common.errors import InvalidInputError
from runtime.jobgraph.graph import dump_operators, parse_operators
from runtime.jobgraph.parsing import parse_job_graph
from runtime.jobgraph.regions import pipelined_regions, topological_order
from runtime.jobgraph.slots import slot_needs
from runtime.rest.routes.submission import parse_submission
from tests.fuzz.surface import Surface
from tests.kit.control_plane.job_graphs import diamond, graph, lone, source, two_readers

JOB = "a" * 32


def _begin() -> Callable[[bytes], object]:
    def feed(data: bytes) -> object:
        request = parse_submission(data, ()).request
        graph = parse_job_graph(request.graph)
        assert graph.canonical_json() == request.graph, "it is another one when it is read again"
        for vertex in graph.vertices:
            assert parse_operators(dump_operators(vertex.operators)) == vertex.operators
        # What its owner does with it first.
        for one in graph.edges:
            assert graph.vertex(one.source).parallelism * graph.vertex(one.target).parallelism
        return pipelined_regions(graph), topological_order(graph), slot_needs(graph)

    return feed


_BROUGHT: dict[str, Any] = {
    "params": {"a": 1, "b": [1.5, None, {"c": "d"}], "list": ["x", 2, {"y": []}]},
    "spark_conf": {"spark.sql.shuffle.partitions": "8"},
    "environment": {"NAME": "value"},
    "secrets": ("one",),
    "execution_timeout_seconds": 5.0,
}


def _seeds() -> Sequence[bytes]:
    return [
        json.dumps({"job_id": JOB, "job_graph": one.document(), "options": {"client": "me"}}).encode()
        for one in (
            lone(**_BROUGHT),
            graph(source("read", splits=("x", 2, {"y": []}))),
            diamond(),
            two_readers(),
        )
    ]


SURFACES = (
    Surface(
        "job-graph",
        _begin,
        _seeds,
        (InvalidInputError,),
        tokens=(
            b'"params":',
            b'"splits":[',
            b'"parallelism":32768',
            b'"max_parallelism":-1',
            b'"type":"script"',
            b"NaN",
            b"1e999",
        ),
    ),
)
