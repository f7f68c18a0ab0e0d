"""TPC-H on warm slots: a pipeline, a spark-submit script and a decorated function, then a report.

Trigger it with a scale factor, for instance `airflow dags test tpch_revenue --conf '{"scale_factor": 0.1}'`.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param, dag, task

from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.sensors.job import FlinklikeJobSensor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

DATA = "{{ ti.xcom_pull(task_ids='prepare')['data'] }}"
OUTPUT = "{{ ti.xcom_pull(task_ids='prepare')['output'] }}"


@task(multiple_outputs=False)
def prepare(params: Any = None, run_id: Any = None) -> dict[str, str]:
    """Make the tables, once per scale factor, and name the directory of this run's report."""
    from tpch.tables import data_directory, make_tables  # noqa: PLC0415 - work for the task, not for parsing

    directory = data_directory()
    data = make_tables(directory, float(params["scale_factor"]))
    return {"data": str(data), "output": str(directory / "reports" / re.sub(r"[^\w.-]", "-", str(run_id)))}


@task.flinklike
def richest_customers(spark: SparkSession, data: str, count: int) -> list[dict[str, Any]]:
    """A function of this file on a warm slot; its return value is the XCom."""
    customers = spark.read.parquet(f"{data}/customer.parquet").orderBy("c_acctbal", "c_custkey", ascending=False)
    return [{"c_name": row["c_name"], "c_acctbal": float(row["c_acctbal"])} for row in customers.limit(count).collect()]


@task
def report(output: str, answers: Any, customers: Any, params: Any = None) -> str:
    """Text, CSV and a chart beside the parquet files that the pipeline wrote."""
    from tpch.report import write_report  # noqa: PLC0415 - work for the task, not for parsing

    text = write_report(Path(output), answers, customers, float(params["scale_factor"]))
    logger.info("%s\nReport written to %s", text, output)
    return output


@dag(
    schedule=None,
    params={"scale_factor": Param(0.1, type="number", minimum=0.001, maximum=100, title="TPC-H scale factor")},
    tags=["flinklike"],
    doc_md=__doc__,
)
def tpch_revenue() -> None:
    """Data, three kinds of jobs, a report."""
    tables = prepare()

    answers = FlinklikeSubmitOperator(
        task_id="answers",
        pipeline="tpch.revenue:revenue_pipeline",
        pipeline_params={"data": DATA, "output": OUTPUT},
    )
    priorities = FlinklikeSubmitOperator(
        task_id="priorities",
        application=str(Path(__file__).parent / "tpch" / "order_priorities.py"),
        application_args=["--data", DATA, "--output", f"{OUTPUT}/priorities"],
        name="order-priorities",
        wait_for_completion=False,
    )
    finished = FlinklikeJobSensor(
        task_id="priorities_finished",
        job_id="{{ ti.xcom_pull(task_ids='priorities', key='job_id') }}",
    )
    customers = richest_customers(DATA, 5)  # type: ignore[call-arg, arg-type]  # spark is filled in on the slot
    written = report(OUTPUT, answers.output, customers)

    tables >> [answers, priorities, customers]
    priorities >> finished >> written


tpch_revenue()
