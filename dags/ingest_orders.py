"""Incremental ingestion: each run reads the files that have come since the run before, each of them once, and ends.

A streaming query with the trigger `availableNow` keeps what it has read under the `checkpoint_name` of its pipeline,
where the job of the next run goes on. A run that fails, or whose worker is lost, repeats no rows in the table.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, dag, task

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from airflow_flinklike import TaskContext

PLACES = "{{ ti.xcom_pull(task_ids='orders_come') | tojson }}"


def read_orders(ctx: TaskContext) -> DataFrame:
    """The files of a folder."""
    return ctx.spark.readStream.schema("id long, shop string, cents long").json(ctx.params["landing"])


def paid(ctx: TaskContext, orders: DataFrame) -> DataFrame:
    """What goes into the table."""
    return orders.where("cents > 0")


def append(ctx: TaskContext, orders: DataFrame) -> DataStreamWriter:
    """Parquet files by shop: readers of Spark see those of committed batches only, each once."""
    return orders.writeStream.format("parquet").option("path", ctx.params["table"]).partitionBy("shop")


def ingest_pipeline(landing: str, table: str) -> Pipeline:
    """One query that ends when it has read what was there. All runs share its state."""
    pipeline = Pipeline("ingest-orders", params={"landing": landing, "table": table}, checkpoint_name="ingest-orders")
    orders = pipeline.stream_source("orders", read_orders).map("paid", paid)
    orders.stream_sink("table", append, trigger="availableNow")
    return pipeline


@task(multiple_outputs=False)
def orders_come(params: Any = None) -> dict[str, str]:
    """Stands for the shop: a file more at each run, below FLINKLIKE_DATA_DIR, which TaskManagers see too."""
    parent = Path(os.environ.get("FLINKLIKE_DATA_DIR") or Path(__file__).resolve().parents[1] / "run" / "data")
    landing = parent / "ingest-orders" / "landing"
    landing.mkdir(parents=True, exist_ok=True)
    number = len(list(landing.glob("*.json")))
    orders = [
        {"id": number * 1000 + one, "shop": ("north", "south")[one % 2], "cents": one + 1}
        for one in range(int(params["orders"]))
    ]
    hidden = landing / f".{number:06d}.json"
    hidden.write_text("".join(json.dumps(order) + "\n" for order in orders))
    hidden.rename(landing / f"{number:06d}.json")
    return {"landing": str(landing), "table": str(landing.parent / "table")}


@task.flinklike(multiple_outputs=False)
def in_table(spark: SparkSession, places: Any) -> dict[str, int]:
    """What all runs have brought."""
    orders = spark.read.parquet(places["table"])
    return {"rows": orders.count(), "orders": orders.select("id").distinct().count()}


@dag(
    schedule=None,
    params={"orders": Param(100, type="integer", minimum=1, maximum=1000, title="New orders of this run")},
    max_active_runs=1,
    tags=["flinklike"],
    doc_md=__doc__,
)
def ingest_orders() -> None:
    """New orders, a run of the stream over them, a look at the table."""
    places = orders_come()
    # The job's value is what this run has read: {"batches": 1, "rows": 100, "last_batch": 3}.
    ingest = FlinklikeSubmitOperator(task_id="ingest", pipeline=ingest_pipeline, pipeline_params=PLACES, retries=2)
    places >> ingest >> in_table(places)  # type: ignore[call-arg, arg-type]  # spark is filled in


ingest_orders()
