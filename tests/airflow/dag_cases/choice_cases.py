"""`@task.flinklike_branch` and `@task.flinklike_sensor` in DAGs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task

with DAG(dag_id="choice_branch", schedule=None, params={"way": "left"}):

    @task.flinklike_branch
    def choose(spark: Any = None, params: Any = None) -> Any:
        """The id that the run wants."""
        assert spark == "session"
        return None if params["way"] == "none" else params["way"]

    @task
    def left() -> str:
        """One way."""
        return "left"

    @task
    def right() -> str:
        """Another one."""
        return "right"

    choose() >> [left(), right()]

with DAG(dag_id="choice_sensor", schedule=None, params={"folder": ""}):

    @task.flinklike_sensor(poke_interval=0.1, timeout=60)
    def arrives(spark: Any = None, params: Any = None) -> Any:
        """True at the third look."""
        assert spark == "session"
        looks = Path(params["folder"]) / "looks"
        seen = len(looks.read_text()) if looks.exists() else 0
        looks.write_text("x" * (seen + 1))
        return {"is_done": seen >= 2, "xcom_value": seen}

    @task.flinklike_sensor(poke_interval=0.1, timeout=60, mode="reschedule")
    def is_true() -> bool:
        """At once."""
        return True

    @task
    def after(value: Any) -> Any:
        """The sensor's value."""
        return value

    after(arrives()) >> is_true()
