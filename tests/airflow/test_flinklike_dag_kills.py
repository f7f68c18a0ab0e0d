"""Kills of a task in Airflow's own task runner, which asks Airflow's own API why (in this process, by `dag.test()`)."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.airflow.runs import run_dag, xcom
from tests.kit.rest.fake_cluster import FakeCluster


@pytest.fixture(scope="module")
def database() -> Iterator[None]:
    """A migrated database, without a cluster."""
    from airflow.utils.db import initdb

    before = signal.getsignal(signal.SIGTERM)
    initdb()
    yield
    signal.signal(signal.SIGTERM, before)


def mark(dag_id: str, state: str) -> None:
    """A mark by the UI, as far as the worker sees it."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        changed: Any = session.execute(
            update(TaskInstance)
            .where(TaskInstance.dag_id == dag_id, TaskInstance.state == "running")
            .values(state=state)
        )
        assert changed.rowcount == 1


def run_and_kill(
    rest: FakeCluster, dag_id: str, before: Callable[[], Any] = lambda: None, after: Callable[[], Any] = lambda: None
) -> Any:
    """Run the DAG. At the first look at its job, send SIGTERM, as a supervisor does."""

    def kill() -> None:
        with rest.changed:
            assert rest.changed.wait_for(lambda: any(method == "GET" for method, _ in rest.requests), timeout=120)
        before()
        os.kill(os.getpid(), signal.SIGTERM)
        after()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        return run_dag("kill_cases", {}, dag_id=dag_id)
    finally:
        killer.join()


@pytest.mark.usefixtures("database")
def test_a_task_that_was_marked_cancels_its_job(rest: FakeCluster) -> None:
    dag_id = "marked_while_running"
    run_and_kill(rest, dag_id, lambda: mark(dag_id, "failed"))
    ((job_id, job),) = rest.jobs.items()
    assert (rest.cancels, job.status, rest.heartbeats) == ([job_id], "CANCELED", [])


@pytest.mark.usefixtures("database")
def test_a_task_whose_worker_ends_is_adopted_by_its_retry(rest: FakeCluster) -> None:
    def finish_when_withdrawn() -> None:
        try:
            with rest.changed:
                assert rest.changed.wait_for(lambda: any(not expires for _, expires in rest.heartbeats), timeout=120)
        finally:  # the task waits for its job in the process of this test: it would hang
            rest.finish(next(iter(rest.jobs)), 5)

    found = run_and_kill(rest, "worker_ends", after=finish_when_withdrawn)
    ((job_id, job),) = rest.jobs.items()
    assert (rest.cancels, job.status) == ([], "FINISHED")
    assert [(one, expires == 0) for one, expires in rest.heartbeats] == [(job_id, False), (job_id, True)]
    assert str(found.state) == "success"
    assert xcom(found, "hangs") == 5
