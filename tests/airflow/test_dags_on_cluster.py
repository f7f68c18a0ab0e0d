"""What the example DAGs do not show, by `dag.test()` on a real cluster."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient
from tests.kit.airflow.runs import run_dag, xcom
from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("airflow_database"),
]


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as connected:
        yield connected


def states_of(client: FlinklikeClient, name: str) -> list[str]:
    return [one["state"] for one in client.get("/jobs/overview")["jobs"] if one["name"] == name]


def run(dag_id: str, **conf: Any) -> Any:
    return run_dag("cluster_cases", conf, dag_id=dag_id)


def test_deferrable_tasks_come_back_with_values(client: FlinklikeClient) -> None:
    found = run("deferring", count=5)
    assert str(found.state) == "success"
    assert xcom(found, "submit") == {"sum": 55, "params": {"count": 5}}
    assert xcom(found, "sensor") == xcom(found, "submit")
    assert states_of(client, "numbers") == ["FINISHED"]


def test_a_submit_without_waiting_leaves_it_to_the_sensor(client: FlinklikeClient, tmp_path: Path) -> None:
    found = run("not_waiting", gate=str(tmp_path / "gate"))
    assert str(found.state) == "success"
    assert xcom(found, "starts") == xcom(found, "starts", "job_id")
    assert xcom(found, "ends") == "released"
    assert states_of(client, "held") == ["FINISHED"]


def test_a_retry_after_a_failed_job_runs_again(client: FlinklikeClient, tmp_path: Path) -> None:
    found = run("retrying", marker=str(tmp_path / "marker"))
    assert str(found.state) == "success"
    assert xcom(found, "fails_once") == {"run_id": found.run_id}
    assert sorted(states_of(client, "retrying.fails_once")) == ["FAILED", "FINISHED"]


def test_a_failed_job_fails_the_task_with_its_root_cause(
    client: FlinklikeClient, capfd: pytest.CaptureFixture[str]
) -> None:
    found = run("failing")
    assert str(found.state) == "failed"
    assert states_of(client, "bad") == ["FAILED"]
    assert "ZeroDivisionError: division by zero" in "".join(capfd.readouterr())


def test_mapped_functions_are_jobs_of_their_own(client: FlinklikeClient) -> None:
    found = run("mapping")
    assert str(found.state) == "success"
    assert xcom(found, "total") == 12
    assert states_of(client, "mapping.doubled") == ["FINISHED"] * 3
