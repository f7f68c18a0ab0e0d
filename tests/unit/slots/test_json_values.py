"""Return values: what JSON can hold, and who is to blame for what it cannot."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import pytest

from runtime.taskexecutor.slot_process.causes import TaskError
from runtime.taskexecutor.slot_process.json_values import encode_value, json_problem


@pytest.mark.parametrize("value", [None, True, 0, -1.5, "ü\ud800", [], {}, {"a": (1, [2])}, [[[]]]])
def test_values_that_pass(value: Any) -> None:
    encoded = encode_value(value, bytes_max=1000, what="it")
    assert json.loads(encoded) == json.loads(json.dumps(value))


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        pytest.param(float("nan"), "$ is nan, and JSON has no such number", id="nan"),
        pytest.param([1, float("-inf")], "$[1] is -inf, and JSON has no such number", id="inf"),
        pytest.param({1: "a"}, "$ has the key 1, a int; JSON keys are strings", id="key"),
        pytest.param({"a": [b"x"]}, "$['a'][0] is a bytes", id="bytes"),
        pytest.param([{1, 2}], "$[0] is a set (use sorted(...))", id="set"),
        pytest.param(
            (one for one in "ab"),
            "$ is a generator (only a source with splits_on_demand=True may yield: return a DataFrame or a JSON value)",
            id="generator",
        ),
        pytest.param(dt.date(2026, 1, 1), "$ is a datetime.date (use .isoformat())", id="date"),
        pytest.param(
            {"n": np.int64(1)}, "$['n'] is a numpy.int64 (use .item() for a number, .tolist() for an array)", id="np"
        ),
        pytest.param(nested(65), f"${'[0]' * 64} is nested deeper than 64 levels", id="deep"),
    ],
)
def test_the_element_is_named(value: Any, problem: str) -> None:
    assert json_problem(value) == problem
    with pytest.raises(TaskError, match="the value of x is not a JSON value"):
        encode_value(value, bytes_max=1000, what="the value of x")


def test_the_limit_is_named() -> None:
    with pytest.raises(TaskError, match=r"exchange\.inline\.max-size"):
        encode_value("x" * 100, bytes_max=100, what="it")
