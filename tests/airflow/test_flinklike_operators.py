"""Operators and decorator against a fake REST endpoint: what is submitted, adopted, cancelled."""

import json
import os
import pickle
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.comms import ErrorResponse

from airflow_flinklike import Pipeline
from airflow_flinklike.decorators.flinklike import FlinklikeDecoratedOperator, without_injected
from airflow_flinklike.exceptions import JobFailedError, PipelineError
from airflow_flinklike.operators.cancel import FlinklikeCancelOperator
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.task_instance.stored_job import STORE_KEY
from runtime.jobgraph.graph import JobGraph, PickledCode
from runtime.jobgraph.restart_strategy import FixedDelayRestartStrategy
from tests.kit.airflow.context import FakeStateStore, context
from tests.kit.airflow.jobs import only_job, started, submit
from tests.kit.rest.fake_cluster import FakeCluster

# --- submit -----------------------------------------------------------------------------------------------


def test_the_value_of_the_job_is_returned(rest: FakeCluster) -> None:
    rest.results["finish"] = {"rows": 5}
    seen = context()
    assert submit().execute(seen) == {"rows": 5}
    job_id, _ = only_job(rest)
    assert seen["ti"].xcoms == {
        "job_url": f"{rest.url}/ui/jobs/{job_id}",
        "job_id": job_id,
    }
    stored = {"job_id": job_id, "max_tries": 2, "conn_id": "flinklike_default", "cancel_on_kill": True}
    assert seen["task_state_store"].values == {STORE_KEY: stored}


def test_the_link_and_the_stored_id_are_there_while_the_job_runs(rest: FakeCluster) -> None:
    seen = context()
    found: list[Any] = []

    def look_and_finish() -> None:
        with rest.changed:
            assert rest.changed.wait_for(lambda: "GET" in {r[0] for r in rest.requests}, timeout=10)
            found.append((dict(seen["ti"].xcoms), dict(seen["task_state_store"].values)))
        rest.finish(next(iter(rest.jobs)), 7)

    rest_of = threading.Thread(target=look_and_finish)
    rest_of.start()
    assert submit("hang").execute(seen) == 7
    rest_of.join()
    xcoms, stored = found[0]
    assert "job_url" in xcoms
    assert STORE_KEY in stored


def test_the_id_is_stored_before_the_submit(rest: FakeCluster) -> None:
    store = FakeStateStore()

    class DiesError(Exception):
        pass

    def die(key: str, value: Any) -> None:
        store.values[key] = value
        raise DiesError

    store.set = die  # type: ignore[method-assign]  # the worker dies right after it stored the id
    with pytest.raises(DiesError):
        submit().execute(context(store))
    assert not rest.jobs
    del store.set
    stored = store.values[STORE_KEY]["job_id"]
    submit().execute(context(store))
    assert list(rest.jobs) == [stored]


@pytest.mark.parametrize("deferrable", [True, False])
def test_without_waiting_the_id_of_the_running_job_is_returned(rest: FakeCluster, *, deferrable: bool) -> None:
    store = FakeStateStore()
    found = submit("hang", wait_for_completion=False, deferrable=deferrable).execute(context(store))
    job_id, submitted = only_job(rest)
    assert (found, submitted.status) == (job_id, "RUNNING")
    assert submit("hang", wait_for_completion=False).execute(context(store)) == job_id


def test_a_failed_job_raises_with_its_root_cause(rest: FakeCluster) -> None:
    del rest
    with pytest.raises(JobFailedError) as caught:
        submit("fail").execute(context())
    assert str(caught.value).startswith("ValueError: no rows\n")
    assert caught.value.kind == "USER"


def test_a_lost_answer_to_the_submit_leads_to_one_job(rest: FakeCluster) -> None:
    rest.lost_answers = 1
    submit().execute(context())
    only_job(rest)


