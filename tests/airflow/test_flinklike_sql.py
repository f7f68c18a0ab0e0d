"""FlinklikeSqlOperator: what it sends, and what the statements do with a session that records them."""

import decimal
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_flinklike.api.sql_job import RowsTooLargeError, SqlStatements, json_value
from airflow_flinklike.exceptions import JobFailedError, PipelineError
from airflow_flinklike.operators.sql import FlinklikeSqlOperator
from runtime.jobgraph.graph import ResourceSpec
from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.context import context
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.rest.executing_cluster import executing_cluster


def sql(text: Any = "select 1", **fields: Any) -> FlinklikeSqlOperator:
    return FlinklikeSqlOperator(**{"task_id": "sql", "sql": text, "poll_interval": 0.2, **fields})


def test_the_job_has_the_names_of_spark_sql_operator() -> None:
    operator = sql(name="totals", conf={"spark.sql.shuffle.partitions": 2}, executor_cores=2, conn_id="fl")
    graph = operator.build_program(context()).graph
    assert graph.name == "totals"
    assert dict(graph.spark_conf) == {"spark.sql.shuffle.partitions": "2", "spark.executor.cores": "2"}
    assert operator.flinklike_conn_id == "fl"


def test_resources_are_those_of_the_job() -> None:
    graph = sql(resources='{"cpu_cores": 2, "memory": "4g"}', spark_profile="big").build_program(context()).graph
    wanted = ResourceSpec(cpu_cores=2.0, memory_bytes=4 << 30, spark_profile="big")
    assert graph.vertices[0].resources == wanted
    with DAG("mapped", schedule=None):
        mapped = FlinklikeSqlOperator.partial(
            task_id="mapped", resources={"cpu_cores": 2, "memory": "4g"}, spark_profile="big"
        ).expand(sql=["select 1", "select 2"])
        assert mapped.unmap({"sql": "select 1"}).build_program(context()).graph.vertices[0].resources == wanted


@pytest.mark.parametrize(
    ("text", "fields", "sentence"),
    [
        (" ; -- nothing", {}, "sql has no statement"),
        ("select 1", {"mode": "replace"}, "mode is 'replace', expected one of append, overwrite, error"),
        ("select 1", {"write_to": "t", "return_last": False}, "write_to takes the rows of the last statement"),
        ("select ?; select ?", {"parameters": [1, 2]}, "values of markers belong to one statement"),
    ],
)
def test_what_does_not_go_together(text: str, fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PipelineError, match="task 'sql': ") as caught:
        sql(text, **fields).build_program(context())
    assert sentence in str(caught.value)


def test_statements_are_templates_and_files(tmp_path: Any) -> None:
    (tmp_path / "totals.sql").write_text("select '{{ ds }};'; select 2")
    with DAG("files", schedule=None, template_searchpath=str(tmp_path)) as dag:
        operator = sql("totals.sql")
    operator.resolve_template_files()
    operator.render_template_fields(context(dag=dag, ds="2026-01-01"))
    assert operator.sql == "select '2026-01-01;'; select 2"


def test_a_job_without_spark_fails_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with executing_cluster() as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.url))
        with pytest.raises(JobFailedError, match="'str' object has no attribute 'sql'"):
            sql().execute(context())


def test_values_as_json() -> None:
    day = date(2026, 1, 2)
    row = [1, None, "a", 1.5, float("nan"), day, decimal.Decimal("1.10"), b"\x01", {"k": [day]}]
    assert json_value(row) == [1, None, "a", 1.5, "nan", "2026-01-02", "1.10", "01", {"k": ["2026-01-02"]}]


# --- with Spark -----------------------------------------------------------------------------------------------


@pytest.fixture
def spark_cluster(cluster: ScriptCluster, monkeypatch: pytest.MonkeyPatch) -> ScriptCluster:
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.url, token=cluster.token))
    return cluster


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("spark_cluster")
def test_rows_tables_and_limits_with_spark() -> None:
    view = "create or replace temp view v as select id, id * 2 as twice from range(3); -- a view\n"
    assert sql(view + "select * from v where id > :low order by id", parameters={"low": 0}).execute(context()) == [
        [1, 2],
        [2, 4],
    ]
    assert sql("select ? + 1", parameters=[1]).execute(context()) == [[2]]
    assert sql([view, "select 1; select ';'"], return_last=False).execute(context()) == [[], [[1]], [[";"]]]
    values = sql("select date'2026-01-02', 1.10BD, named_struct('a', array(1)), X'01', double('nan')")
    assert values.execute(context()) == [["2026-01-02", "1.10", {"a": [1]}, "01", "nan"]]
    with pytest.raises(JobFailedError, match="the rows take more than xcom_limit, 100 bytes"):
        sql("select * from range(1000)", xcom_limit=100).execute(context())
    assert sql("select * from range(1000)", do_xcom_push=False, xcom_limit=100).execute(context()) is None
    with pytest.raises(JobFailedError, match="DIVIDE_BY_ZERO"):
        sql("select 1 / (id - id) from range(3)", do_xcom_push=False).execute(context())


def test_more_rows_than_the_xcom_may_have_end_early() -> None:
    class Frame:
        given = 0

        def toLocalIterator(self) -> Iterator[list[int]]:  # noqa: N802 - Spark's name
            while True:
                self.given += 1
                yield [self.given]

    class Session:
        frame = Frame()

        def sql(self, text: str) -> Frame:
            del text
            return self.frame

    with pytest.raises(RowsTooLargeError):
        SqlStatements(["select"], row_bytes_max=50)(Session())
    assert Session.frame.given < 15
