"""A pipeline's plan among the rendered fields, and the default conf of a connection."""

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_flinklike import Pipeline
from airflow_flinklike.decorators.flinklike import FlinklikeDecoratedOperator, without_injected
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from tests.kit.airflow.context import context
from tests.kit.airflow.jobs import only_job, submit
from tests.kit.rest.fake_cluster import TOKEN, FakeCluster


def sales(day: str, parallelism: int = 2) -> Pipeline:
    pipeline = Pipeline(f"sales {day}", parallelism=parallelism)
    orders = pipeline.source("orders", "jobs.code:read")
    orders.hash("customer").apply("totals", "jobs.code:totals").gather().sink("report", "jobs.code:report")
    return pipeline


def rendered(operator: Any) -> Any:
    """The fields as the worker renders them."""
    seen = context()
    seen["task"] = operator
    operator.render_template_fields(seen)
    return operator.plan


def test_the_plan_shows_chains_exchanges_and_parallelism() -> None:
    text = rendered(submit(pipeline=sales, pipeline_params={"day": "{{ ds }}", "parallelism": 3}))
    assert text.splitlines()[:5] == [
        "job sales 2024-05-06",
        "chains:",
        "  orders  (parallelism 3)",
        "  totals  (parallelism 3)",
        "  report  (parallelism 1, exclusive)",
    ]
    assert "orders  ==HASH on customer==>  totals" in text


def test_a_job_that_cannot_be_built_says_so_and_fails_at_the_submit() -> None:
    def broken() -> Pipeline:
        message = "no such table"
        raise LookupError(message)

    operator = submit(pipeline=broken)
    assert rendered(operator) == "cannot be shown: LookupError: no such table"
    with pytest.raises(LookupError):
        operator.build_program(context())


def test_a_script_has_no_plan(tmp_path: Path) -> None:
    script = tmp_path / "etl.py"
    script.touch()
    assert rendered(FlinklikeSubmitOperator(task_id="etl", application=str(script))) is None


def test_nothing_is_built_while_the_dag_is_parsed_and_serialized() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    def never(**_: Any) -> Pipeline:
        raise AssertionError("built while the DAG was parsed")

    with DAG(dag_id="plans", schedule=None) as dag:
        FlinklikeSubmitOperator(task_id="one", pipeline=never)
        FlinklikeSubmitOperator.partial(task_id="many", pipeline=never).expand(pipeline_params=[{"a": 1}, {"a": 2}])
    text = json.dumps(DagSerialization.to_dict(dag))
    assert "shown when the task runs" in text


def test_a_mapped_task_shows_its_own_plan() -> None:
    with DAG(dag_id="mapped_plans", schedule=None) as dag:
        FlinklikeSubmitOperator.partial(task_id="many", pipeline=sales).expand(pipeline_params=[{"day": "a"}])
    task: Any = dag.get_task("many").unmap({"pipeline_params": {"day": "b"}})
    seen = context()
    seen["task"] = task
    task._do_render_template_fields(task, task.template_fields, seen, task.get_template_env(), set())
    assert task.plan.startswith("job sales b\n")


# --- default conf -------------------------------------------------------------------------------------------


@pytest.fixture
def defaults(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    extra = {"conf": {"spark.sql.shuffle.partitions": 8, "spark.sql.ansi.enabled": False}}
    text = json.dumps({"conn_type": "flinklike", "host": rest.url[7:], "password": TOKEN, "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", text)
    return rest


def test_a_script_gets_the_connections_conf_under_its_own(defaults: FakeCluster, tmp_path: Path) -> None:
    script = tmp_path / "etl.py"
    script.touch()
    conf = {"spark.sql.shuffle.partitions": 2}
    FlinklikeSubmitOperator(task_id="etl", application=str(script), name="finish", conf=conf).execute(context())
    _, job = only_job(defaults)
    assert job.graph["spark_conf"] == {"spark.sql.shuffle.partitions": "2", "spark.sql.ansi.enabled": "false"}


def test_a_function_gets_it_too_and_a_pipeline_keeps_its_own(defaults: FakeCluster) -> None:
    with DAG(dag_id="finish_dag", schedule=None):
        operator = FlinklikeDecoratedOperator(task_id="fn", python_callable=without_injected(lambda: 1))
    operator.execute(context())
    _, job = only_job(defaults)
    assert job.graph["spark_conf"]["spark.sql.shuffle.partitions"] == "8"
    defaults.jobs.clear()
    submit("finish").execute(context())
    assert only_job(defaults)[1].graph["spark_conf"] == {}
