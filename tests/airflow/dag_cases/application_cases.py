"""Jobs as clusters of their own, on the worker's host."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_flinklike.operators.application import FlinklikeApplicationOperator

CLUSTER = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "1"}

with DAG(dag_id="application_value", schedule=None, params={"count": 3}):
    FlinklikeApplicationOperator(
        task_id="total",
        job="application_jobs.py:total",
        pipeline_params={"count": "{{ params.count }}"},
        configuration=CLUSTER,
        log_limit=10_000,
    )

with DAG(dag_id="application_script", schedule=None, params={"begun": "", "gate": "", "failure": "no orders"}):
    FlinklikeApplicationOperator(
        task_id="script",
        job="application_waits.py",
        application_args=["{{ params.begun }}", "{{ params.gate }}", "{{ params.failure }}"],
        configuration=CLUSTER,
    )

with DAG(dag_id="application_mistake", schedule=None):
    FlinklikeApplicationOperator(task_id="mistake", job="application_jobs.py:totl", configuration=CLUSTER)
