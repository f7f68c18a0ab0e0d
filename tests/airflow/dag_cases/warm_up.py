"""A task that does nothing, for an Airflow that has just started."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, task

with DAG(dag_id="warm_up", schedule=None):

    @task(retries=5, retry_delay=timedelta(0))
    def nothing() -> None:
        """Nothing."""

    nothing()
