"""Which operators of a pipeline leave their parallelism to the cluster, and what is refused then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike import Pipeline, files_in
from airflow_flinklike.exceptions import PipelineError
from runtime.common.exchange import AUTO_PARALLELISM, ExchangeMode
from runtime.jobgraph.graph import JobGraph
from runtime.jobgraph.validate import graph_problems


def read(ctx: Any) -> Any:
    return ctx.spark.range(1)


def use(ctx: Any, *frames: Any) -> Any:
    return frames[0]


def parallelism(graph: JobGraph) -> dict[str, int]:
    return {vertex.name: vertex.parallelism for vertex in graph.vertices}


def built(pipeline: Pipeline) -> dict[str, int]:
    return parallelism(pipeline.build().graph)


def test_inner_operators_are_left_to_the_cluster_and_ends_run_once() -> None:
    pipeline = Pipeline("p")
    orders = pipeline.source("orders", read, splits=[1, 2, 3])
    totals = orders.hash("k").apply("totals", use)
    totals.rebalance().apply("more", use).gather().sink("write", use)
    assert built(pipeline) == {"orders": -1, "totals": -1, "more": -1, "write": 1}


def test_what_forward_edges_join_with_an_end_runs_once_too() -> None:
    pipeline = Pipeline("p")
    pipeline.source("orders", read).hash("k").apply("totals", use).map("round", use).sink("write", use)
    assert built(pipeline) == {"orders": 1, "totals -> round -> write": 1}


def test_an_end_is_left_to_the_cluster_if_asked() -> None:
    pipeline = Pipeline("p")
    pipeline.source("orders", read).hash("k").sink("write", use, parallelism="auto")
    assert built(pipeline) == {"orders": 1, "write": AUTO_PARALLELISM}


def test_a_source_without_splits_runs_once() -> None:
    pipeline = Pipeline("p")
    pipeline.source("orders", read).rebalance().apply("use", use).gather().sink("write", use)
    assert built(pipeline)["orders"] == 1


def test_what_is_only_broadcast_runs_once() -> None:
    pipeline = Pipeline("p")
    pipeline.source("orders", read, splits=[1, 2]).broadcast().apply("use", use).gather().sink("write", use)
    assert built(pipeline)["use"] == 1


def test_a_parallelism_of_its_own_holds_for_what_forward_edges_join() -> None:
    pipeline = Pipeline("p")
    totals = pipeline.source("orders", read, splits=[1, 2]).hash("k").apply("totals", use)
    lookup = pipeline.source("lookup", read)
    totals.apply("join", use, lookup).gather().sink("write", use)
    assert built(pipeline) == {"orders": -1, "totals": 1, "lookup": 1, "join": 1, "write": 1}
    assert totals.parallelism == 1


def test_the_default_of_a_pipeline_holds_for_all() -> None:
    pipeline = Pipeline("p", parallelism=3)
    pipeline.source("orders", read, splits=[1]).hash("k").apply("totals", use).gather().sink("write", use)
    assert built(pipeline) == {"orders": 3, "totals": 3, "write": 1}


def test_options_of_edges_and_operators_reach_the_graph() -> None:
    pipeline = Pipeline("p")
    left = pipeline.source("left", read, splits=[1]).hash("k", splittable=True)
    right = pipeline.source("right", read, splits=[1]).hash("k", broadcast_below="10 mb")
    left.apply("join", use, right, rows_per_task=1000).gather().sink("write", use)
    graph = pipeline.build().graph
    (join,) = [vertex for vertex in graph.vertices if vertex.name == "join"]
    assert join.rows_per_task == 1000
    first, second = graph.in_edges(join.id)
    assert (first.splittable, first.broadcast_below) == (True, None)
    assert (second.splittable, second.broadcast_below) == (False, 10 << 20)
    assert b"rows_per_task" not in graph_of_a_pipeline().canonical_json()


def graph_of_a_pipeline() -> JobGraph:
    pipeline = Pipeline("q")
    pipeline.source("orders", read).hash("k").apply("totals", use).gather().sink("write", use)
    return pipeline.build().graph


def test_what_has_no_effect_is_refused() -> None:
    pipeline = Pipeline("p")
    orders = pipeline.source("orders", read)
    with pytest.raises(PipelineError, match="parallelism 'auto' has no effect, since each subtask would read all rows"):
        pipeline.source("other", read, parallelism="auto")
    with pytest.raises(PipelineError, match="broadcast_below is a size such as '10 mb'"):
        orders.hash("k", broadcast_below="much")
    orders.hash("k", splittable=True).sink("write", use)
    with pytest.raises(PipelineError, match=r"splittable and broadcast_below of hash\(\) have no effect, since its"):
        pipeline.build()
    fixed = Pipeline("p")
    fixed.source("orders", read).hash("k").apply("totals", use, parallelism=2, rows_per_task=5).gather().sink("w", use)
    with pytest.raises(PipelineError, match="rows_per_task has no effect, since its parallelism is 2"):
        fixed.build()


def test_a_parallelism_that_is_asked_for_is_not_taken_back() -> None:
    pipeline = Pipeline("p")
    totals = pipeline.source("orders", read).hash("k").apply("totals", use, parallelism="auto")
    with pytest.raises(PipelineError, match="'totals' has parallelism 'auto', and forward edges join it with 'join'"):
        totals.apply("join", use, pipeline.source("lookup", read))


def test_a_streaming_query_keeps_the_parallelism_of_its_state() -> None:
    pipeline = Pipeline("p")
    pipeline.stream_source("events", read, splits=["a", "b"]).stream_sink("write", lambda ctx, df: df.writeStream)
    assert set(built(pipeline).values()) == {1}


def test_the_plan_says_so() -> None:
    text = plan_of_a_pipeline()
    assert "totals  (parallelism chosen at run time, up to 128)" in text


def plan_of_a_pipeline() -> str:
    pipeline = Pipeline("q")
    pipeline.source("orders", read).hash("k").apply("totals", use).gather().sink("write", use)
    return str(pipeline.explain().to_text())


def test_splits_that_a_function_finds_are_a_task_before_the_source() -> None:
    pipeline = Pipeline("p")
    orders = pipeline.source("orders", read, splits=lambda ctx: [1, 2])
    orders.hash("k").apply("totals", use).gather().sink("write", use)
    graph = pipeline.build().graph
    assert parallelism(graph) == {"splits of orders": 1, "orders": -1, "totals": -1, "write": 1}
    source = next(vertex for vertex in graph.vertices if vertex.name == "orders")
    (into,) = graph.in_edges(source.id)
    assert into.mode is ExchangeMode.BROADCAST
    assert not list(graph_problems(graph, python=None))


def test_splits_of_a_stream_are_a_list() -> None:
    with pytest.raises(PipelineError, match="splits of a stream are a list"):
        Pipeline("p").stream_source("events", read, splits="shop.jobs:regions")


def found(pattern: str, **options: Any) -> list[list[str]]:
    find: Any = files_in(pattern, **options)
    return [[Path(one).name for one in split] for split in find(None)]


def test_files_are_found_when_the_job_runs(tmp_path: Path) -> None:
    for name, size in (("a.csv", 30), ("b.csv", 30), ("c.csv", 50), ("_SUCCESS", 0), (".a.crc", 5)):
        (tmp_path / name).write_bytes(b"x" * size)
    assert found(str(tmp_path), bytes_per_split=60) == [["a.csv", "b.csv"], ["c.csv"]]
    assert found(f"{tmp_path}/[bc].csv", bytes_per_split="1 mb") == [["b.csv", "c.csv"]]
    assert found(f"{tmp_path}/none-*") == []
    find: Any = files_in(str(tmp_path))
    assert find(None)[0][0].startswith("file://")


def test_files_are_those_that_spark_would_read(tmp_path: Path) -> None:
    """Below partitions and behind links; not those that another job has not committed yet."""
    for name in ("day=1/a.csv", "_h=2/b.csv", ".attempt-1/c.csv", "_temporary/0/d.csv", "odd [1]/e.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link.csv").symlink_to(tmp_path / "day=1" / "a.csv")
    (tmp_path / "odd [1]" / "e.csv").rename(tmp_path / "e.csv")
    assert found(str(tmp_path)) == [["b.csv", "a.csv", "e.csv", "link.csv"]]
    assert found(f"{tmp_path}/**/*.csv") == [["b.csv", "a.csv", "e.csv", "link.csv"]]
    (tmp_path / "odd [1]" / "e.csv").write_text("x")
    with pytest.raises(
        PipelineError, match=r"is a pattern for Spark's readers, which would read other files: rename it"
    ):
        found(str(tmp_path))


@pytest.mark.parametrize("pattern", ["orders/*.csv", "~/orders", ""])
def test_a_relative_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(PipelineError, match="give an absolute path, or a URL"):
        files_in(pattern)


@pytest.mark.parametrize("size", ["many", 0, True])
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(PipelineError, match="bytes_per_split is a size such as '256 mb'"):
        files_in("/orders", bytes_per_split=size)
