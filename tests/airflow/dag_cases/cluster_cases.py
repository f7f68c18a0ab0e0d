"""DAGs that the examples do not show: deferral, a retry after a failure, a clear, mapping, helper modules."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import cluster_cases_helper  # type: ignore[import-not-found]  # beside this file in the DAG folder
from airflow.sdk import DAG, task

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.sensors.job import FlinklikeJobSensor

QUICK_RETRY = {"retries": 1, "retry_delay": timedelta(seconds=0)}


def numbers(count: int) -> Pipeline:
    """1..count in two subtasks, squared with a helper of this folder, added up."""
    pipeline = Pipeline("numbers", parallelism=2)
    source = pipeline.source(
        "read", lambda ctx: ctx.spark.createDataFrame([(n,) for n in ctx.splits], "n long"), splits=range(1, count + 1)
    )
    squares = source.map("square", cluster_cases_helper.squared)
    squares.gather().sink(
        "sum", lambda ctx, frame: {"sum": frame.groupBy().sum("n").first()[0], "params": dict(ctx.params)}
    )
    return pipeline


with DAG(dag_id="deferring", schedule=None, params={"count": 4}):
    submit = FlinklikeSubmitOperator(
        task_id="submit", pipeline=numbers, params={"count": 4}, deferrable=True, inline_timeout=0
    )
    sensor = FlinklikeJobSensor(
        task_id="sensor",
        job_id="{{ ti.xcom_pull(task_ids='submit', key='job_id') }}",
        deferrable=True,
    )
    submit >> sensor

with DAG(dag_id="not_waiting", schedule=None):

    def held(gate: str) -> Pipeline:
        """Runs until the gate opens. An operator that waits for the job in its worker would never return."""

        def hold(ctx: Any) -> str:
            while not Path(ctx.params["gate"]).exists() and not ctx.cancelled:
                time.sleep(0.02)
            return "released"

        return Pipeline("held").source("hold", hold).pipeline

    @task
    def release(gate: str) -> None:
        """Ends the job."""
        Path(gate).touch()

    GATE = "{{ dag_run.conf['gate'] }}"
    starts = FlinklikeSubmitOperator(
        task_id="starts", pipeline=held, pipeline_params={"gate": GATE}, wait_for_completion=False
    )
    ends = FlinklikeJobSensor(task_id="ends", job_id="{{ ti.xcom_pull(task_ids='starts') }}", poke_interval=0.1)
    starts >> release(GATE) >> ends

with DAG(dag_id="retrying", schedule=None):

    @task.flinklike(**QUICK_RETRY, multiple_outputs=False)
    def fails_once(marker: str, run_id: Any = None) -> dict[str, Any]:
        """Fails the first time that it runs."""
        path = Path(marker)
        if not path.exists():
            path.touch()
            message = f"first time in {run_id}"
            raise LookupError(message)
        return {"run_id": run_id}

    fails_once("{{ dag_run.conf['marker'] }}")

with DAG(dag_id="failing", schedule=None):
    FlinklikeSubmitOperator(
        task_id="fails", pipeline=lambda: Pipeline("bad").source("read", lambda ctx: 1 / 0).pipeline
    )

with DAG(dag_id="mapping", schedule=None):

    @task.flinklike
    def doubled(ctx: Any, number: int) -> int:
        """A pure Python task: no Spark at all."""
        return int(ctx.parallelism) * number * 2

    @task
    def total(values: Any) -> int:
        """Adds up in the worker."""
        return sum(values)

    total(doubled.expand(number=[1, 2, 3]))
