"""The queue, the team and the priority that the job of a task is submitted with (D-128)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_flinklike.client import QueuePlace
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.task_instance.queue_place import place_of, weight_of

pytestmark = pytest.mark.airflow


def operator(task_id: str, **more: Any) -> FlinklikeSubmitOperator:
    return FlinklikeSubmitOperator(task_id=task_id, application="job.py", **more)


def test_the_weight_is_the_one_by_which_airflow_orders_the_tasks() -> None:
    with DAG("d", schedule=None):
        first, second = operator("first", priority_weight=2), operator("second", priority_weight=5)
        third = operator("third", priority_weight=10, weight_rule="upstream")
        fourth = operator("fourth", priority_weight=7, weight_rule="absolute")
        first >> second >> [third, fourth]
    assert [weight_of(one) for one in (first, second, third, fourth)] == [2 + 5 + 10 + 7, 5 + 10 + 7, 10 + 5 + 2, 7]


def test_a_task_without_a_dag_has_its_own_weight() -> None:
    assert weight_of(operator("alone", priority_weight=-3)) == -3


@pytest.mark.parametrize(("run", "team"), [({"team_name": "etl"}, "etl"), ({"team_name": None}, ""), ({}, "")])
def test_the_team_is_that_of_the_run_where_airflow_has_one(run: dict[str, Any], team: str) -> None:
    context: Any = {"dag_run": SimpleNamespace(**run)}
    assert place_of(operator("alone"), context, "reports") == QueuePlace("reports", 1, team)
