"""FlinklikeApplicationOperator: a real cluster for one task, which goes with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike.api.application_cluster import ApplicationJob
from airflow_flinklike.exceptions import LocalClusterError, PipelineError
from airflow_flinklike.operators.application import FlinklikeApplicationOperator
from tests.kit.airflow.runs import run_dag, xcom
from tests.kit.cluster.script_cluster import ROOT
from tests.kit.host.levels import reached
from tests.kit.host.process_tree import carrying

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metadata_database: None) -> Iterator[Path]:
    """Where clusters of the operator have their files; no process of one may be left at the end."""
    del metadata_database
    place = tmp_path / "clusters"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    yield place
    assert living(place) == {}


def living(place: Path) -> dict[int, str]:
    """All processes of clusters in that directory, or that they have started."""
    return {pid: words for one in place.iterdir() for pid, words in carrying("FLINKLIKE_RUN_DIR", f"{one}/run").items()}


def test_the_value_of_the_job_is_the_xcom_and_nothing_is_left(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = run_dag("application_cases", {"count": 4}, dag_id="application_value")
    assert str(run.state) == "success"
    assert xcom(run, "total") == {"sum": 10}
    said = "".join(capfd.readouterr())
    assert "adding 4 numbers" in said
    assert f"/ui/jobs/{xcom(run, 'total', 'job_id')}" in said
    assert list(folder.iterdir()) == []


def test_the_example_counts(folder: Path) -> None:
    run = run_dag("isolated_report", {"text": "To be or not to be"})
    assert str(run.state) == "success"
    assert xcom(run, "count") == {"words": 6, "different": 4}
    assert xcom(run, "share") == 0.67
    assert list(folder.iterdir()) == []


def test_a_failed_job_fails_the_task_with_its_cause(
    tmp_path: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gate").touch()
    given = {"begun": str(tmp_path / "begun"), "gate": str(tmp_path / "gate")}
    run = run_dag("application_cases", given, dag_id="application_script")
    assert str(run.state) == "failed"
    assert "ValueError: no orders" in "".join(capfd.readouterr())
    assert list(folder.iterdir()) == []


def test_a_mistake_in_the_module_is_said_in_the_log(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = run_dag("application_cases", {}, dag_id="application_mistake")
    assert str(run.state) == "failed"
    assert "application_jobs.py has no 'totl'" in "".join(capfd.readouterr())
    assert list(folder.iterdir()) == []


DAGS = Path(__file__).with_name("dag_cases")

TASK = """
import signal, sys
from types import SimpleNamespace
from airflow_flinklike.operators.application import FlinklikeApplicationOperator

class Quiet(FlinklikeApplicationOperator):
    def tell_job(self, context, access, job_id):
        pass  # there is no Airflow around it

folder, *arguments = sys.argv[1:]
operator = Quiet(
    task_id="script", job="application_waits.py", application_args=arguments, directory=folder,
    configuration={"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "1"},
)
signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
operator.execute({"ti": SimpleNamespace()})
"""


@pytest.fixture
def task(tmp_path: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that executes the operator, whose job runs."""
    del folder
    begun = tmp_path / "begun"
    command = [sys.executable, "-c", TASK, str(DAGS), str(begun), str(tmp_path / "never")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            reached(begun.exists, "the script runs")
            yield process
        finally:
            process.kill()


def test_a_killed_task_takes_its_cluster_along(task: subprocess.Popen[str], folder: Path) -> None:
    assert living(folder)
    task.send_signal(signal.SIGTERM)
    _, said = task.communicate(timeout=120)
    assert "WorkerStoppedError: the task was killed: the cluster of its job ends" in said
    reached(lambda: not living(folder), "the cluster has ended")


def test_a_worker_that_dies_takes_its_cluster_along(task: subprocess.Popen[str], folder: Path) -> None:
    assert living(folder)
    task.kill()
    task.communicate(timeout=120)
    reached(lambda: not living(folder), "the cluster has ended")


def test_options_that_end_the_cluster_are_the_operators_own() -> None:
    job = ApplicationJob("etl.py", DAGS, configuration={"execution.shutdown-on-attached-exit": "false"})
    with pytest.raises(LocalClusterError, match="ends with the task: leave this out"):
        job.words()


def test_each_cluster_has_a_name_of_its_own() -> None:
    """By which the driver docker knows what it has started: a retry must not end the containers of another try."""
    key = "high-availability.cluster-id"
    names = {ApplicationJob("etl.py", DAGS).settings()[key] for _ in range(3)}
    assert len(names) == 3
    assert ApplicationJob("etl.py", DAGS, configuration={key: "sales"}).settings()[key] == "sales"
    assert key not in ApplicationJob("etl.py", DAGS, conf_directory="/etc/flinklike").settings()


def test_a_command_line_has_the_options_of_both() -> None:
    job = ApplicationJob(
        "etl.py",
        DAGS,
        options=["--conf", "spark.x=y"],
        arguments=["-D", "a"],
        configuration={"rest.port": "8090"},
        python="/opt/python",
    )
    words = job.words()
    assert words[:6] == ["/opt/python", "-P", "-m", "runtime.entrypoint.control", "standalonejob", "start-foreground"]
    assert words[-7:] == ["--job", "etl.py", "--conf", "spark.x=y", "--", "-D", "a"]
    assert "rest.port=8090" in words
    assert "execution.shutdown-on-attached-exit=true" in words
    with_files = ApplicationJob("etl.py", DAGS, conf_directory="/etc/flinklike").settings()
    assert "rest.port" not in with_files, "a config.yaml of its own says all"


def test_run_options_are_a_list() -> None:
    wrong: Any = "--py-files dep.py"
    with pytest.raises(PipelineError, match="expected a list"):
        FlinklikeApplicationOperator(task_id="task", job="etl.py", run_options=wrong)
