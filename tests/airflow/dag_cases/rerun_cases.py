"""Tasks that take effect and then fail: how often they run, by Airflow's `retries`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

from airflow_flinklike.operators.submit import FlinklikeSubmitOperator

AT_ONCE: dict[str, Any] = {"retry_delay": timedelta(seconds=0)}
SCRIPT = "{{ dag_run.conf['script'] }}"
RUNS = "{{ dag_run.conf['runs'] }}"

for retries in (0, 2):
    with DAG(dag_id=f"appending_{retries}", schedule=None):
        FlinklikeSubmitOperator(
            task_id="script", application=SCRIPT, application_args=[f"{RUNS}/script"], retries=retries, **AT_ONCE
        )

        @task.flinklike(retries=retries, **AT_ONCE)
        def function(runs: str) -> None:
            """Appends, then fails."""
            with Path(runs, "function").open("a") as file:
                file.write("x")
            message = "no such day"
            raise LookupError(message)

        function(RUNS)
