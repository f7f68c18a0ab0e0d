"""Fields of operators: texts that templates have made, and what is refused."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.fields import arguments_of, environment_of, mapping_of, one_of, timeout_of


def test_two_names_for_the_same() -> None:
    assert one_of("t", {}, conn_id=None, flinklike_conn_id="c") == "c"
    assert one_of("t", {}, conn_id=None, flinklike_conn_id=None) is None
    with pytest.raises(PipelineError, match="task 't': conn_id and flinklike_conn_id are two names"):
        one_of("t", {}, conn_id="a", flinklike_conn_id="b")


def test_what_the_task_has_wins_over_default_args_and_there_the_first_name() -> None:
    both = {"flinklike_conn_id": "fl", "conn_id": "spark"}
    assert one_of("t", both, **both) == "fl"
    assert one_of("t", {"flinklike_conn_id": "fl"}, flinklike_conn_id="fl", conn_id="own") == "own"
    assert one_of("t", {"conn_id": "spark"}, flinklike_conn_id="own", conn_id="spark") == "own"


def test_environment_variables_of_any_scalars() -> None:
    given_ = {"N": 1, "SHARE": 0.5, "IS": True, "TEXT": "x", "NONE": None}
    assert environment_of(given_) == {"N": "1", "SHARE": "0.5", "IS": "True", "TEXT": "x"}
    assert environment_of('{"N": 1}') == {"N": "1"}
    with pytest.raises(PipelineError, match="environment variable L is a list: expected a text, a number or"):
        environment_of({"L": ["a"]})


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_mappings_and_their_texts(value: dict[str, Any]) -> None:
    assert mapping_of("conf", value) == mapping_of("conf", json.dumps(value)) == value


@given(st.lists(st.integers() | st.text()))
def test_arguments_and_their_texts(value: list[Any]) -> None:
    assert arguments_of(value) == arguments_of(tuple(value)) == arguments_of(json.dumps(value)) == value


@pytest.mark.parametrize("value", [None, "", " "])
def test_nothing_given(value: Any) -> None:
    assert (mapping_of("conf", value), arguments_of(value)) == ({}, [])


@pytest.mark.parametrize("value", ["a b", "{'a': 1}", "[1", '"a"', "7", ["a"], 7])
def test_what_is_no_mapping(value: Any) -> None:
    with pytest.raises(PipelineError, match=r"conf is .*expected a mapping or the text of a JSON object"):
        mapping_of("conf", value)


@pytest.mark.parametrize("value", ["--day 1", '{"a": 1}', '"a"', {"a": 1}, 7])
def test_what_are_no_arguments(value: Any) -> None:
    with pytest.raises(PipelineError, match=r"application_args is .*expected a list"):
        arguments_of(value)


def test_timeouts_and_their_texts() -> None:
    assert (timeout_of("60"), timeout_of(" "), timeout_of(1.5), timeout_of(None)) == (60, None, 1.5, None)
    assert timeout_of(timedelta(minutes=1)) == timedelta(minutes=1)
    with pytest.raises(PipelineError, match="job_timeout is 'soon': expected seconds"):
        timeout_of("soon")
