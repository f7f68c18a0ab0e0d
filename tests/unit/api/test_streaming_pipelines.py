"""Streaming queries in the Pipeline API: which vertices they make, and what is refused with which sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike import Pipeline, Stream, script_job
from airflow_flinklike.api.application import application_job
from airflow_flinklike.api.streaming import Trigger, ancestors, is_batch_function, trigger_of
from airflow_flinklike.exceptions import PipelineError
from runtime.common.errors import InvalidInputError
from runtime.common.states import JobType
from runtime.jobgraph.graph import JobGraph, OperatorKind
from runtime.jobgraph.parsing import check_job_graph, parse_job_graph
from runtime.jobgraph.savepoints import SavepointRestoreSettings
from runtime.jobgraph.streams import StreamTrigger, TriggerKind


def read(ctx: Any) -> Any:
    return ctx


def change(ctx: Any, df: Any) -> Any:
    return ctx, df


def join(ctx: Any, one: Any, other: Any) -> Any:
    return ctx, one, other


def write(ctx: Any, df: Any) -> Any:
    return ctx, df


def per_batch(ctx: Any, batch: Any, batch_id: int) -> None:
    del ctx, batch, batch_id


def shape(graph: JobGraph) -> dict[str, list[tuple[str, tuple[int, ...] | None]]]:
    return {vertex.name: [(one.name, one.inputs) for one in vertex.operators] for vertex in graph.vertices}


def test_a_query_is_one_vertex_from_its_source_to_its_sink() -> None:
    pipeline = Pipeline("p", parallelism=2)
    pipeline.stream_source("s", read, splits=[1, 2]).map("m", change).stream_sink("t", write, trigger="1 second")
    graph = pipeline.job_graph()
    (vertex,) = graph.vertices
    assert shape(graph) == {"s -> m -> t": [("s", ()), ("m", (0,)), ("t", (1,))]}
    assert (vertex.parallelism, vertex.splits, vertex.is_exclusive(graph)) == (2, (1, 2), True)
    assert graph.job_type is JobType.STREAMING
    assert parse_job_graph(graph.canonical_json()) == graph


def test_sinks_share_what_they_read_without_an_exchange() -> None:
    pipeline = Pipeline("p")
    clean = pipeline.stream_source("s", read).map("m", change)
    clean.stream_sink("t", write)
    clean.map("n", change).stream_sink("u", per_batch, uid="second")
    graph = pipeline.job_graph()
    assert shape(graph) == {
        "s -> m -> t": [("s", ()), ("m", (0,)), ("t", (1,))],
        "s -> m -> n -> u": [("s", ()), ("m", (0,)), ("n", (1,)), ("u", (2,))],
    }
    assert graph.edges == ()
    assert [vertex.stream_sink and vertex.stream_sink.uid for vertex in graph.vertices] == ["t", "second"]
    assert [vertex.stream_sink and vertex.stream_sink.is_batch_function for vertex in graph.vertices] == [False, True]


def test_a_query_reads_two_streams_and_a_bounded_input() -> None:
    pipeline = Pipeline("p")
    bounded = pipeline.source("b", read).map("c", change)
    one, other = pipeline.stream_source("s", read), pipeline.stream_source("r", read)
    three = one.apply("j", lambda ctx, a, b, c: (ctx, a, b, c), bounded.broadcast(), other)
    three.stream_sink("t", write)
    graph = pipeline.job_graph()
    assert shape(graph)["s -> r -> j -> t"] == [("s", ()), ("r", ()), ("j", (0, -1, 1)), ("t", (2,))]
    (edge,) = graph.edges
    assert (graph.vertex(edge.source).name, edge.input_index, edge.mode.value) == ("b -> c", 0, "BROADCAST")


def test_what_ends_can_be_read() -> None:
    pipeline = Pipeline("p")
    ended = pipeline.stream_source("s", read).stream_sink("t", write, trigger="availableNow")
    ended.gather().sink("end", change)
    graph = pipeline.job_graph()
    assert graph.job_type is JobType.BATCH
    assert all(vertex.is_exclusive(graph) for vertex in graph.vertices), "R59"
    assert [(graph.vertex(edge.source).name, graph.vertex(edge.target).name) for edge in graph.edges] == [
        ("s -> t", "end")
    ]


def test_what_has_ended_is_an_input_of_another_query() -> None:
    pipeline = Pipeline("p")
    ended = pipeline.stream_source("s", read).stream_sink("t", write, trigger="availableNow")
    pipeline.stream_source("r", read).apply("j", join, ended.broadcast()).stream_sink("u", write)
    graph = pipeline.job_graph()
    assert shape(graph)["r -> j -> u"] == [("r", ()), ("j", (0, -1)), ("u", (1,))]
    assert [(graph.vertex(one.source).name, graph.vertex(one.target).name) for one in graph.edges] == [
        ("s -> t", "r -> j -> u")
    ]


def test_ancestors_stand_before_what_reads_them() -> None:
    inputs = {"t": ["m"], "m": ["a", "b"], "u": ["a"]}
    assert ancestors("t", inputs, ["a", "x", "b", "m", "u", "t"]) == ("a", "b", "m", "t")


def _stream(pipeline: Pipeline) -> Stream:
    return pipeline.stream_source("s", read)


REFUSED: list[tuple[Callable[[Pipeline], object], str]] = [
    (lambda p: _stream(p).sink("t", change), "which stream_sink.. ends"),
    (lambda p: _stream(p).hash("id").apply("a", change), "HASH writes what an ended task has made"),
    (lambda p: _stream(p).gather().apply("a", change), "GATHER writes what an ended task has made"),
    (lambda p: p.source("b", read).stream_sink("t", write), "begins with stream_source"),
    (lambda p: _stream(p).stream_sink("t", write).gather().sink("e", change), "never ends"),
    (lambda p: _stream(p).map("m", change, exclusive=False), "is exclusive"),
    (lambda p: (_stream(p).map("m", change), p.job_graph()), "no stream_sink.. reads the stream 'm'"),
    (lambda p: (_stream(p).stream_sink("t", write, uid="../x"), p.job_graph()), "names a directory"),
    (lambda p: (_stream(p).stream_sink("t", write, output_mode="all"), p.job_graph()), "none of append, update"),
    (lambda p: (_stream(p).stream_sink("t", write, trigger="soon"), p.job_graph()), "or the trigger 'availableNow'"),
    (lambda p: (_stream(p).stream_sink("t", write, trigger="10 parsecs"), p.job_graph()), "is no interval"),
    (lambda p: (_stream(p).stream_sink("t", write, uid="_metadata"), p.job_graph()), "choose another one"),
    (lambda p: (_stream(p).stream_sink("t", write, uid="_ended"), p.job_graph()), "choose another one"),
    (lambda p: (_stream(p).stream_sink("t", write, uid="orders.crc"), p.job_graph()), "choose another one"),
    (lambda p: _stream(p).stream_sink("t", write, trigger={"once": True}), "use availableNow"),
    (lambda p: _stream(p).stream_sink("t", write, trigger="once"), "use availableNow"),
    (lambda p: _stream(p).stream_sink("t", write, trigger=5), "a trigger is an interval .* not '5'"),  # type: ignore[arg-type]
    (lambda p: _stream(p).stream_sink("t", write, trigger={"continuous": "1 s"}), "keeps no state"),
    (lambda p: _stream(p).stream_sink("t", write, trigger={"daily": "1 s"}), "is no trigger"),
    (lambda p: _stream(p).stream_sink("t", write, trigger={"availableNow": False}), "is True"),
    (lambda p: _stream(p).stream_sink("t", write, trigger={"processingTime": 5}), "is a text"),
    (lambda p: _stream(p).stream_sink("t", write, trigger={}), "a trigger is an interval"),
    (lambda p: _stream(p).stream_sink("t", read), "neither"),
    (lambda p: _stream(p).stream_sink("t", lambda ctx, *rest: (ctx, rest)), "both"),
    (lambda p: _stream(p).stream_sink("t", "a.b:c"), "say foreach_batch=True"),
    (lambda p: _stream(p).stream_sink("t", write, foreach_batch=True), "takes a function of 3 arguments"),
]


@pytest.mark.parametrize(("make", "expected"), REFUSED)
def test_what_no_query_can_be_is_refused_where_it_is_written(make: Callable[[Pipeline], object], expected: str) -> None:
    with pytest.raises(PipelineError, match=expected):
        make(Pipeline("p"))


def test_queries_that_do_not_end_keep_their_slots() -> None:
    pipeline = Pipeline("p", parallelism=2)
    stream = _stream(pipeline)
    stream.stream_sink("t", write)
    stream.stream_sink("u", write)
    stream.stream_sink("v", write, trigger="availableNow")
    (need,) = pipeline.explain().slots
    assert (need.minimum, need.maximum) == (4, 6)


def test_two_queries_never_share_a_state() -> None:
    pipeline = Pipeline("p")
    stream = _stream(pipeline)
    stream.stream_sink("t", write, uid="same")
    stream.stream_sink("u", write, uid="same")
    with pytest.raises(PipelineError, match="uid 'same' is used more than once"):
        pipeline.job_graph()


TRIGGERS: list[tuple[Trigger | None, StreamTrigger | None]] = [
    (None, None),
    ("10 seconds", StreamTrigger(kind=TriggerKind.PROCESSING_TIME, interval="10 seconds")),
    ("1 minute 30 seconds", StreamTrigger(kind=TriggerKind.PROCESSING_TIME, interval="1 minute 30 seconds")),
    ("availableNow", StreamTrigger(kind=TriggerKind.AVAILABLE_NOW)),
    ({"realTime": "5 minutes"}, StreamTrigger(kind=TriggerKind.REAL_TIME, interval="5 minutes")),
]


@pytest.mark.parametrize(("given", "expected"), TRIGGERS)
def test_triggers_are_those_of_spark(given: Trigger | None, expected: StreamTrigger | None) -> None:
    found = trigger_of("t", given)
    assert found == expected
    if found is not None and isinstance(given, dict):
        assert found.as_keywords() == given


def test_the_form_of_a_sink_is_seen_or_said() -> None:
    assert is_batch_function("t", per_batch, None)
    assert not is_batch_function("t", write, None)
    assert is_batch_function("t", "a.b:c", given=True)
    assert not is_batch_function("t", lambda ctx, *rest: (ctx, rest), given=False)


@pytest.mark.parametrize(
    ("change_of", "expected"),
    [
        ({"inputs": None}, "does not say what it reads"),
        ({"inputs": (5,)}, "which is not there yet"),
        ({"inputs": (-1,)}, "which is not there yet"),
        ({"kind": OperatorKind.SOURCE}, "is a source, which is no part"),
        ({"kind": OperatorKind.STREAM_SINK}, "only stream sinks have a uid"),
    ],
)
def test_the_cluster_checks_how_a_query_hangs_together(change_of: dict[str, Any], expected: str) -> None:
    pipeline = Pipeline("p")
    pipeline.stream_source("s", read).map("m", change).stream_sink("t", write)
    graph = pipeline.job_graph()
    (vertex,) = graph.vertices
    operators = tuple(one.model_copy(update=change_of) if one.name == "m" else one for one in vertex.operators)
    broken = graph.model_copy(update={"vertices": (vertex.model_copy(update={"operators": operators}),)})
    with pytest.raises(InvalidInputError, match=expected):
        check_job_graph(broken.without_caches())


def test_a_name_for_the_state_is_that_of_a_directory_and_of_queries() -> None:
    def graph(name: str) -> JobGraph:
        pipeline = Pipeline("p", checkpoint_name=name)
        pipeline.stream_source("s", read).stream_sink("t", write)
        return pipeline.job_graph()

    assert graph("orders of 2026").checkpoint_name == "orders of 2026"
    assert parse_job_graph(graph("orders").canonical_json()).checkpoint_name == "orders"
    assert "checkpoint_name" not in graph("").document(), "as earlier releases write it"
    for name in ("../x", "a/b", ".", "x" * 201, "a\n"):
        with pytest.raises(PipelineError, match="names a directory: it has 1 to 200 letters"):
            graph(name)
    without = Pipeline("p", checkpoint_name="orders")
    without.source("s", read)
    with pytest.raises(PipelineError, match="checkpoint name 'orders' has no effect: the job has no stream sink"):
        without.job_graph()


def test_a_name_and_a_savepoint_are_two_places_to_go_on_from() -> None:
    pipeline = Pipeline("p", checkpoint_name="orders")
    pipeline.stream_source("s", read).stream_sink("t", write)
    settings = SavepointRestoreSettings(path="/savepoints/savepoint-1")
    both = pipeline.job_graph().model_copy(update={"savepoint": settings})
    with pytest.raises(InvalidInputError, match="cannot be started from a savepoint: leave out one of them"):
        check_job_graph(both.without_caches())


def test_a_script_that_streams_says_so_in_its_graph(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text("print(1)\n")
    graph = script_job(tmp_path / "orders.py", streaming=True).build().graph
    assert graph.job_type is JobType.STREAMING
    assert "starts_queries" not in script_job(tmp_path / "orders.py").build().graph.canonical_json().decode()
    with pytest.raises(PipelineError, match="is a jar"):
        application_job("orders.jar", streaming=True)
