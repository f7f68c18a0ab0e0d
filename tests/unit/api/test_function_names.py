"""The default name of a function job, by which its author recognizes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike import function_job
from airflow_flinklike.exceptions import PipelineError
from runtime.jobgraph.limits import NAME_LENGTH_MAX

daily_count = lambda ctx: 1  # noqa: E731 - the variable is its name
HERE = Path(__file__).name


def total(values: list[int], ctx: Any = None) -> int:
    return sum(values)


class Report:
    def write(self, ctx: Any) -> int:
        return 1

    def __call__(self, ctx: Any) -> int:
        return 2


def local() -> Callable[[Any], int]:
    def one(ctx: Any) -> int:
        return 1

    return one


HELD = [lambda ctx: 2]


@pytest.mark.parametrize(
    ("function", "name"),
    [
        pytest.param(total, "total", id="function"),
        pytest.param(local(), "one", id="function in a function"),
        pytest.param(daily_count, "daily_count", id="lambda of a variable"),
        pytest.param(HELD[0], f"lambda at {HERE}:{HELD[0].__code__.co_firstlineno}", id="lambda"),
        pytest.param(partial(total, [1]), "total", id="partial"),
        pytest.param(partial(partial(daily_count), 1), "daily_count", id="partial of a partial of a lambda"),
        pytest.param(Report().write, "Report.write", id="method"),
        pytest.param(Report(), "Report", id="callable object"),
    ],
)
def test_a_job_is_called_as_its_function(function: Callable[..., Any], name: str) -> None:
    args = ([1],) if function is total else ()
    graph = function_job(function, args=args).job_graph()
    assert (graph.name, graph.vertices[0].name, graph.vertices[0].operators[0].name) == (name, name, name)


def test_a_name_that_is_given_counts() -> None:
    assert function_job(daily_count, name="sales").job_graph().name == "sales"


def test_a_lambda_of_a_file_with_a_long_name() -> None:
    code = compile("made = [lambda: 1]", f"/x/{'y' * 300}.py", "exec")
    space: dict[str, Any] = {}
    exec(code, space)
    assert len(function_job(space["made"][0]).job_graph().name) <= NAME_LENGTH_MAX


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(PipelineError, match="expected a function"):
        function_job(7)  # type: ignore[arg-type]  # on purpose
