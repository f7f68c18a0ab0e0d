"""A stream from Airflow: orders come as files, two queries work on them, and a batch job checks what they wrote.

One query keeps a window of each minute and shop until its watermark has passed, and appends it to a table; the other
one keeps each order in a database, a batch at a time, and a batch that is repeated replaces what it had written. The
stream is stopped with a savepoint, from which another job could go on (`from_savepoint` of FlinklikeSubmitOperator).
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, dag, task

from airflow_flinklike import Pipeline
from airflow_flinklike.operators.cancel import FlinklikeCancelOperator
from airflow_flinklike.operators.savepoint import FlinklikeStopOperator
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.sensors.stream import FlinklikeStreamSensor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from airflow_flinklike import TaskContext

logger = logging.getLogger(__name__)

SCHEMA = "id long, at timestamp, shop string, cents long"
SHOPS = ("north", "south", "west")
ORDERS_IN_FILE = 50
STREAM = "{{ ti.xcom_pull(task_ids='stream') }}"
PLACES = "{{ ti.xcom_pull(task_ids='prepare') | tojson }}"


# --- the job: what runs on the cluster ------------------------------------------------------------------------


def read_orders(ctx: TaskContext) -> DataFrame:
    """The files that come into a folder, at most four in a batch."""
    return ctx.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 4).json(ctx.params["landing"])


def by_minute(ctx: TaskContext, orders: DataFrame) -> DataFrame:
    """Windows of one minute; one is done when orders of ten seconds after its end have come."""
    return sums(orders.withWatermark("at", "10 seconds"))


def sums(orders: DataFrame) -> DataFrame:
    """Orders and cents of each minute and shop, of a stream or of a table."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - on the cluster only

    minutes = orders.groupBy(f.window("at", "1 minute"), "shop")
    counted = minutes.agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
    return counted.selectExpr("window.start as minute", "shop", "orders", "cents")


def append(ctx: TaskContext, windows: DataFrame) -> DataStreamWriter:
    """Parquet files: readers of Spark see those of committed batches only, each once."""
    return windows.writeStream.format("parquet").option("path", ctx.params["table"])


def keep(ctx: TaskContext, batch: DataFrame, batch_id: int) -> None:
    """Idempotent by the number of the batch: what a try before this one has written goes in the same transaction."""
    rows = [(batch_id, row["id"], row["shop"], row["cents"]) for row in batch.collect()]
    with sqlite3.connect(ctx.params["database"]) as database:
        database.execute("create table if not exists orders (batch integer, id integer, shop text, cents integer)")
        database.execute("delete from orders where batch = ?", (batch_id,))
        database.executemany("insert into orders values (?, ?, ?, ?)", rows)


def orders_pipeline(landing: str, table: str, database: str) -> Pipeline:
    """Two queries over one source. Each takes a slot as long as the job runs."""
    places = {"landing": landing, "table": table, "database": database}
    pipeline = Pipeline("orders-as-they-come", params=places, spark_conf={"spark.sql.shuffle.partitions": "2"})
    orders = pipeline.stream_source("orders", read_orders)
    orders.map("by-minute", by_minute).stream_sink("minutes", append, trigger="1 second", output_mode="append")
    orders.stream_sink("ledger", keep, trigger="1 second")
    return pipeline


# --- the DAG --------------------------------------------------------------------------------------------------


@task(multiple_outputs=False)
def prepare(run_id: Any = None) -> dict[str, str]:
    """The places of this run, below FLINKLIKE_DATA_DIR, which workers and TaskManagers see under one name."""
    parent = Path(os.environ.get("FLINKLIKE_DATA_DIR") or Path(__file__).resolve().parents[1] / "run" / "data")
    base = parent / "stream-orders" / re.sub(r"[^\w.-]", "-", str(run_id))
    (base / "landing").mkdir(parents=True, exist_ok=True)
    return {"landing": str(base / "landing"), "table": str(base / "table"), "database": str(base / "orders.db")}