def test_parameters_that_do_not_go_together_are_refused_when_the_dag_is_parsed() -> None:
    for fields in ({"pipeline": None}, {"application": "etl.py"}):
        with pytest.raises(PipelineError, match="either pipeline= or application="):
            submit(**fields)
    with pytest.raises(PipelineError, match="conf, files can be given with application= only"):
        submit(conf={"a": "b"}, files="x")
    with pytest.raises(PipelineError, match="job_timeout can be given with application= only"):
        submit(job_timeout=60)
    with pytest.raises(PipelineError, match="pipeline_params are for pipeline=; an application has application_args"):
        submit(pipeline=None, application="etl.py", pipeline_params={"day": 1})


@pytest.mark.parametrize("name", ["inline_timeout", "orphan_timeout", "log_limit", "xcom_limit"])
def test_what_is_negative_is_refused_when_the_dag_is_parsed(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is -1: it must not be negative"):
        submit(**dict[str, Any]({name: -1}))
    submit(**dict[str, Any]({name: 0}))


def test_a_poll_interval_of_nothing_is_refused_when_the_dag_is_parsed() -> None:
    for operator in (submit, partial(FlinklikeCancelOperator, task_id="cancel", job_id="x")):
        with pytest.raises(ValueError, match="poll_interval is 0: it must be above 0"):
            operator(poll_interval=0)


# --- what is submitted --------------------------------------------------------------------------------------


def graph_of(operator: Any, seen: Any = None) -> JobGraph:
    program = operator.build_program(context() if seen is None else seen)
    assert isinstance(program.graph, JobGraph)
    return program.graph


def with_day(day: str, factor: int = 1) -> Pipeline:
    return Pipeline(f"{day} x {factor}").source("read", "jobs.code:read").pipeline


def test_params_fill_arguments_and_reach_the_job() -> None:
    operator = submit(pipeline=with_day, params={"day": "{{ ds }}", "factor": 2, "other": True})
    seen = context(params={"day": "{{ ds }}", "factor": 2, "other": True})
    graph = graph_of(operator, seen)
    assert graph.name == "2024-05-06 x 2"
    assert graph.params == {"day": "2024-05-06", "factor": 2, "other": True}


def test_values_of_the_runs_conf_win_and_are_never_templates() -> None:
    operator = submit(pipeline=with_day, params={"day": "{{ ds }}"})
    assert graph_of(operator, context(params={"day": "{{ var.value.secret }}"})).name == "{{ var.value.secret }} x 1"


def test_pipeline_params_win_over_params() -> None:
    operator = submit(pipeline=with_day, params={"day": "a"}, pipeline_params={"day": "b", "factor": 3})
    assert graph_of(operator, context(params={"day": "a"})).name == "b x 3"


def test_a_pipeline_may_be_an_object_or_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    assert graph_of(submit(pipeline=with_day("x"))).name == "x x 1"
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "unit" / "api"))
    assert graph_of(submit(pipeline="pipeline_fixture_jobs:simple", pipeline_params={"days": 2})).vertices[
        0
    ].splits == (
        0,
        1,
    )


def test_an_application_is_a_script_job(tmp_path: Path) -> None:
    for name in ("etl.py", "lib.zip", "a.csv"):
        (tmp_path / name).write_text("x")
    operator = FlinklikeSubmitOperator(
        task_id="etl",
        application=str(tmp_path / "etl.py"),
        application_args=["--day", "{{ ds }}"],
        conf={"spark.sql.shuffle.partitions": 2},
        py_files=str(tmp_path / "lib.zip"),
        files=[str(tmp_path / "a.csv")],
        name="etl {{ ds }}",
        environment={"A": "b"},
        job_timeout=timedelta(minutes=1),
        secrets=["DB_PASSWORD"],
        restart_strategy="fixed-delay,attempts=5",
        user_failures="final",
    )
    operator.render_template_fields(context())
    graph = graph_of(operator)
    code = graph.vertices[0].operators[0].code
    assert code.type == "script"
    assert (graph.name, code.args) == ("etl 2024-05-06", ("--day", "2024-05-06"))
    assert graph.spark_conf == {"spark.sql.shuffle.partitions": "2"}
    assert [f.name for f in graph.py_files + graph.files] == ["lib.zip", "a.csv"]
    assert (graph.environment, graph.execution_timeout_seconds) == ({"A": "b"}, 60)
    assert graph.secrets == ("DB_PASSWORD",)
    assert graph.restart_strategy == FixedDelayRestartStrategy(attempts=5)
    assert graph.user_failures == "final"


