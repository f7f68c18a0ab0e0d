"""Sources that take their splits on demand: what a pipeline says of them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_flinklike import Pipeline, files_in
from airflow_flinklike.exceptions import PipelineError
from runtime.jobgraph.graph import JobGraph, JobVertex
from runtime.jobgraph.parsing import parse_job_graph
from runtime.jobgraph.validate import graph_problems
from runtime.rest.routes.speculation import speculation_doubts, speculation_problem
from tests.kit.control_plane.job_graphs import edge, graph, source, vertex

SPECULATIVE = {"execution.batch.speculative.enabled": "true"}


def read(ctx: Any) -> Any:
    return [*ctx.next_splits()]


def use(ctx: Any, *frames: Any) -> Any:
    return frames[0]


def vertices(pipeline: Pipeline) -> dict[str, JobVertex]:
    return {one.name: one for one in pipeline.build().graph.vertices}


def reading(**options: Any) -> tuple[Pipeline, Any]:
    pipeline = Pipeline("p")
    given = {"splits": [1, 2, 3], "splits_on_demand": True, **options}
    return pipeline, pipeline.source("read", read, **given)


def test_the_vertex_says_so_and_no_other_has_the_field() -> None:
    pipeline, stream = reading()
    stream.gather().sink("write", use)
    found = vertices(pipeline)
    assert found["read"].splits_on_demand
    assert found["read"].parallelism == -1
    document = pipeline.build().graph.document()["vertices"]
    assert isinstance(document, list)
    assert ["splits_on_demand" in str(one) for one in document] == [True, False]
    assert "splits on demand" in pipeline.explain().to_text()
    assert parse_job_graph(pipeline.build().graph.canonical_json()) == pipeline.build().graph


def test_maps_are_chained_to_it() -> None:
    pipeline, stream = reading(parallelism=2)
    stream.map("clean", use).hash("k").apply("totals", use).gather().sink("write", use)
    assert vertices(pipeline)["read -> clean"].splits_on_demand


def test_splits_may_be_found_by_a_task() -> None:
    pipeline, stream = reading(splits=files_in("/data/*.csv"))
    stream.gather().sink("write", use)
    assert vertices(pipeline)["read"].splits_on_demand
    assert not vertices(pipeline)["splits of read"].splits_on_demand


def test_it_may_be_the_only_operator() -> None:
    pipeline, _ = reading()
    (found,) = pipeline.build().graph.vertices
    assert (found.parallelism, found.splits_on_demand) == (1, True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        pytest.param({"splits": None}, "splits_on_demand has no effect without splits", id="no splits"),
        pytest.param({"splits_on_demand": "yes"}, "splits_on_demand is True or False, not 'yes'", id="no truth"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(PipelineError, match=reason):
        reading(**options)


@pytest.mark.parametrize(
    "attach",
    [
        pytest.param(lambda stream: stream.sink("write", use), id="a sink"),
        pytest.param(
            lambda stream: stream.map("more", use, chainable=False).gather().sink("write", use), id="unchained"
        ),
        pytest.param(lambda stream: (stream.map("one", use), stream.map("two", use)), id="a fork"),
    ],
)
def test_no_forward_edge_leads_out_of_it(attach: Callable[[Any], object]) -> None:
    pipeline, stream = reading()
    attach(stream)
    with pytest.raises(PipelineError, match=r"no forward edge to .* can follow: use rebalance\(\), hash\(\)"):
        pipeline.build()


def test_streams_deal_their_splits_out() -> None:
    with pytest.raises(TypeError):
        Pipeline("p").stream_source("events", use, splits=[1], splits_on_demand=True)  # type: ignore[call-arg]


def problems(made: JobGraph) -> list[str]:
    return list(graph_problems(made, python=None))


def test_a_graph_of_others_is_checked_too() -> None:
    without = graph(source("read", splits_on_demand=True))
    assert any("splits on demand, and no splits" in one for one in problems(without))
    inner = graph(source("read"), vertex("work", splits=(1,), splits_on_demand=True), edges=(edge("read", "work"),))
    assert any("splits on demand are for a source of a batch" in one for one in problems(inner))


def test_speculation_leaves_it_out_by_its_name() -> None:
    read_only = source("read", splits=(1, 2), splits_on_demand=True, parallelism=2)
    made = graph(read_only, vertex("write"), edges=(edge("read", "write"),), configuration=SPECULATIVE)
    (doubt,) = speculation_doubts(made, is_cluster_enabled=False)
    assert "'read' takes its splits on demand, so that a slow one holds back no other" in doubt
    assert "has no effect" in speculation_problem(made)
