"""A task whose job is told as a part of Airflow's own trace."""

from airflow.sdk import DAG, task

with DAG("traced", schedule=None):

    @task.flinklike
    def add(one: int, two: int) -> int:
        return one + two

    add(40, 2)