def test_what_spark_submit_users_bring(tmp_path: Path) -> None:
    """The names of SparkSubmitOperator, texts that templates make, and a properties file that conf overrides."""
    (tmp_path / "etl.py").write_text("x")
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.shuffle.partitions 8\nspark.sql.ansi.enabled true\n")
    operator = FlinklikeSubmitOperator(
        task_id="etl",
        application=str(tmp_path / "etl.py"),
        application_args='["--day", "{{ ds }}"]',
        conf='{"spark.sql.shuffle.partitions": "{{ params.n }}"}',
        properties_file=str(tmp_path / "{{ params.file }}"),
        env_vars={"DAY": "{{ ds }}"},
        job_timeout="{{ params.n }}",
        conn_id="other",
        verbose=False,
    )
    seen = context(params={"n": 2, "file": "spark-defaults.conf"})
    operator.render_template_fields(seen)
    graph = graph_of(operator, seen)
    code = graph.vertices[0].operators[0].code
    assert code.type == "script"
    assert code.args == ("--day", "2024-05-06")
    assert graph.spark_conf == {"spark.sql.shuffle.partitions": "2", "spark.sql.ansi.enabled": "true"}
    assert (graph.environment, graph.execution_timeout_seconds) == ({"DAY": "2024-05-06"}, 2)
    assert operator.flinklike_conn_id == "other"


def test_the_conf_of_the_connection_is_the_default(
    rest: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "finish.py").write_text("x")
    (tmp_path / "defaults.conf").write_text("spark.b 2\nspark.c 2\n")
    connection = json.loads(os.environ["AIRFLOW_CONN_FLINKLIKE_DEFAULT"])
    connection["extra"] = {"conf": {"spark.a": "1", "spark.b": "1", "spark.c": "1"}}
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", json.dumps(connection))
    FlinklikeSubmitOperator(
        task_id="etl",
        application=str(tmp_path / "finish.py"),
        properties_file=str(tmp_path / "defaults.conf"),
        conf={"spark.c": "3"},
    ).execute(context())
    assert only_job(rest)[1].graph["spark_conf"] == {"spark.a": "1", "spark.b": "2", "spark.c": "3"}


def test_the_reference_of_a_pipeline_may_be_a_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "unit" / "api"))
    operator = submit(pipeline="pipeline_fixture_jobs:{{ params.kind }}", pipeline_params={"days": 2})
    graph = graph_of(operator, context(params={"kind": "simple"}))
    assert graph.name == graph_of(submit(pipeline="pipeline_fixture_jobs:simple", pipeline_params={"days": 2})).name


def test_conf_may_be_a_template_file(tmp_path: Path) -> None:
    from airflow.sdk import DAG

    (tmp_path / "conf.json.j2").write_text('{"spark.sql.shuffle.partitions": "{{ ds[:4] }}"}')
    (tmp_path / "etl.py").write_text("x")
    with DAG(dag_id="files", schedule=None, template_searchpath=str(tmp_path)):
        operator = FlinklikeSubmitOperator(task_id="etl", application=str(tmp_path / "etl.py"), conf="conf.json.j2")
    operator.resolve_template_files()
    operator.render_template_fields(context())
    assert graph_of(operator).spark_conf == {"spark.sql.shuffle.partitions": "2024"}


def test_what_spark_reads_at_its_start_becomes_conf_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "etl.py").write_text("x")
    operator = FlinklikeSubmitOperator(
        task_id="etl",
        application=str(tmp_path / "etl.py"),
        conf={"spark.driver.memory": "1g", "spark.x": "y"},
        driver_memory="2g",
        packages="a:b:{{ ds[:4] }}",
        num_executors=3,
    )
    operator.render_template_fields(context())
    assert graph_of(operator).spark_conf == {
        "spark.driver.memory": "2g",
        "spark.x": "y",
        "spark.jars.packages": "a:b:2024",
        "spark.executor.instances": "3",
    }
    with pytest.raises(PipelineError, match="driver_memory can be given with application= only"):
        FlinklikeSubmitOperator(task_id="etl", pipeline="a:b", driver_memory="2g")


