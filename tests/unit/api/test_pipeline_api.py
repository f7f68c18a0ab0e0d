"""The Pipeline API: what graph it builds, and how it refuses mistakes at the line where they are made."""

import sys
from collections.abc import Callable
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from airflow_flinklike import (
    Edge,
    FixedDelayRestartStrategy,
    Pipeline,
    ResourceSpec,
    Stream,
    function_job,
    script_job,
)
from airflow_flinklike.api.job_source import build_job
from airflow_flinklike.api.operator_options import default_max_parallelism
from airflow_flinklike.exceptions import PipelineError
from runtime.common.exchange import ExchangeMode as Mode
from runtime.jobgraph.graph import BlobCode, FunctionReference, JobGraph, OperatorKind, PickledCode
from runtime.jobgraph.parsing import parse_job_graph
from runtime.jobgraph.restart_strategy import NO_RESTART, RestartStrategy
from tests.kit.control_plane.job_graphs import lone


def read(ctx: Any) -> Any: ...


def one(ctx: Any, frame: Any) -> Any: ...


def two(ctx: Any, left: Any, right: Any) -> Any: ...


async def later(ctx: Any) -> Any: ...


class Later:
    async def __call__(self, ctx: Any) -> Any: ...


def daily() -> Pipeline:
    """The example of the architecture document."""
    pipeline = Pipeline("daily-sales", params={"year": 2024})
    orders = pipeline.source("orders", read, splits=["mon", "tue"], parallelism=4)
    clean = orders.map("clean", one)
    totals = clean.hash("o_custkey").apply("totals", one, parallelism=4)
    totals.gather().sink("report", one)
    return pipeline


def edges_of(graph: JobGraph) -> list[tuple[str, str, Mode, tuple[str, ...], int]]:
    return [
        (graph.vertex(e.source).name, graph.vertex(e.target).name, e.mode, e.key_columns, e.input_index)
        for e in graph.edges
    ]


def test_the_example_of_the_architecture_builds_three_chains() -> None:
    graph = daily().job_graph()
    assert [(v.name, v.parallelism) for v in graph.vertices] == [("orders -> clean", 4), ("totals", 4), ("report", 1)]
    assert [o.kind for o in graph.vertices[0].operators] == [OperatorKind.SOURCE, OperatorKind.MAP]
    assert edges_of(graph) == [
        ("orders -> clean", "totals", Mode.HASH, ("o_custkey",), 0),
        ("totals", "report", Mode.GATHER, (), 0),
    ]
    assert graph.vertices[0].splits == ("mon", "tue")
    assert graph.params == {"year": 2024}
    assert parse_job_graph(graph.canonical_json()) == graph


def test_references_give_the_same_digest_every_time() -> None:
    def build() -> str:
        pipeline = Pipeline("p")
        pipeline.source("a", "jobs.code:read").hash("k").sink("b", "jobs.code:write", parallelism=2)
        return pipeline.job_graph().digest()

    assert build() == build()


def test_inputs_come_in_the_order_of_the_edges() -> None:
    pipeline = Pipeline("join")
    left = pipeline.source("left", read, parallelism=2)
    right = pipeline.source("right", read, parallelism=3)
    small = pipeline.source("small", read)

    def join(ctx: Any, a: Any, b: Any, c: Any) -> Any: ...

    left.hash("x", "y").apply("join", join, right.hash("u", "v"), small.broadcast(), parallelism=5)
    assert edges_of(pipeline.job_graph()) == [
        ("left", "join", Mode.HASH, ("x", "y"), 0),
        ("right", "join", Mode.HASH, ("u", "v"), 1),
        ("small", "join", Mode.BROADCAST, (), 2),
    ]


def test_a_stream_among_further_inputs_is_a_forward_edge() -> None:
    pipeline = Pipeline("p", parallelism=2)
    left, right = pipeline.source("left", read), pipeline.source("right", read)
    left.apply("both", two, right)
    assert [edge[2] for edge in edges_of(pipeline.job_graph())] == [Mode.FORWARD, Mode.FORWARD]


