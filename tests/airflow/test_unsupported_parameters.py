"""Parameters of SparkSubmitOperator without effect: explicit, in default_args, in partial(); told, never dropped."""

import gc
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, TaskGroup, task

from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.base import FlinklikeJobOperator
from airflow_flinklike.operators.spark_parameters import UNSUPPORTED, UnsupportedParameterWarning
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from tests.kit.airflow.context import context
from tests.kit.airflow.jobs import job, only_job, submit
from tests.kit.rest.fake_cluster import FakeCluster

USER = "the job runs as the TaskManagers' user"


def told(caught: pytest.WarningsRecorder) -> list[str]:
    return [str(one.message) for one in caught if one.category is UnsupportedParameterWarning]


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "finish.py").touch()
    return str(tmp_path / "finish.py")


def test_airflow_sees_the_name_of_each_of_them() -> None:
    """`default_args` are applied, and names in `.partial()` accepted, by signatures."""
    seen: list[set[str]] = [
        getattr(vars(one).get("__init__"), "_BaseOperatorMeta__param_names", set())
        for one in FlinklikeJobOperator.mro()
    ]
    assert UNSUPPORTED.keys() <= set().union(*seen)


def test_a_line_for_each_when_parsed_and_in_the_log_of_the_run(
    rest: FakeCluster, recwarn: pytest.WarningsRecorder, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = submit(proxy_user="etl", deploy_mode="cluster", verbose=False)
    assert [line.split(":")[1].split()[0] for line in told(recwarn)] == ["proxy_user", "deploy_mode"]
    capsys.readouterr()
    operator.execute(context())
    user, mode = [line for line in capsys.readouterr().out.splitlines() if "has no effect" in line]
    assert "[warning  ] proxy_user has no effect" in user
    assert USER in user
    assert "[info     ] deploy_mode has no effect" in mode
    only_job(rest)


def test_default_args_reach_operators_and_decorators(script: str, recwarn: pytest.WarningsRecorder) -> None:
    shared = {"proxy_user": "etl", "driver_memory": "2g", "packages": "a:b:1", "num_executors": 2}
    with DAG("shared", schedule=None, default_args=shared) as shared_dag:
        etl = FlinklikeSubmitOperator(task_id="etl", application=script)

        @task.flinklike
        def rows(spark: Any = None) -> int:
            return int(spark.range(3).count())

        rows()
    assert [line.split(" has")[0] for line in told(recwarn)] == ["task 'etl': proxy_user", "task 'rows': proxy_user"]
    start = {"spark.driver.memory": "2g", "spark.jars.packages": "a:b:1", "spark.executor.instances": "2"}
    operators: list[Any] = [etl, shared_dag.get_task("rows")]
    for operator in operators:
        assert dict(operator.build_program(context()).graph.spark_conf) == start


def test_default_args_may_refuse() -> None:
    with (
        pytest.raises(PipelineError, match="task 'run': proxy_user has no effect"),
        DAG("refuses", schedule=None, default_args={"proxy_user": "etl", "on_unsupported": "fail"}),
    ):
        submit()


def test_partial_takes_them_and_tells_when_the_dag_is_parsed(recwarn: pytest.WarningsRecorder, script: str) -> None:
    with DAG("mapped", schedule=None):
        mapped = FlinklikeSubmitOperator.partial(
            task_id="etl", application=script, proxy_user="etl", master="yarn"
        ).expand(application_args=[["1"], ["2"]])
        assert [line.split(" has")[0] for line in told(recwarn)] == ["task 'etl': proxy_user", "task 'etl': master"]
        operator = mapped.unmap({"application_args": ["1"]})
        assert operator.application_args == ["1"]
        with pytest.raises(PipelineError, match="task 'etl': proxy_user has no effect"):
            FlinklikeSubmitOperator.partial(task_id="etl", proxy_user="etl", on_unsupported="fail")
        with pytest.raises(TypeError, match="unexpected keyword argument 'proxi_user'"):
            FlinklikeSubmitOperator.partial(task_id="etl", proxi_user="etl")


def test_a_mapped_task_tells_of_its_default_args_when_the_dag_is_parsed(
    recwarn: pytest.WarningsRecorder, script: str
) -> None:
    shared: Any = {"master": None, "keytab": "k"}
    with DAG("mapped", schedule=None, default_args={"proxy_user": "etl", "master": "yarn"}):
        with TaskGroup("group", default_args=shared):
            FlinklikeSubmitOperator.partial(
                task_id="etl", application=script, default_args={"deploy_mode": "client"}, keytab=""
            ).expand(application_args=[["1"]])
        assert [line.split(" has")[0] for line in told(recwarn)] == [
            "task 'group.etl': proxy_user",
            "task 'group.etl': deploy_mode",
        ]
    refusing = {"proxy_user": "etl", "on_unsupported": "fail"}
    refused = pytest.raises(PipelineError, match="task 'etl': proxy_user has no effect")
    with DAG("refuses", schedule=None, default_args=refusing), refused:
        FlinklikeSubmitOperator.partial(task_id="etl", application=script)
    gc.collect()
    assert not [one for one in recwarn if "never mapped" in str(one.message)]


def test_warnings_point_at_the_dag_file(tmp_path: Path, script: str, recwarn: pytest.WarningsRecorder) -> None:
    dag_file = tmp_path / "sales_dag.py"
    dag_file.write_text(
        "from airflow.sdk import DAG, task\n"
        "from airflow_flinklike.operators.submit import FlinklikeSubmitOperator as Submit\n"
        "with DAG('sales', schedule=None):\n"
        f"    Submit(task_id='a', application={script!r}, proxy_user='etl')\n"
        f"    Submit.partial(task_id='b', application={script!r}, master='yarn').expand(application_args=[['1']])\n"
        "    @task.flinklike(keytab='k')\n"
        "    def rows(spark=None):\n"
        "        return 1\n"
        "    rows()\n"
    )
    runpy.run_path(str(dag_file), run_name="sales_dag")
    places = [(one.filename, one.lineno) for one in recwarn if one.category is UnsupportedParameterWarning]
    assert places == [(str(dag_file), 4), (str(dag_file), 5), (str(dag_file), 9)]


def test_a_pipeline_beside_scripts_goes_on_with_their_default_args(
    rest: FakeCluster, recwarn: pytest.WarningsRecorder
) -> None:
    shared = {"driver_memory": "2g", "env_vars": {"A": 1}, "conf": {"spark.x": "y"}}
    with DAG("beside", schedule=None, default_args=shared):
        operator = submit()
    assert [line.split(" of default_args")[0].split()[-1] for line in told(recwarn)] == [
        "conf",
        "driver_memory",
        "environment",
    ]
    operator.execute(context())
    assert only_job(rest)[1].graph["environment"] == {}
    with DAG("own", schedule=None, default_args=shared), pytest.raises(PipelineError, match="files can be given with"):
        submit(files="x")


@pytest.mark.parametrize(
    ("shared", "own", "used"),
    [
        ({"conn_id": "spark_default", "flinklike_conn_id": "fl"}, {}, "fl"),
        ({"flinklike_conn_id": "fl"}, {"conn_id": "mine"}, "mine"),
        ({"conn_id": "spark_default"}, {"flinklike_conn_id": "mine"}, "mine"),
    ],
)
def test_two_connections_are_settled_and_told(
    shared: dict[str, str], own: dict[str, str], used: str, recwarn: pytest.WarningsRecorder
) -> None:
    with DAG("conns", schedule=None, default_args=shared):
        operator = submit(**own)
    assert operator.flinklike_conn_id == used
    (line,) = told(recwarn)
    assert line.endswith(f"the task uses '{used}'")


def test_reconnect_on_retry_is_durable() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert submit().durable_job
        assert not submit(reconnect_on_retry=False).durable_job
        assert submit(reconnect_on_retry=True).durable_job


def test_scalars_and_blanks_as_users_write_them(script: str, tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()
    operator = FlinklikeSubmitOperator(
        task_id="etl",
        application=script,
        env_vars={"YEAR": 2026, "IS_FULL": True, "NONE": None},
        py_files=f"{tmp_path}/a.py, {tmp_path}/b.py ,",
    )
    graph = operator.build_program(context()).graph
    assert dict(graph.environment) == {"YEAR": "2026", "IS_FULL": "True"}
    assert [one.name for one in graph.py_files] == ["a.py", "b.py"]


def test_a_pipeline_is_still_told_what_is_its_own() -> None:
    with pytest.raises(PipelineError, match="conf can be given with application= only"):
        FlinklikeSubmitOperator(task_id="p", pipeline=job("finish"), conf={"a": "b"})


def test_a_decorator_refuses_before_it_is_mapped() -> None:
    with pytest.raises(PipelineError, match="proxy_user has no effect"):
        task.flinklike(proxy_user="etl", on_unsupported="fail")


def test_resources_of_default_args_are_the_jobs(script: str) -> None:
    with DAG("shared", default_args={"resources": {"cpu_cores": 2}}, schedule=None):
        found = FlinklikeSubmitOperator(task_id="own", application=script)
        other = FlinklikeSubmitOperator(task_id="pipeline", pipeline="package.module:name")
    assert found.job_resources == {"cpu_cores": 2}
    assert (found.resources, other.job_resources) == (None, None)