def test_what_cannot_be_read_or_is_said_twice_is_refused() -> None:
    with pytest.raises(PipelineError, match="env_vars and environment are two names"):
        FlinklikeSubmitOperator(task_id="etl", application="etl.py", env_vars={"a": "b"}, environment={"a": "b"})
    with pytest.raises(PipelineError, match="properties_file '/nowhere' cannot be read"):
        graph_of(FlinklikeSubmitOperator(task_id="etl", application="etl.py", properties_file="/nowhere"))


def test_every_template_field_is_assigned_verbatim() -> None:
    operator = submit()
    assert all(hasattr(operator, field) for field in operator.template_fields)
    assert all(hasattr(decorated(lambda: 1), field) for field in FlinklikeDecoratedOperator.template_fields)


# --- adopt, clear -------------------------------------------------------------------------------------------


def test_a_retry_adopts_a_finished_job_with_its_value(rest: FakeCluster) -> None:
    rest.results["finish"] = 11
    store, job_id = started(rest, "finish")
    seen = context(store)
    assert submit("finish").execute(seen) == 11
    assert list(rest.jobs) == [job_id]
    assert ("POST", "/jobs") not in rest.requests
    assert seen["ti"].xcoms["job_id"] == job_id


def test_a_retry_adopts_a_running_job(rest: FakeCluster) -> None:
    store, job_id = started(rest, "hang")
    timer = threading.Timer(0.2, rest.finish, (job_id, 5))
    timer.start()
    assert submit("hang").execute(context(store)) == 5
    timer.join()
    assert list(rest.jobs) == [job_id]


def test_a_retry_after_a_failed_job_submits_afresh(rest: FakeCluster) -> None:
    store, job_id = started(rest, "fail")
    submit("finish").execute(context(store))
    assert len(rest.jobs) == 2
    assert store.values[STORE_KEY]["job_id"] != job_id


def test_without_durable_every_try_submits(rest: FakeCluster) -> None:
    store, _ = started(rest, "finish")
    submit("finish", durable=False).execute(context(store))
    assert len(rest.jobs) == 2


def test_a_clear_of_a_finished_task_submits_afresh(rest: FakeCluster) -> None:
    store, _ = started(rest, "finish", max_tries=2)
    submit("finish").execute(context(store, max_tries=3))
    assert len(rest.jobs) == 2


def test_a_clear_of_a_running_task_ends_its_job_first(rest: FakeCluster) -> None:
    store, job_id = started(rest, "hang", max_tries=2)
    submit("finish").execute(context(store, max_tries=3))
    assert rest.jobs[job_id].status == "CANCELED"
    posted = [request for request in rest.requests if request[0] == "PATCH" or request == ("POST", "/jobs")]
    assert [request[0] for request in posted] == ["PATCH", "POST"]


def test_a_clear_leaves_a_job_alone_that_is_not_to_be_cancelled(rest: FakeCluster) -> None:
    store, job_id = started(rest, "hang", max_tries=2)
    timer = threading.Timer(0.2, rest.finish, (job_id,))
    timer.start()
    submit("finish", cancel_on_kill=False).execute(context(store, max_tries=3))
    timer.join()
    assert (rest.jobs[job_id].status, len(rest.jobs), rest.cancels) == ("FINISHED", 2, [])


def test_a_request_of_an_earlier_try_that_arrives_late_is_adopted(rest: FakeCluster) -> None:
    """The retry finds no job. Its submit of the same id conflicts with the earlier one, whose pickle differs."""
    store, job_id = started(rest, "finish")
    late = rest.jobs.pop(job_id)
    original = rest.submit

    def after_the_late_one(body: dict[str, Any]) -> tuple[int, Any]:
        rest.jobs.setdefault(job_id, late)
        return original(body)

    rest.submit = after_the_late_one  # type: ignore[method-assign]  # the earlier request is executed first
    submit("finish again").execute(context(store))
    assert list(rest.jobs) == [job_id]