def test_a_stream_with_two_consumers_is_not_chained() -> None:
    pipeline = Pipeline("fork")
    source = pipeline.source("read", read)
    source.map("left", one)
    source.map("right", one)
    assert [v.name for v in pipeline.job_graph().vertices] == ["read", "left", "right"]


@pytest.mark.parametrize(
    "settings",
    [
        {"chainable": False},
        {"slot_sharing_group": "other"},
        {"resources": ResourceSpec(memory_bytes=1 << 30)},
        {"max_parallelism": 64},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_that_keep_operators_apart(settings: dict[str, Any]) -> None:
    pipeline = Pipeline("p")
    pipeline.source("a", read).map("b", one, **settings)
    assert [v.name for v in pipeline.job_graph().vertices] == ["a", "b"]


def test_a_slot_sharing_group_is_inherited_when_the_inputs_agree() -> None:
    pipeline = Pipeline("p")
    a = pipeline.source("a", read, slot_sharing_group="g")
    b = pipeline.source("b", read, slot_sharing_group="g")
    c = pipeline.source("c", read)
    a.rebalance().apply("ab", two, b.rebalance())
    a.rebalance().apply("ac", two, c.rebalance())
    groups = {v.name: v.slot_sharing_group for v in pipeline.job_graph().vertices}
    assert groups == {"a": "g", "b": "g", "c": "default", "ab": "g", "ac": "default"}


def test_resources_are_inherited_when_the_inputs_agree() -> None:
    big, small = ResourceSpec(memory_bytes=1 << 30), ResourceSpec(memory_bytes=1 << 20)
    pipeline = Pipeline("p")
    a = pipeline.source("a", read, resources=big).map("b", one).map("c", one)
    d = pipeline.source("d", read, resources=small)
    a.hash("k").apply("e", one, parallelism=2)
    a.rebalance().apply("f", two, d.rebalance())
    resources = {v.name: v.resources for v in pipeline.job_graph().vertices}
    assert resources == {"a -> b -> c": big, "d": small, "e": big, "f": ResourceSpec()}


def test_the_maximum_parallelism_is_inherited_over_forward_edges() -> None:
    pipeline = Pipeline("p", parallelism=2)
    a = pipeline.source("a", read, max_parallelism=4).map("b", one)
    a.hash("k").apply("c", one, parallelism=8)
    assert {v.name: v.max_parallelism for v in pipeline.job_graph().vertices} == {"a -> b": 4, "c": 128}


def test_parallelism_comes_from_the_edge_the_user_or_the_pipeline() -> None:
    pipeline = Pipeline("p", parallelism=3)
    source = pipeline.source("default", read)
    source.rebalance().apply("default too", one)
    source.rebalance().apply("chosen", one, parallelism=7)
    source.apply("forward", one)
    source.gather().apply("gathered", one)
    found = {v.name: v.parallelism for v in pipeline.job_graph().vertices}
    assert found == {"default": 3, "default too": 3, "chosen": 7, "forward": 3, "gathered": 1}


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    [(1, 128), (85, 128), (86, 256), (200, 512), (32_768, 32_768)],
)
def test_maximum_parallelism_defaults_as_in_flink(parallelism: int, expected: int) -> None:
    assert default_max_parallelism(parallelism) == expected


@pytest.mark.parametrize(
    ("source", "sink", "expected"),
    [(None, None, None), (True, None, True), (True, False, True), (None, False, False), (False, None, None)],
)
def test_a_chain_is_exclusive_when_one_of_it_is(
    source: bool | None,
    sink: bool | None,
    expected: bool | None,
) -> None:
    pipeline = Pipeline("p")
    pipeline.source("a", read, exclusive=source).sink("b", one, exclusive=sink)
    assert pipeline.job_graph().vertices[0].exclusive is expected


def test_all_job_options_reach_the_graph(tmp_path: Any) -> None:
    (tmp_path / "lib.py").write_text("x = 1")
    (tmp_path / "data.csv").write_text("a,b")
    pipeline = Pipeline(
        "p",
        spark_conf={"spark.sql.shuffle.partitions": 4, "spark.sql.ansi.enabled": True},
        environment={"TZ": "UTC"},
        py_files=[tmp_path / "lib.py"],
        files=str(tmp_path / "data.csv"),
        execution_timeout=timedelta(minutes=2),
    )
    pipeline.source("a", read)
    graph = pipeline.job_graph({"added": 1})
    assert graph.spark_conf == {"spark.sql.shuffle.partitions": "4", "spark.sql.ansi.enabled": "true"}
    assert graph.environment == {"TZ": "UTC"}
    assert [f.name for f in graph.py_files + graph.files] == ["lib.py", "data.csv"]
    assert graph.execution_timeout_seconds == 120
    assert graph.params == {"added": 1}
    assert graph.client_version


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, None),
        ("none", NO_RESTART),
        ("fixed-delay", FixedDelayRestartStrategy()),
        (FixedDelayRestartStrategy(attempts=5), FixedDelayRestartStrategy(attempts=5)),
    ],
)
def test_a_job_may_bring_its_restart_strategy(
    tmp_path: Path, given: RestartStrategy | str | None, expected: RestartStrategy | None
) -> None:
    pipeline = Pipeline("p", restart_strategy=given)
    pipeline.source("a", read)
    (tmp_path / "job.py").write_text("")
    script = script_job(tmp_path / "job.py", restart_strategy=given)
    for program in (pipeline, function_job(len, args=[()], restart_strategy=given), script):
        graph = program.job_graph()
        assert graph.restart_strategy == expected
        assert parse_job_graph(graph.canonical_json()) == graph


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("always", "'always' is not a restart strategy"),
        (5, "restart_strategy: "),
        (FixedDelayRestartStrategy(attempts=-1), "restart strategy fixed-delay: attempts is -1"),
    ],
)
def test_a_wrong_restart_strategy_is_refused(given: Any, words: str) -> None:
    pipeline = Pipeline("p", restart_strategy=given)
    pipeline.source("a", read)
    with pytest.raises(PipelineError, match=words):
        pipeline.job_graph()


