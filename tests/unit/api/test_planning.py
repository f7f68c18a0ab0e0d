"""The planner of uploaded programs: what a task returns for a reference (D-113)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_flinklike.api.planning import plan
from airflow_flinklike.exceptions import PipelineError
from runtime.jobgraph.parsing import parse_job_graph

MODULE = """
from airflow_flinklike import Pipeline

def make(day, parallelism=1):
    made = Pipeline(f"flow {day}")
    made.source("numbers", "uploaded_flows:numbers", parallelism=parallelism)
    return made

def large():
    text = "x" * 100_000
    made = Pipeline("large")
    made.source("numbers", lambda ctx: text)
    return made

built = make(1)
other = 5
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "uploaded_flows.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("uploaded_flows", None)


def planned(entry: str, *args: str, parallelism: int | None = None) -> dict[str, Any]:
    context: Any = SimpleNamespace(params={"entry": entry, "args": list(args), "parallelism": parallelism})
    made = plan(context)
    assert made["warnings"] == []
    graph: dict[str, Any] = made["graph"]
    return graph


def test_an_argument_that_the_function_does_not_take_is_told(caplog: pytest.LogCaptureFixture) -> None:
    context: Any = SimpleNamespace(
        params={"entry": "uploaded_flows:make", "args": ["day=1", "dya=2"], "parallelism": None}
    )
    made = plan(context)
    sentence = "uploaded_flows:make(day, parallelism=1) has no parameter dya: only ctx.params shows it"
    assert made["warnings"] == [sentence]
    assert caplog.messages == [sentence]
    assert made["graph"]["params"] == {"day": 1, "dya": 2}


def test_the_graph_is_one_that_the_cluster_reads() -> None:
    graph = parse_job_graph(json.dumps(planned("uploaded_flows:make", "--day=[3]", parallelism=2)).encode())
    assert (graph.name, graph.vertices[0].parallelism, graph.params) == ("flow [3]", 2, {"day": [3], "parallelism": 2})
    assert planned("uploaded_flows:make", "day=two words")["name"] == "flow two words"
    assert planned("uploaded_flows:built", "more=1")["params"] == {"more": 1}


@pytest.mark.parametrize(
    ("entry", "args", "parallelism", "says"),
    [
        ("uploaded_flows:none", [], None, "has no 'none'"),
        ("no_module_of_this_name:x", [], None, "no module named"),
        ("uploaded_flows:other", [], None, "of type int"),
        ("uploaded_flows:make", [], None, "day"),
        ("uploaded_flows:make", ["day"], None, "expected name=value"),
        ("uploaded_flows:built", [], 2, "is built already"),
        ("uploaded_flows:large", [], None, "above 64 KiB"),
    ],
)
def test_what_cannot_be_built_says_why(entry: str, args: list[str], parallelism: int | None, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        planned(entry, *args, parallelism=parallelism)
