"""Branches that a function on the cluster chooses, and sensors whose pokes are jobs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import PokeReturnValue

from airflow_flinklike.api.poke import Poke
from airflow_flinklike.decorators.branch import FlinklikeBranchOperator
from airflow_flinklike.decorators.sensor import FlinklikePokeOperator
from airflow_flinklike.exceptions import PipelineError
from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.runs import run_dag, xcom
from tests.kit.rest.executing_cluster import ExecutingCluster, executing_cluster


@pytest.fixture
def executing(monkeypatch: pytest.MonkeyPatch, metadata_database: None) -> Iterator[ExecutingCluster]:
    del metadata_database
    with executing_cluster() as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.url))
        yield cluster


@pytest.mark.usefixtures("executing")
@pytest.mark.parametrize(("way", "run"), [("left", {"left"}), ("right", {"right"}), ("none", set())])
def test_what_is_not_chosen_is_skipped(way: str, run: set[str]) -> None:
    found = run_dag("choice_cases", {"way": way}, dag_id="choice_branch")
    states = {ti.task_id: str(ti.state) for ti in found.get_task_instances()}
    assert {name for name, state in states.items() if state == "success"} == {"choose", *run}
    assert {name for name, state in states.items() if state == "skipped"} == {"left", "right"} - run


def test_each_poke_is_a_job(executing: ExecutingCluster, tmp_path: Path) -> None:
    found = run_dag("choice_cases", {"folder": str(tmp_path)}, dag_id="choice_sensor")
    assert str(found.state) == "success"
    assert xcom(found, "after") == 2
    names = [job.graph["name"] for job in executing.jobs.values()]
    assert names.count("choice_sensor.arrives") == 3
    assert names.count("choice_sensor.is_true") == 1


def test_answers_of_pokes() -> None:
    assert Poke(lambda: 1)() == {"is_done": True, "xcom_value": None}
    assert Poke(dict)() == {"is_done": False, "xcom_value": None}
    assert Poke(lambda: PokeReturnValue(is_done=False, xcom_value=5))() == {"is_done": False, "xcom_value": 5}
    assert Poke(lambda: {"is_done": 1, "xcom_value": "a"})() == {"is_done": True, "xcom_value": "a"}
    assert Poke(lambda: {"is_done": False, "more": 1})() == {"is_done": True, "xcom_value": None}


def test_what_a_poke_cannot_do_is_refused() -> None:
    def never() -> bool:
        return False

    for fields, sentence in (({"deferrable": True}, "mode='reschedule'"), ({"wait_for_completion": False}, "a poke")):
        options: dict[str, Any] = fields
        with pytest.raises(PipelineError, match=sentence):
            FlinklikePokeOperator(task_id="s", python_callable=never, op_args=[], op_kwargs={}, **options)
    with pytest.raises(PipelineError, match="a branch is chosen by the job's value"):
        FlinklikeBranchOperator(task_id="b", python_callable=never, op_args=[], op_kwargs={}, wait_for_completion=False)
