"""A task moved from SparkSubmitOperator: another class, and no options that only a new JVM could apply.

Before, 20 seconds for each run, most of them for a driver of its own:

    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    SparkSubmitOperator(
        task_id="totals",
        application=f"{JOBS}/daily_totals.py",
        application_args=["--day", "{{ ds }}", "--orders", "{{ params.orders }}"],
        conf={"spark.sql.shuffle.partitions": 4},
        py_files=f"{JOBS}/prices.py",
        env_vars={"CURRENCY": "EUR"},
        name="daily-totals {{ ds }}",
        conn_id="spark_default",
        executor_memory="2g",
        driver_memory="1g",
        num_executors=2,
    )

After: `conn_id` names the cluster's connection (its default is right here), and memory and executors are the cluster's.
"""

from __future__ import annotations

from pathlib import Path

from airflow.sdk import Param, dag

from airflow_flinklike.operators.submit import FlinklikeSubmitOperator

JOBS = Path(__file__).parent / "jobs"


@dag(
    schedule=None,
    params={"orders": Param(1000, type="integer", minimum=1, title="Orders of the day")},
    tags=["flinklike"],
    doc_md=__doc__,
)
def migrated_spark_submit() -> None:
    """The application itself was not touched."""
    FlinklikeSubmitOperator(
        task_id="totals",
        application=f"{JOBS}/daily_totals.py",
        application_args=["--day", "{{ ds | default(run_id) }}", "--orders", "{{ params.orders }}"],
        conf={"spark.sql.shuffle.partitions": 4},
        py_files=f"{JOBS}/prices.py",
        env_vars={"CURRENCY": "EUR"},
        name="daily-totals",
        retries=2,
    )


migrated_spark_submit()
