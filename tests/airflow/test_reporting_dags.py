"""Reports of tasks about their jobs in Airflow's database, after `dag.test()` with a fake cluster."""

from typing import Any

import pytest

from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.runs import run_dag, xcom
from tests.kit.rest.fake_cluster import FakeCluster

pytestmark = [pytest.mark.usefixtures("metadata_database")]


@pytest.fixture
def cluster_of_dags(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(rest.url))
    rest.outputs["finish"] = b"hello from the job\n"
    rest.written = {"write-records": 7, "write-bytes": 300}
    return rest


def test_mapped_tasks_have_a_link_each_and_assets_what_was_written(
    cluster_of_dags: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    found = run_dag("reporting_cases", {}, dag_id="reporting")
    assert str(found.state) == "success"
    urls = [xcom(found, "days", "job_url", map_index=index) for index in range(2)]
    assert sorted(url.rpartition("/")[2] for url in urls) == sorted(list(cluster_of_dags.jobs)[:2])
    [extra] = asset_extras(found)
    job_id = xcom(found, "table", "job_id")
    assert extra == {"job_id": job_id, "job_url": xcom(found, "table", "job_url"), "rows": 7, "bytes": 300}
    assert "".join(capfd.readouterr()).count("hello from the job") >= 3


def asset_extras(run: Any) -> list[Any]:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        query = select(AssetEvent.extra).where(AssetEvent.source_run_id == run.run_id)
        return list(session.scalars(query))


def test_a_value_that_is_too_large_is_not_tried_again(cluster_of_dags: FakeCluster) -> None:
    cluster_of_dags.results["finish"] = "x" * 20
    found = run_dag("reporting_cases", {}, dag_id="too_large")
    assert str(found.state) == "failed"
    assert len(cluster_of_dags.jobs) == 1
    [instance] = found.get_task_instances()
    assert instance.try_number == 1
