"""Tasks whose events OpenLineage's provider sends."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator


def job(name: str) -> Pipeline:
    """A fake cluster ends it as its name says."""
    return Pipeline(name).source("read", "jobs.code:read").pipeline


with DAG(dag_id="lineage", schedule=None):
    for name in ("finish", "fail"):
        FlinklikeSubmitOperator(
            task_id=name, pipeline=job, pipeline_params={"name": name}, openlineage_inject_parent_job_info=True
        )
