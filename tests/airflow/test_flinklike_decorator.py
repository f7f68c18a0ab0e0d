"""`@task.flinklike` in DAGs, by `dag.test()` on a cluster that runs the functions it is sent."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.runs import run_dag, xcom
from tests.kit.rest.executing_cluster import ExecutingCluster, executing_cluster

pytestmark = [pytest.mark.usefixtures("metadata_database")]


@pytest.fixture
def executing(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExecutingCluster]:
    with executing_cluster() as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.url))
        yield cluster


def run(name: str) -> Any:
    found = run_dag("decorator_cases", {}, dag_id=f"decorated_{name}")
    assert str(found.state) == "success"
    return found


def names_of(cluster: ExecutingCluster) -> list[str]:
    return sorted(job.graph["name"] for job in cluster.jobs.values())


def test_functions_are_mapped(executing: ExecutingCluster) -> None:
    found = run("mapping")
    assert xcom(found, "expanded") == [10, 20, 30]
    assert xcom(found, "with_partial") == [2, 4]
    assert sorted(xcom(found, "crossed")) == [3, 4, 6, 8]
    assert xcom(found, "by_kwargs") == [2, 30]
    assert xcom(found, "given_kwargs") == [5, 10]
    assert names_of(executing).count("decorated_mapping.product") == 3
    assert len(executing.jobs) == 13


@pytest.mark.usefixtures("executing")
def test_a_mapping_may_be_several_outputs() -> None:
    found = run("outputs")
    assert (xcom(found, "split", "half"), xcom(found, "split", "rest")) == (3, 4)
    assert xcom(found, "joined") == 304
    assert xcom(found, "whole") == {"n": 1}
    for task_id in ("whole", "unknown"):
        with pytest.raises(AssertionError):
            xcom(found, task_id, "n")


@pytest.mark.usefixtures("executing")
def test_arguments_are_templates_and_may_be_files() -> None:
    found = run("templates")
    assert xcom(found, "rendered") == {
        "args": ["orders", "b rendered", "select * from orders"],
        "kwargs": {"deep": {"k": ["orders"]}},
        "templates": {"query": "select * from orders", "run": found.run_id},
    }


def test_functions_stand_in_groups_and_in_mapped_groups(executing: ExecutingCluster) -> None:
    found = run("groups")
    assert xcom(found, "inside.second") == 60
    assert names_of(executing).count("decorated_groups.inside__1.second") == 2


@pytest.mark.usefixtures("executing")
def test_a_teardown_runs_after_a_failure() -> None:
    found = run_dag("decorator_cases", {}, dag_id="decorated_setup")
    assert str(found.state) == "failed"
    assert xcom(found, "clean") == "something is gone"
    states = {ti.task_id: str(ti.state) for ti in found.get_task_instances()}
    assert states == {"prepare": "success", "breaks": "failed", "clean": "success"}
