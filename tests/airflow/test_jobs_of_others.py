"""R48 from Airflow: a job of another principal is not the task's, and each operator raises its own error about it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_flinklike.client import FlinklikeClient
from airflow_flinklike.exceptions import AuthenticationError, JobNotFoundError
from airflow_flinklike.operators.adoption import TaskLife
from airflow_flinklike.operators.cancel import FlinklikeCancelOperator
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.sensors.job import FlinklikeJobSensor
from runtime.common.ids import JobId
from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.context import context
from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.slow]

PEOPLE = {"sam": "team-a", "sue": "team-a", "bea": "team-b"}


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster({"taskmanager.spark.enabled": "false"}, job_masters=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tokens(shared_cluster: ScriptCluster) -> dict[str, str]:
    """A token of each submitter."""
    made = {}
    for name, team in PEOPLE.items():
        done = shared_cluster.cli("tokens", "create", name, "--role", "submitter", "--namespace", team)
        assert done.returncode == 0, done.stderr
        made[name] = done.stdout.strip()
    return made


@pytest.fixture(autouse=True)
def _connections(shared_cluster: ScriptCluster, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection for each submitter."""
    for name, token in tokens.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", connection_json(shared_cluster.url, token=token))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "say.py"
    path.write_text("print('here')\n")
    return path


def seen(day: int, try_number: int = 1) -> Any:
    """The context of a task whose life is told by the day."""
    run = SimpleNamespace(start_date=datetime(2024, 5, day, tzinfo=UTC))
    return context(dag_run=run, try_number=try_number)


def run_as(who: str, script: Path, **more: Any) -> FlinklikeSubmitOperator:
    return FlinklikeSubmitOperator(task_id="run", application=str(script), flinklike_conn_id=who, **more)


def id_of(day: int, try_number: int = 1) -> JobId:
    started = f"{datetime(2024, 5, day, tzinfo=UTC).timestamp():.6f}"
    return TaskLife("dag", "manual__1", "run", -1, started, 2).job_id_of(try_number)


def test_an_id_that_somebody_else_has_taken_is_refused(
    shared_cluster: ScriptCluster, tokens: dict[str, str], script: Path
) -> None:
    """A submitter of the same team may see the job; one of another team only learns that the id is taken."""
    run_as("sam", script, name="mine").execute(seen(1))
    with FlinklikeClient([shared_cluster.url], tokens["sam"]) as client:
        assert client.status(id_of(1)).is_own
    for name in ("sue", "bea"):
        with pytest.raises(AuthenticationError, match="is taken by a job of somebody else"):
            run_as(name, script, name="mine").execute(seen(1))


def test_a_job_of_an_earlier_try_that_somebody_else_has_submitted_is_not_adopted(script: Path) -> None:
    run_as("sam", script).execute(seen(2))
    with pytest.raises(AuthenticationError, match="was submitted by somebody else"):
        run_as("sue", script).execute(seen(2, try_number=2))


def test_cancels_and_sensors_say_what_is_wrong(
    shared_cluster: ScriptCluster, tokens: dict[str, str], tmp_path: Path
) -> None:
    gate = tmp_path / "gate.py"
    gate.write_text("import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists():\n    time.sleep(0.05)\n")
    run = run_as("sam", gate, application_args=[str(tmp_path / "open")], wait_for_completion=False)
    job_id = run.execute(seen(3))
    with pytest.raises(AuthenticationError, match="was submitted by somebody else: this takes the role operator"):
        FlinklikeCancelOperator(task_id="c", job_id=job_id, flinklike_conn_id="sue").execute(context())
    with pytest.raises(JobNotFoundError):
        FlinklikeCancelOperator(task_id="c", job_id=job_id, missing_ok=False, flinklike_conn_id="bea").execute(
            context()
        )
    with FlinklikeClient([shared_cluster.url], tokens["sam"]) as client:
        assert not client.status(JobId(job_id)).status.is_globally_terminal, "nobody has cancelled it"
    (tmp_path / "open").touch()
    FlinklikeJobSensor(task_id="s", job_id=job_id, flinklike_conn_id="sue", poke_interval=0.1).execute(context())
    with pytest.raises(Exception, match=f"{job_id}.*not found") as refused:
        FlinklikeJobSensor(task_id="s", job_id=job_id, flinklike_conn_id="bea", poke_interval=0.1).execute(context())
    assert "Traceback" not in json.dumps(str(refused.value))