# --- a store that has lost the id ----------------------------------------------------------------------------


def run_of(day: int) -> Any:
    """A DAG run as the context has it."""
    return SimpleNamespace(start_date=datetime(2024, 5, day, tzinfo=UTC))


def lost(value: Any = None) -> FakeStateStore:
    """The store of a later try, expired or edited by hand."""
    store = FakeStateStore()
    if value is not None:
        store.values[STORE_KEY] = value
    return store


@pytest.mark.parametrize("value", [None, "no JSON", 7, [], {}, {"job_id": "mine"}, {"job_id": None, "max_tries": 2}])
def test_a_retry_finds_its_job_without_the_store(rest: FakeCluster, value: Any) -> None:
    job_id = submit("hang", wait_for_completion=False).execute(context(dag_run=run_of(6)))
    timer = threading.Timer(0.2, rest.finish, (job_id, 5))
    timer.start()
    for number in (2, 3):  # running, then FINISHED
        assert submit("hang").execute(context(lost(value), dag_run=run_of(6), try_number=number)) == 5
    timer.join()
    only_job(rest)


def test_a_store_that_airflows_server_cannot_read_is_one_that_has_lost_the_id(rest: FakeCluster) -> None:
    job_id = submit("finish", wait_for_completion=False).execute(context(dag_run=run_of(6)))
    store = lost()

    def broken(status_code: int | None) -> Any:
        def get(key: str) -> Any:
            raise AirflowRuntimeError(ErrorResponse(detail={"status_code": status_code, "message": key}))

        return get

    store.get = broken(500)  # type: ignore[method-assign]  # what is stored is no JSON
    submit("finish").execute(context(store, dag_run=run_of(6), try_number=2))
    assert only_job(rest)[0] == job_id
    store.get = broken(None)  # type: ignore[method-assign]  # the server is away: nothing is known
    with pytest.raises(AirflowRuntimeError):
        submit("finish").execute(context(store, dag_run=run_of(6), try_number=3))


def test_a_clear_that_lowers_the_retries_submits_afresh_too(rest: FakeCluster) -> None:
    """`max_tries` stays the same here (tries so far plus `retries`), but the run starts again."""
    store = FakeStateStore()
    for number, day in ((1, 6), (2, 7)):
        submit("finish").execute(context(store, max_tries=1, try_number=number, dag_run=run_of(day)))
    assert len(rest.jobs) == 2


@pytest.mark.parametrize("change", [{"max_tries": 3}, {"dag_run": run_of(7)}])
def test_a_clear_and_a_new_run_submit_afresh_without_the_store_too(rest: FakeCluster, change: dict[str, Any]) -> None:
    submit("finish").execute(context(dag_run=run_of(6)))
    submit("finish").execute(context(lost(), **{"dag_run": run_of(6), "try_number": 2, **change}))
    assert len(rest.jobs) == 2


def test_a_task_that_is_delivered_twice_is_one_job(rest: FakeCluster) -> None:
    """Some executors start a try again when they have lost contact to its worker."""
    for _ in range(2):
        submit("hang", wait_for_completion=False, durable=False).execute(context(dag_run=run_of(6)))
    only_job(rest)


# --- decorator ----------------------------------------------------------------------------------------------


def decorated(function: Any, *args: Any, **kwargs: Any) -> FlinklikeDecoratedOperator:
    options = kwargs.pop("options", {})
    return FlinklikeDecoratedOperator(
        task_id="fn", python_callable=without_injected(function), op_args=args, op_kwargs=kwargs, **options
    )


