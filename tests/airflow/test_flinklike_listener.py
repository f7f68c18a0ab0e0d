"""The listener in Airflow's API server cancels jobs of tasks without a process."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.runs import run_dag, xcom
from tests.kit.rest.fake_cluster import FakeCluster, fake_cluster

pytestmark = [pytest.mark.usefixtures("metadata_database")]
DAG_ID = "left_alone"
KEPT_FOR_GOOD = "left_to_itself"

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def http() -> Iterator[Any]:
    """The API server's application, with a token of an administrator; the listener is registered as in a server."""
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.listeners.listener import get_listener_manager
    from fastapi.testclient import TestClient

    from airflow_flinklike.listeners import job as listener

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
        listener.watch_deletions()
        client: Any = TestClient(create_app(apps="core"))
        manager = get_listener_manager()
        if not manager.pm.is_registered(listener):
            manager.add_listener(listener)  # type: ignore[no-untyped-call]  # Airflow has no hints here
        token: str = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="admin", role="admin"))
        client.headers["authorization"] = f"Bearer {token}"
        yield client


@dataclass
class Left:
    """A run that has ended, with running jobs."""

    cluster: FakeCluster
    run: Any
    one: str
    kept: str

    @property
    def url(self) -> str:
        return f"/api/v2/dags/{self.run.dag_id}/dagRuns/{self.run.run_id}"

    def states(self) -> tuple[str, str]:
        """Wait for the threads of the listener."""
        for thread in threading.enumerate():
            if thread.name == "flinklike-cancel":
                thread.join(20)
        return self.cluster.jobs[self.one].status, self.cluster.jobs[self.kept].status

    def set_task(self, state: str | None, task_id: str = "one") -> None:
        """Notify the listener as the scheduler does."""
        from airflow.utils.session import create_session

        with create_session() as session:
            (ti,) = [one for one in self.run.get_task_instances(session=session) if one.task_id == task_id]
            ti.state = state

    def end_by_itself(self, state: str, msg: str) -> None:
        """Notify the listener as the scheduler does when the last task of the run has ended."""
        from airflow.utils.session import create_session

        with create_session() as session:
            run = session.merge(self.run)
            run.state = state
            run.notify_dagrun_state_changed(msg)


@pytest.fixture
def dag_id() -> str:
    return DAG_ID


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch, dag_id: str) -> Iterator[Left]:
    monkeypatch.setattr("airflow_flinklike.listeners.job.GRACE_SECONDS", 0.0)
    with fake_cluster() as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json(cluster.url))
        run = run_dag("listener_cases", {}, dag_id=dag_id)
        assert str(run.state) == "success"
        yield Left(cluster, run, xcom(run, "one", "job_id"), xcom(run, "kept", "job_id"))


