"""The smallest Spark job that people recognise, in the ways that this provider has."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator


def count() -> Pipeline:
    """One Spark task."""
    return Pipeline("count").source("count", lambda ctx: ctx.spark.range(1000).count()).pipeline


with DAG(dag_id="inline", schedule=None):
    FlinklikeSubmitOperator(task_id="job", pipeline=count, deferrable=False)

with DAG(dag_id="hybrid", schedule=None):
    FlinklikeSubmitOperator(task_id="job", pipeline=count, deferrable=True)

with DAG(dag_id="decorated", schedule=None):

    @task.flinklike(task_id="job")
    def counted(spark: Any) -> int:
        """The same."""
        return int(spark.range(1000).count())

    counted()  # type: ignore[call-arg]  # `spark` is filled in

for dag_id, deferrable in (("inline_20", False), ("hybrid_20", True)):
    with DAG(dag_id=dag_id, schedule=None, max_active_tasks=64):
        for number in range(20):
            FlinklikeSubmitOperator(task_id=f"job_{number}", pipeline=count, deferrable=deferrable)