def test_code_is_a_reference_a_pickle_or_a_blob() -> None:
    pipeline = Pipeline("p")
    large = b"x" * 100_000
    pipeline.source("reference", "jobs.code:read").map("pickle", one).map("blob", lambda ctx, _frame: large)
    program = pipeline.build()
    codes = [o.code for o in program.graph.vertices[0].operators]
    assert [type(code) for code in codes] == [FunctionReference, PickledCode, BlobCode]
    assert isinstance(codes[2], BlobCode)
    assert codes[2].blob.is_pending
    assert b"".join(program.uploads[codes[2].blob.sha256].chunks()).count(b"x") >= 100_000
    assert codes[2].python == f"{sys.version_info.major}.{sys.version_info.minor}"


def fresh() -> tuple[Pipeline, Stream]:
    pipeline = Pipeline("p", parallelism=2)
    return pipeline, pipeline.source("source", read)


MISTAKES: dict[str, tuple[Callable[[Pipeline, Stream], object], str]] = {
    "same name": (lambda p, _: p.source("source", read), "operator 'source' exists already"),
    "no name": (lambda p, _: p.source("", read), "an operator needs a name"),
    "too few inputs": (lambda _, s: s.map("m", two), "two(ctx: Any, left: Any, right: Any)"),
    "too many inputs": (lambda _, s: s.apply("m", one, s), "is called with ctx and 2 DataFrames"),
    "no ctx": (lambda p, _: p.source("m", lambda: None), "is called with ctx"),
    "no function": (lambda p, _: p.source("m", 5), "not a int"),  # type: ignore[arg-type]  # the mistake
    "bad reference": (lambda p, _: p.source("m", "jobs.code.read"), "is not a reference"),
    "coroutine": (lambda p, _: p.source("m", later), "later is asynchronous"),
    "other pipeline": (
        lambda _, s: s.apply("m", two, Pipeline("q").source("a", read)),
        "its input 'a' belongs to another pipeline",
    ),
    "behind a sink": (lambda _, s: s.sink("k", one).map("m", one), "'k' is a sink and has no consumers"),
    "not a stream": (lambda _, s: s.apply("m", two, "orders"), "not a str"),  # type: ignore[arg-type]  # the mistake
    "forward parallelism": (lambda _, s: s.apply("m", one, parallelism=3), "dictate parallelism 2, not 3"),
    "gather parallelism": (lambda _, s: s.gather().apply("m", one, parallelism=3), "dictate parallelism 1, not 3"),
    "forward and gather": (lambda _, s: s.apply("m", two, s.gather()), "parallelism [1, 2] at once"),
    "hash without columns": (lambda _, s: s.hash(), "names of one or more columns"),
    "splits": (lambda p, _: p.source("m", read, splits=[{1, 2}]), "a value of type set is not JSON"),
    "parallelism text": (
        lambda p, _: p.source("m", read, parallelism="4"),  # type: ignore[arg-type]  # the mistake
        "parallelism is a whole number, or 'auto', not '4'",
    ),
    "parallelism real": (
        lambda p, _: p.source("m", read, parallelism=2.0),  # type: ignore[arg-type]  # the mistake
        "parallelism is a whole number, or 'auto', not 2.0",
    ),
    "parallelism bool": (
        lambda p, _: p.source("m", read, parallelism=True),
        "parallelism is a whole number, or 'auto', not True",
    ),
    "default parallelism": (
        lambda _, __: Pipeline("q", parallelism="4").source("m", read),  # type: ignore[arg-type]  # the mistake
        "parallelism is a whole number, or 'auto', not '4'",
    ),
    "resources": (
        lambda p, _: p.source("m", read, resources={"memory_bytes": 1}),  # type: ignore[arg-type]  # the mistake
        "resources is a ResourceSpec, not {'memory_bytes': 1}",
    ),
    "exclusive": (lambda p, _: p.source("m", read, exclusive="no"), "exclusive is True or False, not 'no'"),  # type: ignore[arg-type]  # the mistake
    "name": (lambda p, _: p.source(5, read), "an operator needs a name"),  # type: ignore[arg-type]  # the mistake
    "hash by number": (lambda _, s: s.hash(1), "names of one or more columns"),  # type: ignore[arg-type]  # the mistake
    "asynchronous object": (lambda p, _: p.source("m", Later()), "Later is asynchronous"),
}


