"""A DAG whose one task has a job that waits for a file, for tests of the pages within Airflow."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

with DAG(dag_id="held_job", schedule=None):

    @task.flinklike(task_id="job", retries=0)
    def hold(gate: str) -> int:
        """Print, and end when the gate is there."""
        import time
        from pathlib import Path

        print("held by the gate", flush=True)
        until = time.monotonic() + 600
        while not Path(gate).exists() and time.monotonic() < until:
            time.sleep(0.1)
        return 7

    held: Any = hold("{{ dag_run.conf['gate'] }}")
