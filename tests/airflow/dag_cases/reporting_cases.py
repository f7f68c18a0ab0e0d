"""DAGs about what tasks tell Airflow of their jobs."""

from __future__ import annotations

from airflow.sdk import DAG, Asset

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator


def finish(day: str) -> Pipeline:
    """A fake cluster ends it at once."""
    return Pipeline("finish").source("read", "jobs.code:read", splits=[day]).pipeline


with DAG(dag_id="reporting", schedule=None):
    days = FlinklikeSubmitOperator.partial(task_id="days", pipeline=finish).expand(
        pipeline_params=[{"day": "a"}, {"day": "b"}]
    )
    table = FlinklikeSubmitOperator(
        task_id="table", pipeline=finish, pipeline_params={"day": "c"}, outlets=[Asset("file:///lake/table")]
    )
    days >> table

with DAG(dag_id="too_large", schedule=None):
    FlinklikeSubmitOperator(task_id="large", pipeline=finish, pipeline_params={"day": "a"}, xcom_limit=10, retries=3)
