"""Parameters of SparkSubmitOperator that cannot apply to a warm session."""

from typing import Any

import pytest

from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.spark_parameters import INSTEAD, refuse_spark_parameters


@pytest.mark.parametrize("name", sorted(INSTEAD))
def test_what_cannot_apply_is_refused_with_what_to_use_instead(name: str) -> None:
    for value in ("x", 1, True, ["x"]):
        with pytest.raises(PipelineError, match=f"task 't': {name} does not apply to a warm session: ") as caught:
            refuse_spark_parameters({name: value}, task_id="t")
        (problem,) = caught.value.problems
        assert problem.endswith(INSTEAD[name])


@pytest.mark.parametrize("value", [None, False, ""])
def test_what_says_nothing_is_left_out(value: Any) -> None:
    given_ = {"driver_cores": value, "verbose": value, "retries": 2}
    refuse_spark_parameters(given_, task_id="t")
    assert given_ == {"retries": 2}


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(PipelineError) as caught:
        refuse_spark_parameters({"java_class": "a.B", "deploy_mode": "cluster", "retries": 2}, task_id="t")
    assert len(caught.value.problems) == 2
