"""Tasks that do nothing, in a file that imports nothing else: what Airflow itself takes."""

from __future__ import annotations

from airflow.sdk import DAG, task


@task(task_id="job")
def nothing() -> None:
    """Nothing."""


with DAG(dag_id="empty", schedule=None):
    nothing()

with DAG(dag_id="empty_20", schedule=None, max_active_tasks=64):
    for number in range(20):
        nothing.override(task_id=f"job_{number}")()
