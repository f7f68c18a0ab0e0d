"""The same job in the ways of apache-airflow-providers-apache-spark, where that is installed."""

from __future__ import annotations

from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, task

CONF = {"spark.ui.enabled": "false"}

with DAG(dag_id="spark_submit", schedule=None):
    SparkSubmitOperator(task_id="job", application="{{ dag_run.conf['script'] }}", conf=CONF)

with DAG(dag_id="pyspark", schedule=None):

    @task.pyspark(task_id="job", conn_id="spark_default", config_kwargs=CONF)
    def counted(spark: Any) -> int:
        """A session of its own."""
        return int(spark.range(1000).count())

    counted()  # type: ignore[call-arg]  # `spark` is filled in
