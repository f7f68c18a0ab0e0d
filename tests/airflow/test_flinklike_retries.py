"""Which errors Airflow retries: by their types, and by the rules of the task's policy."""

import pickle
from typing import Any

import pytest
from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowFailException

from airflow_flinklike.exceptions import FlinklikeClientError, JobFailedError, JobRefusedError, PipelineError
from tests.kit.airflow.context import context
from tests.kit.airflow.jobs import started, submit
from tests.kit.rest.fake_cluster import FakeCluster

RETRY_FAILED = ExceptionRetryPolicy(rules=[RetryRule(exception=JobFailedError, action=RetryAction.RETRY)])
RETRY_OTHERS = ExceptionRetryPolicy(rules=[RetryRule(exception=KeyError, action=RetryAction.RETRY)])
FAIL_FAILED = ExceptionRetryPolicy(
    rules=[RetryRule(exception="airflow_flinklike.exceptions.JobFailedError", action=RetryAction.FAIL)]
)


def fails_with(rest: FakeCluster, **failure: Any) -> None:
    """The failure of every job."""
    original = rest.execution_result

    def changed(job_id: str, wait: float) -> tuple[int, Any]:
        status, body = original(job_id, wait)
        body["job-execution-result"]["failure-cause"].update(failure)
        return status, body

    rest.execution_result = changed  # type: ignore[method-assign]  # what the cluster says of the failure


def refuses(rest: FakeCluster) -> None:
    rest.submit = lambda body: (400, {"errors": ["static conf spark.master", "no such profile"]})  # type: ignore[method-assign]  # as a cluster without it


def error_of(**fields: Any) -> FlinklikeClientError:
    with pytest.raises(FlinklikeClientError) as caught:
        submit("fail", **fields).execute(context())
    return caught.value


def test_a_job_that_failed_may_be_retried(rest: FakeCluster) -> None:
    del rest
    error = error_of()
    assert isinstance(error, JobFailedError)
    assert not isinstance(error, AirflowFailException)
    assert (error.is_recoverable, error.labels) == (True, {"kind": "USER"})


def test_a_job_that_would_fail_again_is_not_retried(rest: FakeCluster) -> None:
    fails_with(rest, recoverable=False, **{"failure-labels": {"type": "USER", "team": "sales"}})
    error = error_of()
    assert isinstance(error, JobFailedError)
    assert isinstance(error, AirflowFailException)
    assert str(error).startswith("ValueError: no rows\n")
    assert error.labels == {"kind": "USER", "type": "USER", "team": "sales"}
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.labels) == (type(error), str(error), error.labels)


def test_what_the_cluster_could_not_go_on_with_may_be_retried(rest: FakeCluster) -> None:
    """The TaskManager of an exclusive task was lost, so another run may succeed."""
    fails_with(rest, recoverable=False, kind="SYSTEM")
    assert not isinstance(error_of(), AirflowFailException)


def test_after_the_deferral_it_is_the_same(rest: FakeCluster) -> None:
    fails_with(rest, recoverable=False)
    _, job_id = started(rest, "fail")
    event = {"reason": "failed", "job_id": job_id, "message": ""}
    with pytest.raises(JobFailedError) as caught:
        submit("fail").execute_complete(context(), event)
    assert isinstance(caught.value, AirflowFailException)


def test_a_refused_job_is_not_retried(rest: FakeCluster) -> None:
    refuses(rest)
    error = error_of()
    assert isinstance(error, JobRefusedError)
    assert isinstance(error, AirflowFailException)
    assert error.problems == ("static conf spark.master", "no such profile")
    assert not rest.heartbeats, "there is no job to come back for"


def test_a_job_that_is_described_wrongly_is_not_retried(rest: FakeCluster) -> None:
    error = error_of(pipeline=lambda: 1)
    assert isinstance(error, PipelineError)
    assert isinstance(error, AirflowFailException)
    assert "expected a Pipeline" in str(error)
    assert not rest.jobs


@pytest.mark.parametrize(
    "fields",
    [
        {"pipeline": "no/such/file.py:job"},
        {"pipeline": "no_such_module:job"},
        {"pipeline": None, "application": "no/such/file.py"},
        {"pipeline": None, "application": __file__, "properties_file": "no/such/file.conf"},
    ],
)
def test_code_that_is_not_there_may_be_there_for_another_try(rest: FakeCluster, fields: dict[str, Any]) -> None:
    error = error_of(**fields)
    assert isinstance(error, PipelineError)
    assert not isinstance(error, AirflowFailException)
    assert not rest.jobs


@pytest.mark.parametrize(("policy", "is_final"), [(RETRY_FAILED, False), (FAIL_FAILED, False), (RETRY_OTHERS, True)])
def test_the_rules_of_the_task_come_first(rest: FakeCluster, policy: Any, *, is_final: bool) -> None:
    """Airflow asks a policy only about errors that it may retry. A policy without a rule changes nothing."""
    fails_with(rest, recoverable=False)
    error = error_of(retry_policy=policy)
    assert isinstance(error, JobFailedError)
    assert isinstance(error, AirflowFailException) is is_final
