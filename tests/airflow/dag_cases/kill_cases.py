"""A task that waits for its job until one of both is ended."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator


def hang() -> Pipeline:
    """A job that never ends by itself."""
    return Pipeline("hang").source("read", lambda ctx: None).pipeline


with DAG(dag_id="marked_while_running", schedule=None):
    FlinklikeSubmitOperator(task_id="hangs", pipeline=hang, poll_interval=60)

with DAG(dag_id="worker_ends", schedule=None):
    FlinklikeSubmitOperator(
        task_id="hangs", pipeline=hang, poll_interval=60, retries=1, retry_delay=timedelta(seconds=0)
    )
