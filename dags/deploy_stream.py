"""A stream that is kept deployed: each run looks whether its job runs, and leaves it as it is when it does.

Where there is none, the run submits it. Where its code has changed since, the run stops it with a savepoint and submits
the new code, which goes on from there: no order is lost, and none is in the table twice. Pausing the DAG ends nothing:
end the stream with `flinklike stop`.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, dag, task

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.sensors.stream import FlinklikeStreamSensor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from airflow_flinklike import TaskContext

ORDERS = 10
SETTINGS = "{{ ti.xcom_pull(task_ids='prepare') | tojson }}"
SAVEPOINTS = "{{ ti.xcom_pull(task_ids='prepare')['savepoints'] }}"
LANDING = "{{ ti.xcom_pull(task_ids='prepare')['landing'] }}"
DEPLOYED = "{{ ti.xcom_pull(task_ids='deploy') }}"


def read_orders(ctx: TaskContext) -> DataFrame:
    """The files that come into a folder."""
    return ctx.spark.readStream.schema("id long, shop string, cents long").json(ctx.params["landing"])


def paid(ctx: TaskContext, orders: DataFrame) -> DataFrame:
    """What goes into the table. With another condition here, the next run upgrades the stream."""
    return orders.where("cents > 0")


def append(ctx: TaskContext, orders: DataFrame) -> DataStreamWriter:
    """Parquet files: readers of Spark see those of committed batches only, each once."""
    return orders.writeStream.format("parquet").option("path", ctx.params["table"])


def deployed_pipeline(landing: str, table: str, interval: str, savepoints: str) -> Pipeline:
    """One query without an end. Its `uid` finds its state in savepoints, however the query is called later."""
    params = {"landing": landing, "table": table, "savepoints": savepoints}
    pipeline = Pipeline("deployed-orders", params=params)
    orders = pipeline.stream_source("orders", read_orders).map("paid", paid)
    orders.stream_sink("table", append, trigger=interval, uid="orders-table")
    return pipeline


@task(multiple_outputs=False)
def prepare(params: Any = None) -> dict[str, str]:
    """The same places in each run, below FLINKLIKE_DATA_DIR, which workers and TaskManagers see under one name."""
    parent = Path(os.environ.get("FLINKLIKE_DATA_DIR") or Path(__file__).resolve().parents[1] / "run" / "data")
    base = parent / "deploy-stream"
    landing = base / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    return {
        "landing": str(landing),
        "table": str(base / "table"),
        "savepoints": str(base / "savepoints"),
        "interval": str(params["interval"]),
    }


@task
def orders_come(landing: str) -> int:
    """Stands for the shop: a file more at each run."""
    folder = Path(landing)
    number = len(list(folder.glob("*.json")))
    orders = [{"id": number * ORDERS + one, "shop": "north", "cents": one + 1} for one in range(ORDERS)]
    hidden = folder / f".{number:06d}.json"
    hidden.write_text("".join(json.dumps(order) + "\n" for order in orders))
    hidden.rename(folder / f"{number:06d}.json")
    return number


@dag(
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    params={"interval": Param("1 second", type="string", title="Trigger of the stream: another one is other code")},
    tags=["flinklike"],
    doc_md=__doc__,
)
def deploy_stream() -> None:
    """The stream runs, with the code of today, and makes batches."""
    # Its value is the id of the job: the same in every run, until the code changes or the job has ended.
    deploy = FlinklikeSubmitOperator(
        task_id="deploy",
        pipeline=deployed_pipeline,
        pipeline_params=SETTINGS,
        ensure_running=True,
        savepoint_directory=SAVEPOINTS,
        retries=2,
    )
    makes_batches = FlinklikeStreamSensor(
        task_id="makes_batches", job_id=DEPLOYED, uid="orders-table", poke_interval=1, timeout=600
    )
    prepare() >> deploy >> orders_come(LANDING) >> makes_batches


deploy_stream()
