"""Tasks of an Airflow without `task_state_store` (below 3.3): the ids that tries choose tell which job is theirs."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_flinklike.exceptions import JobFailedError
from airflow_flinklike.operators.adoption import TaskLife
from airflow_flinklike.task_instance.stored_job import STORE_KEY, parse_stored
from tests.kit.airflow.context import context
from tests.kit.airflow.jobs import submit
from tests.kit.rest.fake_cluster import FakeCluster

STARTED = datetime(2024, 5, 6, tzinfo=UTC)


def seen(try_number: int, *, max_tries: int = 2) -> Any:
    """The context of a try in a run that goes on."""
    found = context(try_number=try_number, max_tries=max_tries, dag_run=SimpleNamespace(start_date=STARTED))
    del found["task_state_store"]
    return found


def begun(rest: FakeCluster, name: str, try_number: int = 1) -> str:
    """The job of a try whose worker died while it waited."""
    job_id: str = submit(name, wait_for_completion=False).execute(seen(try_number))
    rest.requests.clear()
    return job_id


def test_a_retry_adopts_the_running_job_and_stores_it_for_the_listener(rest: FakeCluster) -> None:
    job_id = begun(rest, "hang")
    timer = threading.Timer(0.2, rest.finish, (job_id, 5))
    timer.start()
    for number in (2, 3):  # running, then FINISHED
        again = seen(number)
        assert submit("hang").execute(again) == 5
        stored = parse_stored(again["ti"].xcoms[STORE_KEY])
        assert stored is not None
        assert (stored.job_id, stored.max_tries) == (job_id, 2)
    timer.join()
    assert list(rest.jobs) == [job_id]


def test_the_id_is_an_xcom_before_the_submit(rest: FakeCluster) -> None:
    first = seen(1)

    def die(key: str, value: Any) -> None:
        first["ti"].xcoms[key] = value
        raise KeyboardInterrupt

    first["ti"].xcom_push = die
    with pytest.raises(KeyboardInterrupt):
        submit().execute(first)
    assert not rest.jobs
    submit().execute(seen(2))
    assert list(rest.jobs) == [first["ti"].xcoms[STORE_KEY]["job_id"]], "a submit under way would conflict with it"


def test_each_failed_job_has_a_successor_of_its_own(rest: FakeCluster) -> None:
    for number in (1, 2):
        with pytest.raises(JobFailedError):
            submit("fail").execute(seen(number))
    submit("finish").execute(seen(3))
    life = TaskLife("dag", "manual__1", "run", -1, f"{STARTED.timestamp():.6f}", 2)
    assert list(rest.jobs) == [life.job_id_of(number) for number in (1, 2, 3)]


def test_a_clear_ends_the_running_job_before_it_submits_another(rest: FakeCluster) -> None:
    job_id = begun(rest, "hang")
    submit("finish").execute(seen(2, max_tries=3))
    assert (rest.jobs[job_id].status, len(rest.jobs)) == ("CANCELED", 2)
    posted = [one[0] for one in rest.requests if one[0] == "PATCH" or one == ("POST", "/jobs")]
    assert posted == ["PATCH", "POST"]


def test_a_clear_of_a_finished_task_submits_afresh(rest: FakeCluster) -> None:
    submit("finish").execute(seen(1))
    submit("finish").execute(seen(2, max_tries=3))
    assert len(rest.jobs) == 2
