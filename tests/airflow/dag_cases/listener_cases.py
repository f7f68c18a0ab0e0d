"""Jobs that run on without their tasks, for the listener."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator


def hang() -> Pipeline:
    """The fake cluster runs it until it is cancelled."""
    return Pipeline("hang").source("read", "jobs.code:read").pipeline


with DAG(dag_id="left_alone", schedule=None):
    FlinklikeSubmitOperator(task_id="one", pipeline=hang, wait_for_completion=False)
    FlinklikeSubmitOperator(task_id="kept", pipeline=hang, wait_for_completion=False, cancel_on_kill=False)

with DAG(dag_id="left_to_itself", schedule=None):
    FlinklikeSubmitOperator(task_id="one", pipeline=hang, wait_for_completion=False)
    FlinklikeSubmitOperator(task_id="kept", pipeline=hang, wait_for_completion=False, orphan_timeout=None)
