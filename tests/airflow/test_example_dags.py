"""Every example DAG by `dag.test()` on a real cluster; answers are compared with DuckDB on the same files."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.kit.airflow.runs import run_dag, xcom
from tests.kit.checkpoint.query_directories import table_files
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.spark.tpch import CUSTOMERS, PRIORITIES, QUERIES, assert_same, expected, written, written_csv

pytestmark = [pytest.mark.spark, pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def tpch_run(airflow_database: None) -> Any:
    del airflow_database
    return run_dag("tpch_revenue", {"scale_factor": 0.01})


@pytest.fixture
def report(tpch_run: Any, data_directory: Path) -> Path:
    assert str(tpch_run.state) == "success"
    (directory,) = (data_directory / "reports").iterdir()
    return directory


@pytest.mark.parametrize("name", QUERIES)
def test_the_pipeline_answers_as_duckdb(tpch_run: Any, report: Path, data_directory: Path, name: str) -> None:
    wanted = expected(data_directory / "tpch-sf0.01", QUERIES[name])
    assert wanted
    assert_same(written(report / name), wanted)
    assert len(xcom(tpch_run, "answers")[name]) == len(wanted)


def test_the_script_answers_as_duckdb(report: Path, data_directory: Path) -> None:
    assert_same(written_csv(report / "priorities"), expected(data_directory / "tpch-sf0.01", PRIORITIES))


def test_the_decorated_function_answers_as_duckdb(tpch_run: Any, data_directory: Path) -> None:
    found = [tuple(row.values()) for row in xcom(tpch_run, "richest_customers")]
    assert_same(found, expected(data_directory / "tpch-sf0.01", CUSTOMERS))


def test_the_report_is_complete(tpch_run: Any, report: Path) -> None:
    text = (report / "report.txt").read_text()
    assert "TPC-H at scale factor 0.01" in text
    assert "Q5  revenue of local suppliers" in text
    rows = (report / "revenue.csv").read_text().splitlines()
    assert rows[0] == "n_name,revenue"
    assert len(rows) == len(xcom(tpch_run, "answers")["q5"]) + 1
    assert (report / "revenue.png").read_bytes().startswith(b"\x89PNG")


def test_jobs_are_finished_and_linked(tpch_run: Any, report: Path, cluster: ScriptCluster) -> None:
    del report
    with cluster.connect() as client:
        states = {one["jid"]: one["state"] for one in client.get("/jobs/overview")["jobs"]}
    for task_id in ("answers", "priorities", "richest_customers"):
        job_id = xcom(tpch_run, task_id, "job_id")
        assert states[job_id] == "FINISHED"
        assert xcom(tpch_run, task_id, "job_url").endswith(f"/ui/jobs/{job_id}")


def test_word_count(airflow_database: None) -> None:
    del airflow_database
    run = run_dag("word_count", {})
    assert str(run.state) == "success"
    counts = xcom(run, "count_words")
    assert (counts["to"], counts["be"], counts["question"]) == (2, 2, 1)


def test_the_migrated_application_runs_unchanged(airflow_database: None, cluster: ScriptCluster) -> None:
    del airflow_database
    run = run_dag("migrated_spark_submit", {"orders": 10})
    assert str(run.state) == "success"
    assert len(jobs_of(cluster, "daily-totals")) == 1


def test_every_day_is_a_job_of_its_own(airflow_database: None, cluster: ScriptCluster) -> None:
    del airflow_database
    run = run_dag("mapped_partitions", {"days": 3})
    assert str(run.state) == "success"
    expected = sum(sum(order * date(2026, 1, day).toordinal() % 997 for order in range(1000)) for day in (1, 2, 3))
    assert xcom(run, "total") == {"days": 3, "cents": expected}
    assert jobs_of(cluster, "mapped_partitions.sales_of") == ["FINISHED"] * 3


def test_the_long_job(airflow_database: None, cluster: ScriptCluster) -> None:
    del airflow_database
    run = run_dag("deferred_long_job", {"rounds": 2})
    assert str(run.state) == "success"
    assert xcom(run, "estimate")["points"] == 200_000
    assert 3 < xcom(run, "pi") < 3.3
    assert jobs_of(cluster, "long-job") == ["FINISHED"]


def test_a_stream_is_fed_watched_stopped_and_checked(airflow_database: None, cluster: ScriptCluster) -> None:
    del airflow_database
    run = run_dag("stream_orders", {"files": 6, "pause": 0.2})
    assert str(run.state) == "success"
    found = xcom(run, "compare")
    assert found["orders"] == xcom(run, "orders_come") == 301
    assert found["windows"] >= 3 * 9, "ten minutes of three shops, of which the ends may be cut"
    assert xcom(run, "orders_are_kept")["ledger"]["rows"] == 301
    assert jobs_of(cluster, "orders-as-they-come") == ["FINISHED"]
    assert (Path(xcom(run, "stop").removeprefix("file://")) / "_metadata").is_file()
    assert xcom(run, "cancel") == {xcom(run, "stream"): "FINISHED"}


def test_each_run_reads_what_has_come_since_the_one_before(airflow_database: None, cluster: ScriptCluster) -> None:
    del airflow_database
    seen = []
    for orders in (100, 10):
        run = run_dag("ingest_orders", {"orders": orders})
        assert str(run.state) == "success"
        seen.append((xcom(run, "ingest")["rows"], xcom(run, "ingest")["last_batch"], xcom(run, "in_table")))
    assert seen == [(100, 0, {"rows": 100, "orders": 100}), (10, 1, {"rows": 110, "orders": 110})]
    assert jobs_of(cluster, "ingest-orders") == ["FINISHED"] * 2


def test_a_stream_stays_deployed_and_is_upgraded_when_its_code_has_changed(
    airflow_database: None, cluster: ScriptCluster, data_directory: Path
) -> None:
    del airflow_database
    table = data_directory / "deploy-stream" / "table"
    deployed = []
    for interval in ("1 second", "1 second", "2 seconds"):
        run = run_dag("deploy_stream", {"interval": interval})
        assert str(run.state) == "success"
        deployed.append(xcom(run, "deploy"))
    first, second, third = deployed
    assert first == second != third
    with cluster.connect() as client:
        assert (client.status(first).status.value, client.status(third).status.value) == ("FINISHED", "RUNNING")
        reached(lambda: len(ids_in(table)) == 3 * 10, "all orders are in the table", timeout=200)
        restored = client.get(f"/jobs/{third}/checkpoints")["latest"]["restored"]
        client.cancel(third)
        client.wait_for_result(third)
    assert restored["external_path"].startswith((table.parent / "savepoints").as_uri())
    assert sorted(ids_in(table)) == list(range(30)), "each once"


def ids_in(table: Path) -> list[int]:
    from pyarrow.parquet import read_table

    return [row["id"] for part in table_files(table) for row in read_table(part).to_pylist()]


def jobs_of(cluster: ScriptCluster, name: str) -> list[str]:
    with cluster.connect() as client:
        return [one["state"] for one in client.get("/jobs/overview")["jobs"] if one["name"] == name]


def test_every_dag_is_tested() -> None:
    assert {path.stem for path in (Path(__file__).resolve().parents[2] / "dags").glob("*.py")} == {
        "deferred_long_job",
        "deploy_stream",
        "ingest_orders",
        "isolated_report",
        "mapped_partitions",
        "migrated_spark_submit",
        "stream_orders",
        "tpch_revenue",
        "word_count",
    }
