"""The events that OpenLineage's own provider sends of our tasks, where it is installed (requirements/lineage.txt)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.runs import run_dag
from tests.kit.rest.fake_cluster import FakeCluster

pytest.importorskip("airflow.providers.openlineage", reason="needs apache-airflow-providers-openlineage")
pytestmark = [pytest.mark.usefixtures("metadata_database")]


@pytest.fixture
def events(rest: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], dict[str, Any]]:
    """The events of a run, by task and kind."""
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(rest.url))
    transport = {"type": "file", "log_file_path": str(tmp_path / "event")}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    run_dag("lineage_cases", {}, dag_id="lineage")
    sent = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    return {(one["job"]["name"], one["eventType"]): one["run"] for one in sent}


def test_events_name_the_job_and_the_job_its_task(
    rest: FakeCluster, events: dict[tuple[str, str], dict[str, Any]]
) -> None:
    ids = {job.graph["name"]: job_id for job_id, job in rest.jobs.items()}
    for name, kind in (("finish", "COMPLETE"), ("fail", "FAIL")):
        run = events[f"lineage.{name}", kind]
        query = run["facets"]["externalQuery"]
        assert (query["externalQueryId"], query["source"]) == (ids[name], rest.url)
        conf = rest.jobs[ids[name]].graph["spark_conf"]
        assert conf["spark.openlineage.parentRunId"] == run["runId"]
        assert conf["spark.openlineage.parentJobName"] == f"lineage.{name}"
        assert events[f"lineage.{name}", "START"]["runId"] == run["runId"]


def test_the_event_of_a_failure_has_the_root_cause(events: dict[tuple[str, str], dict[str, Any]]) -> None:
    """The provider reports the task's exception, with any facets of the operator."""
    assert events["lineage.fail", "FAIL"]["facets"]["errorMessage"]["message"].startswith("ValueError: no rows\n")