def test_an_api_server_watches_for_deletions_by_itself() -> None:
    """The plugin's entry point registers the listener, as in `airflow api-server`."""
    program = (
        "import airflow.__main__, airflow.api_fastapi.main\n"
        "from sqlalchemy import event\n"
        "from sqlalchemy.orm import Session\n"
        "from airflow_flinklike.listeners import job as listener\n"
        "assert event.contains(Session, 'before_flush', listener._before_flush)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "_AIRFLOW_PROCESS_CONTEXT"}
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_run_that_is_set_to_failed_takes_its_jobs_along(http: Any, left: Left) -> None:
    assert left.states() == ("RUNNING", "RUNNING")
    answer = http.patch(left.url, json={"state": "failed"})
    assert answer.status_code == 200, answer.text
    assert left.states() == ("CANCELED", "RUNNING"), "unless the task said cancel_on_kill=False"


def test_a_run_that_is_set_to_success_leaves_what_its_tasks_have_finished_with(http: Any, left: Left) -> None:
    assert http.patch(left.url, json={"state": "success"}).status_code == 200
    assert left.states() == ("RUNNING", "RUNNING")
    left.set_task("up_for_retry")
    assert http.patch(left.url, json={"state": "success"}).status_code == 200
    assert left.states() == ("CANCELED", "RUNNING")


def test_a_run_that_is_deleted_takes_its_jobs_along(http: Any, left: Left) -> None:
    assert http.delete(left.url).status_code == 204
    assert left.states() == ("CANCELED", "RUNNING")


def test_a_dag_that_is_deleted_takes_the_jobs_of_all_its_runs_along(http: Any, left: Left) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import delete, func, select

    with create_session() as session:
        session.execute(delete(DagRun).where(DagRun.dag_id == DAG_ID))
        session.rollback()
    assert left.states() == ("RUNNING", "RUNNING"), "it was not deleted after all"
    with create_session() as session:
        session.execute(delete(DagRun).where(DagRun.dag_id == "another"))
    assert left.states() == ("RUNNING", "RUNNING")
    assert http.delete(f"/api/v2/dags/{DAG_ID}").status_code == 204
    with create_session() as session:
        assert session.scalar(select(func.count()).where(DagRun.dag_id == DAG_ID)) == 0
    assert left.states() == ("CANCELED", "RUNNING")


@pytest.mark.parametrize("state", ["failed", "success"])
def test_a_task_between_two_tries_that_is_marked_takes_its_job_along(http: Any, left: Left, state: str) -> None:
    """The worker was lost while the job runs, so Airflow has no process to kill."""
    left.set_task("up_for_retry")
    answer = http.patch(f"{left.url}/taskInstances/one", json={"new_state": state})
    assert answer.status_code == 200, answer.text
    assert left.states() == ("CANCELED", "RUNNING")


def test_a_task_whose_last_try_is_lost_takes_its_job_along(http: Any, left: Left) -> None:
    """The scheduler reports the failure. With a try left, the job runs on."""
    from airflow.listeners.listener import get_listener_manager
    from airflow.utils.session import create_session

    del http
    for state, expected in (("up_for_retry", "RUNNING"), ("failed", "CANCELED")):
        left.set_task(state)
        with create_session() as session:
            (ti,) = [one for one in left.run.get_task_instances(session=session) if one.task_id == "one"]
            hook = get_listener_manager().hook
            hook.on_task_instance_failed(previous_state="running", task_instance=ti, error="lost")
        assert left.states() == (expected, "RUNNING")


@pytest.mark.parametrize(("state", "msg"), [("failed", "task_failure"), ("success", "success")])
def test_a_run_that_has_ended_takes_the_jobs_of_its_failed_tasks_along(
    http: Any, left: Left, state: str, msg: str
) -> None:
    """The process of a task was killed, and no try is left. Jobs of tasks that have succeeded run on."""
    del http
    left.end_by_itself(state, msg)
    assert left.states() == ("RUNNING", "RUNNING")
    for task_id in ("one", "kept"):
        left.set_task("failed", task_id)
    left.end_by_itself(state, msg)
    assert left.states() == ("CANCELED", "RUNNING")


@pytest.mark.parametrize("dag_id", [KEPT_FOR_GOOD])
def test_a_job_without_an_orphan_timeout_outlives_its_failed_task(http: Any, left: Left) -> None:
    for task_id in ("one", "kept"):
        left.set_task("failed", task_id)
    left.end_by_itself("failed", "task_failure")
    assert left.states() == ("CANCELED", "RUNNING")
    assert http.patch(left.url, json={"state": "failed"}).status_code == 200
    assert left.states() == ("CANCELED", "CANCELED"), "a user has said so"


def test_what_is_over_is_not_asked_for(http: Any, left: Left) -> None:
    left.cluster.finish(left.one)
    left.cluster.requests.clear()
    assert http.patch(left.url, json={"state": "failed"}).status_code == 200
    assert left.states()[0] == "FINISHED"
    assert left.cluster.requests == [("GET", "/jobs/overview")]


def test_a_page_does_not_wait_for_a_cluster_that_is_away(
    http: Any, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_flinklike.listeners.job._RETRY_SECONDS", 0.0)
    monkeypatch.setenv("AIRFLOW_CONN_FLINKLIKE_DEFAULT", connection_json("http://127.0.0.1:9"))
    begin = time.monotonic()
    assert http.patch(left.url, json={"state": "failed"}).status_code == 200
    assert left.states() == ("RUNNING", "RUNNING")
    assert time.monotonic() - begin < 20