@pytest.mark.parametrize(("mistake", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_refused_where_it_is_made(mistake: Callable[[Pipeline, Stream], object], expected: str) -> None:
    with pytest.raises(PipelineError) as caught:
        mistake(*fresh())
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda p, _: p.source("m", read, paralelism=2),
        lambda _, s: s.map("m", one, parallelism=2),
        lambda _, s: s.hash("k").apply("m", one, splits=[]),
        lambda _, __: Pipeline("q", conf={}),  # type: ignore[call-arg]  # the mistake
        lambda _, __: function_job(read, secret=["db"]),  # type: ignore[call-arg]  # the mistake
        lambda _, __: script_job("etl.py", spark_conf={}),  # type: ignore[call-arg]  # the mistake
    ],
)
def test_an_unknown_option_is_refused_as_an_unknown_keyword_is(mistake: Callable[[Any, Any], object]) -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument '"):
        mistake(*fresh())


def test_all_problems_of_a_job_are_listed_when_it_is_built() -> None:
    pipeline = Pipeline("", environment={"A=B": "x"}, execution_timeout=-1)
    pipeline.source("a", read, parallelism=0)
    with pytest.raises(PipelineError) as caught:
        pipeline.job_graph()
    assert len(caught.value.problems) == 4


def test_whatever_is_wrong_with_a_job_is_a_pipeline_error() -> None:
    for name, options in ((5, {}), ("p", {"environment": {"A": 1}}), ("p", {"params": {"a": {1}}})):
        pipeline = Pipeline(name, **options)  # type: ignore[arg-type]  # the mistake
        pipeline.source("a", read)
        with pytest.raises(PipelineError):
            pipeline.job_graph()


