"""R36: a failing task runs as often as `retries` says, also on a cluster that restarts tasks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.runs import run_dag
from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.slow]

RESTARTING = {
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "2",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "0 s",
}


@pytest.fixture
def restarting_cluster(metadata_database: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptCluster]:
    del metadata_database
    with ScriptCluster(RESTARTING) as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.url, token=cluster.token))
        monkeypatch.syspath_prepend(str(Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"])))
        yield cluster


@pytest.mark.usefixtures("restarting_cluster")
def test_retries_mean_what_they_mean_elsewhere(tmp_path: Path) -> None:
    script = tmp_path / "append.py"
    script.write_text("import sys\nopen(sys.argv[1], 'a').write('x')\nraise LookupError('no such day')\n")
    for retries in (0, 2):
        runs = tmp_path / str(retries)
        runs.mkdir()
        found = run_dag("rerun_cases", {"script": str(script), "runs": str(runs)}, dag_id=f"appending_{retries}")
        assert str(found.state) == "failed"
        assert {path.name: path.read_text() for path in runs.iterdir()} == {
            "script": "x" * (1 + retries),
            "function": "x" * (1 + retries),
        }
