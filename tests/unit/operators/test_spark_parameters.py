"""Parameters of SparkSubmitOperator that have no effect: each is told, and those that change the job may be refused."""

from typing import Any

import pytest

from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.spark_parameters import UNSUPPORTED, explanations

CHANGING = sorted(name for name, one in UNSUPPORTED.items() if one.changes_job)
SWITCHES = sorted(UNSUPPORTED.keys() - set(CHANGING))


@pytest.mark.parametrize("name", sorted(UNSUPPORTED))
def test_what_has_no_effect_is_told_with_what_happens_instead(name: str) -> None:
    for value in ("x", 1, True, ["x"]):
        (line,) = explanations({name: value, "retries": 2}, task_id="t", on_unsupported="warn")
        assert line.text == f"{name} has no effect: {UNSUPPORTED[name].instead}"


@pytest.mark.parametrize("name", CHANGING)
def test_what_would_change_the_job_can_be_refused(name: str) -> None:
    with pytest.raises(PipelineError, match=f"task 't': {name} has no effect: ") as caught:
        explanations({name: "x"}, task_id="t", on_unsupported="fail")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize("name", SWITCHES)
def test_switches_of_what_is_not_there_are_accepted(name: str) -> None:
    (line,) = explanations({name: "x"}, task_id="t", on_unsupported="fail")
    assert not line.changes_job


@pytest.mark.parametrize("value", [None, False, ""])
def test_what_says_nothing_is_not_told(value: Any) -> None:
    assert explanations(dict.fromkeys(UNSUPPORTED, value), task_id="t", on_unsupported="fail") == ()


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(PipelineError) as caught:
        explanations({"proxy_user": "a", "keytab": "b", "verbose": True}, task_id="t", on_unsupported="fail")
    assert len(caught.value.problems) == 2


def test_who_may_access_what_is_never_a_mere_switch() -> None:
    assert {"proxy_user", "keytab", "principal", "use_krb5ccache", "post_submit_commands"} <= set(CHANGING)


def test_another_word_is_refused() -> None:
    with pytest.raises(PipelineError, match="on_unsupported is 'ignore', expected 'warn' or 'fail'"):
        explanations({}, task_id="t", on_unsupported="ignore")