def test_tuples_and_subclasses_become_what_json_has() -> None:
    class Day(IntEnum):
        MONDAY = 1

    pipeline = Pipeline("p", params={"days": (1, (2,)), "day": Day.MONDAY, "more": MappingProxyType({"a": (1,)})})
    pipeline.source("a", read, splits=[("mon", 1), {"range": (1, 2)}])
    graph = pipeline.job_graph()
    assert graph.vertices[0].splits == (["mon", 1], {"range": [1, 2]})
    assert graph.params == {"days": [1, [2]], "day": 1, "more": {"a": [1]}}
    assert type(graph.params["day"]) is int
    assert parse_job_graph(graph.canonical_json()) == graph


def test_params_must_be_json() -> None:
    pipeline, _ = fresh()
    with pytest.raises(PipelineError, match="params: a value of type object is not JSON"):
        pipeline.job_graph({"x": object()})


def test_edges_are_values_until_something_is_attached() -> None:
    pipeline, stream = fresh()
    edge = stream.hash("k")
    assert isinstance(edge, Edge)
    edge.apply("first", one)
    edge.apply("second", one)
    assert len(pipeline.job_graph().edges) == 2


def test_the_plan_can_be_shown() -> None:
    explanation = daily().explain()
    text = explanation.to_text()
    assert "orders -> clean  (parallelism 4, 2 splits)" in text
    assert "orders -> clean  ==HASH on o_custkey==>  totals" in text
    assert "report  (parallelism 1, exclusive)" in text
    assert "group default: runs with 1, uses up to 4" in text
    assert explanation.regions == (("orders -> clean",), ("totals",), ("report",))
    assert explanation.to_dict()["exchanges"][0]["mode"] == "HASH"


def test_the_plan_tells_slots_of_several_sizes_apart() -> None:
    pipeline = Pipeline("sizes")
    rows = pipeline.source("rows", lambda ctx: ctx.spark.range(10))
    spec = ResourceSpec(cpu_cores=1.5, memory_bytes=3 << 30, labels=("gpu=a100", "zone=b"))
    rows.gather().sink("count", lambda ctx, df: df.count(), resources=spec)
    text = pipeline.explain().to_text()
    assert "group default: runs with 1, uses up to 1" in text
    assert "group default (cpu_cores 1.5, memory 3072 MiB, labels gpu=a100,zone=b): runs with 1, uses up to 1" in text


HERE = "pipeline_fixture_jobs"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.syspath_prepend(str(request.path.parent))


def test_jobs_are_found_by_reference() -> None:
    assert build_job(f"{HERE}:simple", {"days": 4, "x": 1}).graph.vertices[0].splits == (0, 1, 2, 3)
    assert build_job(f"{HERE}:simple", {"days": 4, "x": 1}).graph.params == {"days": 4, "x": 1}
    assert build_job(f"{HERE}:built").graph.vertices[0].splits == (0, 1, 2)
    assert build_job(f"{HERE}:script", {"a": 1}).graph.params == {"a": 1}
    assert build_job(f"{HERE}:needs_table", {"table": "t", "mode": "full"}).graph.name == "load-t-full"


def test_a_param_that_the_function_has_no_parameter_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert build_job(f"{HERE}:simple", {"dais": 4}).graph.params == {"dais": 4}
    (record,) = caplog.records
    assert "has no parameter dais: only ctx.params shows it" in record.getMessage()
    caplog.clear()
    build_job(f"{HERE}:script", {"a": 1})
    assert not caplog.records, "a function without parameters reads them as ctx.params"


def test_jobs_may_be_given_as_functions_programs_and_graphs() -> None:
    assert build_job(daily).graph.name == "daily-sales"
    assert build_job(daily(), {"year": 2025}).graph.params == {"year": 2025}
    assert build_job(lone(params={"a": 1}), {"b": 2}).graph.params == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (f"{HERE}.simple", "is not a reference"),
        ("no_such_module_x:job", "no module named 'no_such_module_x'"),
        (f"{HERE}:nothing", "has no 'nothing'"),
        (f"{HERE}:number", "gave a value of type int"),
        (f"{HERE}:needs_table", "missing a required argument: 'table'; give it in params"),
    ],
)
def test_a_wrong_reference_says_which_part_is_wrong(reference: str, expected: str) -> None:
    with pytest.raises(PipelineError, match=expected):
        build_job(reference)