@task
def orders_come(landing: str, params: Any = None) -> int:
    """Write files of orders, one after the other, as a shop would. Returns the number of orders."""
    now = datetime.now(UTC)  # noqa: TID251 - workers of Airflow have no other clock
    begin, files = now - timedelta(hours=1), int(params["files"])
    for number in range(files):
        first = number * ORDERS_IN_FILE
        _put(landing, number, [_order(begin, number_of) for number_of in range(first, first + ORDERS_IN_FILE)])
        Event().wait(float(params["pause"]))
    # An order of tomorrow: its time moves the watermark, so that all windows of before are done.
    _put(landing, files, [{**_order(begin, 0), "id": -1, "at": _text(now + timedelta(days=1))}])
    return files * ORDERS_IN_FILE + 1


def _order(begin: datetime, number: int) -> dict[str, Any]:
    at = _text(begin + timedelta(seconds=2 * number))
    return {"id": number, "at": at, "shop": SHOPS[number % len(SHOPS)], "cents": number * 37 % 1000}


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _put(landing: str, number: int, orders: list[dict[str, Any]]) -> None:
    """Under a hidden name first, since the stream may look at any moment."""
    hidden = Path(landing, f".{number:06d}.json")
    hidden.write_text("".join(json.dumps(order) + "\n" for order in orders))
    hidden.rename(Path(landing, f"{number:06d}.json"))


@task.flinklike(multiple_outputs=False)
def compare(spark: SparkSession, places: Any) -> dict[str, int]:
    """A batch job over all that came: what the stream has written is what it gives, nothing lost and nothing twice."""
    came = spark.read.schema(SCHEMA).json(places["landing"])
    wanted = {tuple(row) for row in sums(came.where("id >= 0")).collect()}
    found = [tuple(row) for row in spark.read.parquet(places["table"]).collect()]
    with sqlite3.connect(places["database"]) as database:
        kept = sorted(database.execute("select id, shop, cents from orders"))
    ledger = sorted(tuple(row) for row in came.select("id", "shop", "cents").collect())
    assert (len(found), set(found)) == (len(wanted), wanted), "the windows of the stream are not those of the batch job"
    assert kept == ledger, "the ledger is not what has come"
    return {"orders": len(kept), "windows": len(found)}


@dag(
    schedule=None,
    params={
        "files": Param(20, type="integer", minimum=1, maximum=1000, title="Files, of 50 orders each"),
        "pause": Param(1.0, type="number", minimum=0, maximum=60, title="Seconds between two files"),
    },
    tags=["flinklike"],
    doc_md=__doc__,
)
def stream_orders() -> None:
    """A stream that is started, fed, watched, stopped and checked."""
    places = prepare()
    stream = FlinklikeSubmitOperator(
        task_id="stream", pipeline=orders_pipeline, pipeline_params=PLACES, wait_for="running", retries=2
    )
    come = orders_come("{{ ti.xcom_pull(task_ids='prepare')['landing'] }}")
    # The watermark is that of tomorrow's order: the windows of all others are in the table.
    windows = FlinklikeStreamSensor(
        task_id="windows_are_done", job_id=STREAM, uid="minutes", max_lag=0, poke_interval=1, timeout=600
    )
    kept = FlinklikeStreamSensor(
        task_id="orders_are_kept",
        job_id=STREAM,
        uid="ledger",
        rows="{{ ti.xcom_pull(task_ids='orders_come') }}",
        poke_interval=1,
        timeout=600,
    )
    # A retry finds the stop that an earlier try has asked for. Its value is the path of the savepoint.
    savepoints = "{{ ti.xcom_pull(task_ids='prepare')['landing'] }}-savepoints"
    stop = FlinklikeStopOperator(task_id="stop", job=STREAM, savepoint=savepoints, drain=True, retries=2)
    # Where anything before has failed, no job stays behind.
    cancel = FlinklikeCancelOperator(task_id="cancel", job_id=STREAM, trigger_rule="all_done")
    checked = compare(places)  # type: ignore[call-arg, arg-type]  # spark is filled in
    places >> stream >> come >> [windows, kept] >> stop >> [cancel, checked]


stream_orders()