def test_what_pyspark_users_bring() -> None:
    """The parameter names of @task.pyspark."""
    operator = decorated(
        lambda: 1,
        options={"conn_id": "c", "config_kwargs": {"spark.sql.ansi.enabled": True}, "env_vars": '{"DAY": "{{ ds }}"}'},
    )
    operator.render_template_fields(context())
    graph = graph_of(operator)
    assert (operator.flinklike_conn_id, graph.spark_conf) == ("c", {"spark.sql.ansi.enabled": "true"})
    assert graph.environment == {"DAY": "2024-05-06"}
    with pytest.raises(PipelineError, match="conf and config_kwargs are two names"):
        decorated(lambda: 1, options={"conf": {"a": 1}, "config_kwargs": {"a": 1}})


class Slot:
    """The members of TaskContext that these functions use."""

    spark = "session"


class SparkSlot:
    """A TaskContext with a session."""

    class spark:  # noqa: N801 - the name in a TaskContext
        """The session."""

        sparkContext = "sc"  # noqa: N815 - Spark's name


def run_function(operator: FlinklikeDecoratedOperator, seen: Any = None, slot: type = Slot) -> Any:
    code = graph_of(operator, seen).vertices[0].operators[0].code
    assert isinstance(code, PickledCode)
    return pickle.loads(code.payload())(slot())


def test_spark_and_ctx_are_filled_in_on_the_slot() -> None:
    def total(spark: Any, a: int, ctx: Any, b: int = 2) -> Any:
        return spark, a, ctx.spark, b

    assert run_function(decorated(total, 1)) == ("session", 1, "session", 2)
    assert run_function(decorated(total, a=1, b=5)) == ("session", 1, "session", 5)


def test_the_context_of_pyspark_tasks_is_filled_in_too() -> None:
    def moved(n: int, spark: Any, sc: Any) -> Any:
        return n, spark is SparkSlot.spark, sc

    assert run_function(decorated(moved, 7), slot=SparkSlot) == (7, True, "sc")


def test_plain_values_of_the_context_are_filled_in() -> None:
    def dated(ds: str, params: dict[str, Any], x: int = 0) -> Any:
        return ds, params, x

    seen = context(params={"p": 1})
    assert run_function(decorated(dated, x=4), seen) == ("2024-05-06", {"p": 1}, 4)


def test_objects_of_the_worker_cannot_travel() -> None:
    def uses_ti(ti: Any) -> Any:
        return ti

    with pytest.raises(PipelineError, match="parameter 'ti': Airflow's ti is a FakeTaskInstance and stays"):
        graph_of(decorated(uses_ti))


def test_a_missing_argument_is_found_when_the_dag_is_parsed() -> None:
    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        decorated(lambda spark, a: a)


def test_the_decorated_function_is_one_job(rest: FakeCluster) -> None:
    from airflow.sdk import DAG

    with DAG(dag_id="finish_dag", schedule=None):
        operator = decorated(
            lambda: 1,
            options={
                "conf": {"spark.sql.ansi.enabled": False},
                "secrets": "A,B",
                "restart_strategy": "none",
                "user_failures": "restart",
            },
        )
    rest.results["finish_dag.fn"] = 12
    assert operator.execute(context()) == 12
    _, submitted = only_job(rest)
    assert submitted.graph["spark_conf"] == {"spark.sql.ansi.enabled": "false"}
    assert submitted.graph["secrets"] == ["A", "B"]
    assert submitted.graph["restart_strategy"] == {"type": "none"}
    assert submitted.graph["user_failures"] == "restart"
    assert submitted.client == "airflow dag.run manual__1"


def test_the_decorator_makes_tasks_and_mapped_tasks() -> None:
    from airflow.sdk import DAG

    from airflow_flinklike.decorators.flinklike import flinklike_task

    @flinklike_task(retries=3)
    def add(spark: Any, a: int, b: int) -> int:
        """Adds."""
        return a + b

    with DAG(dag_id="d", schedule=None) as dag:
        add(1, 2)  # type: ignore[call-arg]  # spark is filled in on the slot
        add.partial(b=1).expand(a=[1, 2])
    assert sorted(dag.task_ids) == ["add", "add__1"]
    assert dag.get_task("add").retries == 3
    assert dag.get_task("add").doc_md == "Adds."
