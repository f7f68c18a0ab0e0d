"""Savepoints and stops of streaming jobs: asked for once over all tries of a task, in the worker or deferred."""

import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_flinklike.exceptions import JobConflictError, PipelineError, SavepointFailedError
from airflow_flinklike.operators.final_errors import FinalJobConflictError, FinalJobNotFoundError
from airflow_flinklike.operators.savepoint import FlinklikeSavepointOperator, FlinklikeStopOperator
from airflow_flinklike.triggers.savepoint import FlinklikeSavepointTrigger
from tests.kit.airflow.context import context
from tests.kit.airflow.jobs import deferred
from tests.kit.rest.fake_cluster import FakeCluster, FakeJob

JOB = "a" * 32


@pytest.fixture
def job(rest: FakeCluster) -> FakeJob:
    rest.jobs[JOB] = FakeJob({"name": "orders"}, "")
    return rest.jobs[JOB]


def savepoint(**fields: Any) -> FlinklikeSavepointOperator:
    return FlinklikeSavepointOperator(**{"task_id": "run", "job": JOB, "directory": "/shared", **fields})


def stop(**fields: Any) -> FlinklikeStopOperator:
    return FlinklikeStopOperator(**{"task_id": "run", "job": JOB, "savepoint": "/shared", **fields})


def triggered(rest: FakeCluster) -> int:
    return sum(method == "POST" and path.endswith(("/savepoints", "/stop")) for method, path in rest.requests)


async def payload_of(trigger: Any) -> dict[str, Any]:
    (payload,) = [event.payload async for event in trigger.run()]
    return {**payload}


def test_a_savepoint_is_the_value_of_its_task(rest: FakeCluster, job: FakeJob) -> None:
    seen = context()
    assert savepoint().execute(seen) == f"/shared/savepoint-{JOB[:6]}-1"
    assert seen["ti"].xcoms["job_id"] == JOB
    assert (job.status, triggered(rest)) == ("RUNNING", 1)


def test_a_stop_ends_the_job(job: FakeJob) -> None:
    assert stop(drain=True).execute(context()) == f"/shared/savepoint-{JOB[:6]}-1"
    (asked,) = job.operations.values()
    assert (job.status, asked["kind"], asked["drain"]) == ("FINISHED", "stop", True)


def test_a_retry_finds_what_the_try_before_has_asked_for(rest: FakeCluster, job: FakeJob) -> None:
    location = stop().execute(context())
    assert stop().execute(context(try_number=2)) == location, "the job has ended since"
    assert (triggered(rest), len(job.operations)) == (1, 1)


def test_a_retry_waits_for_what_a_worker_that_died_has_asked_for(rest: FakeCluster, job: FakeJob) -> None:
    rest.savepoint_outcomes = ["-"]
    deferred(stop(deferrable=True))  # the worker is gone
    (trigger_id,) = job.operations
    timer = threading.Timer(0.3, rest.complete, (JOB, trigger_id))
    timer.start()
    assert stop().execute(context(try_number=2)).startswith("/shared/")
    timer.join()
    assert len(job.operations) == 1


def test_a_retry_after_a_failure_asks_again(rest: FakeCluster, job: FakeJob) -> None:
    rest.savepoint_outcomes = ["no space left"]
    with pytest.raises(SavepointFailedError, match="no space left"):
        stop().execute(context())
    assert job.status == "RUNNING"
    assert stop().execute(context(try_number=2)).startswith("/shared/")
    assert len(job.operations) == 2


def test_a_clear_another_run_and_another_task_ask_for_their_own(job: FakeJob) -> None:
    run = SimpleNamespace(start_date=datetime(2026, 11, 1, tzinfo=UTC))
    savepoint().execute(context(dag_run=run))
    savepoint().execute(context(dag_run=run, max_tries=5))
    other = context(dag_run=run)
    other["ti"].run_id = "scheduled__2"
    savepoint().execute(other)
    assert len(job.operations) == 3


@pytest.mark.asyncio
async def test_a_deferred_task_comes_back_with_the_savepoint(rest: FakeCluster, job: FakeJob) -> None:
    rest.savepoint_outcomes = ["-"]
    operator = stop(deferrable=True, poll_interval=0.1)
    caught = deferred(operator)
    trigger: Any = caught.trigger
    assert isinstance(trigger, FlinklikeSavepointTrigger)
    path, arguments = trigger.serialize()
    assert path.endswith(".FlinklikeSavepointTrigger")
    trigger = FlinklikeSavepointTrigger(**arguments)
    timer = threading.Timer(0.3, rest.complete, (JOB, trigger.trigger_id))
    timer.start()
    event = await payload_of(trigger)
    timer.join()
    assert (event["verdict"], job.status) == ("reached", "FINISHED")
    assert operator.execute_complete(context(), event).startswith("/shared/")


@pytest.mark.asyncio
async def test_a_deferred_task_fails_as_a_waiting_one_does(rest: FakeCluster, job: FakeJob) -> None:
    rest.savepoint_outcomes = ["a query failed"]
    operator = savepoint(deferrable=True, poll_interval=0.1)
    trigger: Any = deferred(operator).trigger
    event = await payload_of(trigger)
    with pytest.raises(SavepointFailedError, match="a query failed"):
        operator.execute_complete(context(), event)
    assert job.status == "RUNNING"


@pytest.mark.parametrize("make", [stop, savepoint])
def test_a_job_that_has_ended_otherwise_fails_without_a_retry(job: FakeJob, make: Any) -> None:
    job.status = "CANCELED"
    with pytest.raises(FinalJobConflictError, match="already ended"):
        make().execute(context())


@pytest.mark.parametrize("make", [stop, savepoint])
def test_a_job_that_nobody_knows_fails_without_a_retry(rest: FakeCluster, make: Any) -> None:
    with pytest.raises(FinalJobNotFoundError, match=JOB):
        make().execute(context())
    assert isinstance(FinalJobNotFoundError(""), AirflowFailException)
    assert triggered(rest) == 1


def test_a_job_that_is_stopped_by_somebody_else_is_tried_again(rest: FakeCluster, job: FakeJob) -> None:
    rest.savepoint_outcomes = ["-"]
    deferred(stop(deferrable=True))
    other = context()
    other["ti"].run_id = "scheduled__2"
    with pytest.raises(JobConflictError, match="is being stopped") as refused:
        stop().execute(other)
    assert not isinstance(refused.value, AirflowFailException)


@pytest.mark.parametrize("rendered", ["", "None", "nightly"])
def test_what_is_no_job_fails_without_a_retry(rendered: str) -> None:
    with pytest.raises(AirflowFailException, match="task 'run': job is "):
        stop(job=rendered).execute(context())


@pytest.mark.parametrize("directory", ["savepoints", "s3://bucket/savepoints", "/a/../b"])
def test_a_directory_that_is_none_is_refused_when_the_dag_is_parsed(directory: str) -> None:
    for make in (lambda: savepoint(directory=directory), lambda: stop(savepoint=directory)):
        with pytest.raises(PipelineError, match=r"task 'run': .*absolute path"):
            make()
    assert stop(savepoint="{{ var.value.savepoints }}").savepoint


def test_drain_is_a_truth_value() -> None:
    with pytest.raises(PipelineError, match="drain is 'yes'"):
        stop(drain="yes")
