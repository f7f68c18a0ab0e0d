"""Operators, sensors and the decorator as DAGs use them and type checkers must accept them. Never run."""

from datetime import timedelta

from airflow_flinklike import FixedDelayRestartStrategy, Pipeline
from airflow_flinklike.operators.cancel import FlinklikeCancelOperator
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.sensors.job import FlinklikeJobSensor

FlinklikeSubmitOperator(
    task_id="script",
    application="etl.py",
    application_args=["{{ ds }}", 5],
    conf={"spark.sql.shuffle.partitions": 8},
    py_files="a.py,b.zip",
    env_vars={"A": "b"},
    job_timeout=timedelta(minutes=5),
    secrets=["db"],
    restart_strategy=FixedDelayRestartStrategy(attempts=3),
    deferrable=True,
    retries=2,
)
FlinklikeSubmitOperator(task_id="pipeline", pipeline=Pipeline, pipeline_params={"name": "{{ ds }}"})
FlinklikeSubmitOperator(task_id="texts", application="etl.py", conf="conf.json.j2", job_timeout="{{ params.seconds }}")
FlinklikeCancelOperator(task_id="cancel", job_id=["{{ ti.xcom_pull(task_ids='script', key='job_id') }}"])
FlinklikeJobSensor(task_id="wait", job_name="nightly", target_states=["RUNNING", "FINISHED"], deferrable=True)
