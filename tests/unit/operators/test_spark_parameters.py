"""What users of SparkSubmitOperator bring: parameters that cannot apply, texts of templates, properties files."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.spark_parameters import (
    INSTEAD,
    arguments_of,
    mapping_of,
    one_of,
    parse_properties,
    refuse_spark_parameters,
    timeout_of,
)


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_what_cannot_apply_is_refused_with_what_to_use_instead(name: str) -> None:
    for value in ("x", 1, True, ["x"]):
        with pytest.raises(PipelineError, match=f"task 't': {name} does not apply to a warm session: ") as caught:
            refuse_spark_parameters({name: value}, task_id="t")
        (problem,) = caught.value.problems
        assert problem.endswith(INSTEAD[name])


@pytest.mark.parametrize("value", [None, False, ""])
def test_what_says_nothing_is_left_out(value: Any) -> None:
    given_ = {"driver_memory": value, "verbose": value, "retries": 2}
    refuse_spark_parameters(given_, task_id="t")
    assert given_ == {"retries": 2}


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(PipelineError) as caught:
        refuse_spark_parameters({"java_class": "a.B", "deploy_mode": "cluster", "retries": 2}, task_id="t")
    assert len(caught.value.problems) == 2


def test_two_names_for_the_same() -> None:
    assert one_of("t", conn_id=None, flinklike_conn_id="c") == "c"
    assert one_of("t", conn_id=None, flinklike_conn_id=None) is None
    with pytest.raises(PipelineError, match="task 't': conn_id and flinklike_conn_id are two names"):
        one_of("t", conn_id="a", flinklike_conn_id="b")


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


PROPERTIES = r"""
# a comment
! another one
spark.sql.shuffle.partitions   8
spark.a=1
spark.b = two words
spark.c:3
   spark.d \
      continued
spark.e	tab
spark.empty
spark.eq a=b
spark.path C:\\dir
spark.unicode caf\u00e9
log4j.rootLogger INFO
spark.a=last wins
"""


def test_a_properties_file_as_spark_reads_it() -> None:
    found, others = parse_properties(PROPERTIES)
    assert found == {
        "spark.sql.shuffle.partitions": "8",
        "spark.a": "last wins",
        "spark.b": "two words",
        "spark.c": "3",
        "spark.d": "continued",
        "spark.e": "tab",
        "spark.empty": "",
        "spark.eq": "a=b",
        "spark.path": "C:\\dir",
        "spark.unicode": "café",
    }
    assert others == ["log4j.rootLogger"]


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    found, others = parse_properties(text)
    assert all(key.startswith("spark.") for key in found)
    assert not any(key.startswith("spark.") for key in others)
