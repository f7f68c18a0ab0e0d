"""Deferral, trigger and sensor against a fake REST endpoint."""

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import BaseSensorOperator, timezone
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSkipException,
    AirflowTaskTimeout,
)

from airflow_flinklike.exceptions import (
    AuthenticationError,
    ClusterUnavailableError,
    JobNotFoundError,
)
from airflow_flinklike.sensors.job import FlinklikeJobSensor
from airflow_flinklike.task_instance.task_log import LOG_LIMIT
from airflow_flinklike.triggers.job import FlinklikeJobTrigger
from tests.kit.airflow.context import context
from tests.kit.airflow.jobs import deferred, started, submit
from tests.kit.rest.fake_cluster import FakeCluster

# --- deferral ---------------------------------------------------------------------------------------------


async def event_of(trigger: FlinklikeJobTrigger) -> dict[str, Any]:
    async for event in trigger.run():
        payload: dict[str, Any] = event.payload
        return payload
    raise AssertionError("no event")


@pytest.mark.asyncio
async def test_a_deferrable_task_comes_back_with_the_value(rest: FakeCluster) -> None:
    rest.results["hang"] = None
    operator = submit("hang", deferrable=True, inline_timeout=0)
    caught = deferred(operator)
    trigger = caught.trigger
    assert isinstance(trigger, FlinklikeJobTrigger)
    assert (caught.method_name, caught.timeout, trigger.deadline_millis) == ("execute_complete", None, None)
    rest.finish(trigger.job_id, {"a": 1})
    event = await event_of(trigger)
    assert event == {
        "reason": "finished",
        "job_id": trigger.job_id,
        "message": "",
        "bookmark": {"state": "FINISHED", "log": {"used": 0, "limit": LOG_LIMIT, "pages": f"{rest.url}/ui/jobs/"}},
    }
    assert submit("hang").execute_complete(context(), event) == {"a": 1}


def test_a_small_job_is_not_deferred(rest: FakeCluster) -> None:
    rest.results["finish"] = 3
    assert submit("finish", deferrable=True).execute(context()) == 3


def test_a_retry_of_a_deferrable_task_adopts_too(rest: FakeCluster) -> None:
    store, job_id = started(rest, "hang")
    caught = deferred(submit("hang", deferrable=True, inline_timeout=0), context(store))
    assert caught.trigger.job_id == job_id


def test_the_execution_timeout_travels_with_the_trigger(rest: FakeCluster) -> None:
    caught = deferred(
        submit("hang", deferrable=True, inline_timeout=0, execution_timeout=timedelta(seconds=30)), context()
    )
    trigger: Any = caught.trigger
    assert trigger.deadline_millis is not None
    assert caught.timeout == timedelta(seconds=330)
    operator = submit("hang", execution_timeout=timedelta(seconds=30))
    with pytest.raises(AirflowTaskTimeout, match=r"execution_timeout 0:00:30 is over: job \w+ was cancelled"):
        operator.execute_complete(context(), {"reason": "timeout", "job_id": trigger.job_id})
    assert rest.cancels == [trigger.job_id]


def test_the_deadline_counts_from_the_start_of_the_task(rest: FakeCluster) -> None:
    del rest
    seen = context()
    seen["ti"].start_date = timezone.utcnow() - timedelta(seconds=20)
    caught = deferred(submit("hang", deferrable=True, inline_timeout=0, execution_timeout=timedelta(seconds=30)), seen)
    trigger: Any = caught.trigger
    assert trigger.deadline_millis == int((seen["ti"].start_date.timestamp() + 30) * 1000)
    assert caught.timeout is not None
    assert timedelta(seconds=300) < caught.timeout <= timedelta(seconds=310)


def test_the_poll_interval_travels_with_the_trigger(rest: FakeCluster) -> None:
    del rest
    trigger: Any = deferred(submit("hang", deferrable=True, inline_timeout=0, poll_interval=7)).trigger
    assert trigger.poll_interval == 7


@pytest.mark.parametrize("seconds", [0, -1])
def test_polls_without_a_pause_are_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"poll_interval is .*: it must be above 0"):
        submit(poll_interval=seconds)
    with pytest.raises(ValueError, match=r"poll_interval is .*: it must be above 0"):
        FlinklikeJobTrigger("a" * 32, "c", poll_interval=seconds)


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("not_found", JobNotFoundError),
        ("unauthenticated", AuthenticationError),
        ("no_connection", AirflowNotFoundException),
        ("error", ClusterUnavailableError),
    ],
)
def test_other_events_raise(rest: FakeCluster, reason: str, error: type[Exception]) -> None:
    """The trigger fires with the error that a waiting worker would raise. The next try adopts the job."""
    with pytest.raises(error, match="what happened"):
        submit().execute_complete(context(), {"reason": reason, "job_id": "c" * 32, "message": "what happened"})
    assert [one for one, _ in rest.heartbeats] == ["c" * 32]


@pytest.mark.asyncio
@pytest.mark.parametrize(("name", "reason"), [("finish", "finished"), ("fail", "failed")])
async def test_the_trigger_says_how_the_job_ended(rest: FakeCluster, name: str, reason: str) -> None:
    _, job_id = started(rest, name)
    assert (await event_of(FlinklikeJobTrigger(job_id, "flinklike_default")))["reason"] == reason


@pytest.mark.asyncio
@pytest.mark.parametrize("consent", [True, False])
async def test_the_trigger_ends_at_its_deadline(rest: FakeCluster, *, consent: bool) -> None:
    """The trigger cancels the job, since a worker slot may not be free for long."""
    _, job_id = started(rest, "hang")
    trigger = FlinklikeJobTrigger(job_id, "flinklike_default", deadline_millis=0, cancel_on_kill=consent)
    assert (await event_of(trigger))["reason"] == "timeout"
    assert rest.cancels == ([job_id] if consent else [])


@pytest.mark.asyncio
async def test_the_trigger_reports_a_job_that_is_unknown(rest: FakeCluster) -> None:
    del rest
    event = await event_of(FlinklikeJobTrigger("d" * 32, "flinklike_default"))
    assert (event["reason"], event["message"]) == ("not_found", f"Job {'d' * 32} not found")


@pytest.mark.asyncio
async def test_the_trigger_reports_a_wrong_token_and_a_missing_connection(
    rest: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = json.dumps({"conn_type": "flinklike", "host": rest.url, "password": "wrong"})
    monkeypatch.setenv("AIRFLOW_CONN_WRONG", wrong.replace("http://", ""))
    event = await event_of(FlinklikeJobTrigger("d" * 32, "wrong"))
    assert (event["reason"], event["message"]) == ("unauthenticated", "the cluster's token is missing or wrong")
    event = await event_of(FlinklikeJobTrigger("d" * 32, "nobody_made_it"))
    assert event["reason"] == "no_connection"
    assert "nobody_made_it" in event["message"]


def test_triggers_survive_serialization() -> None:
    trigger = FlinklikeJobTrigger(
        "a" * 32, "c", cancel_on_kill=True, deadline_millis=5, poll_interval=3.0, bookmark={"state": "RUNNING"}
    )
    path, kwargs = trigger.serialize()
    from airflow.sdk._shared.module_loading import import_string
    from airflow.sdk.serde import deserialize, serialize

    assert deserialize(serialize(kwargs)) == kwargs
    assert import_string(path)(**kwargs).serialize() == (path, kwargs)


# --- sensor -----------------------------------------------------------------------------------------------


def sensor(job_id: str, **fields: Any) -> FlinklikeJobSensor:
    return FlinklikeJobSensor(**{"task_id": "wait", "job_id": job_id, "poke_interval": 0.05, **fields})


def test_the_sensor_returns_the_value(rest: FakeCluster) -> None:
    _, job_id = started(rest, "hang")
    timer = threading.Timer(0.2, rest.finish, (job_id, [3]))
    timer.start()
    seen = context()
    assert sensor(job_id).execute(seen) == [3]
    timer.join()
    assert seen["ti"].xcoms["job_url"].endswith(f"/ui/jobs/{job_id}")


def test_the_sensor_fails_without_retry_when_the_job_did(rest: FakeCluster) -> None:
    _, job_id = started(rest, "fail")
    with pytest.raises(AirflowFailException, match="ValueError: no rows"):
        sensor(job_id).execute(context())
    with pytest.raises(AirflowFailException, match="is not a job id"):
        sensor("xyz").execute(context())


def test_the_deferrable_sensor_looks_once_and_leaves_the_job_alone(rest: FakeCluster) -> None:
    _, job_id = started(rest, "hang")
    operator = sensor(job_id, deferrable=True, timeout=60)
    caught = deferred(operator)
    trigger: Any = caught.trigger
    assert (trigger.cancel_on_kill, caught.timeout) == (False, timedelta(seconds=60))
    rest.finish(job_id, "x")
    assert deferred_value(operator, job_id) == "x"
    assert sensor(job_id, deferrable=True).execute(context()) == "x"
    assert isinstance(operator, BaseSensorOperator)


@pytest.mark.parametrize("deferrable", [True, False])
def test_a_job_that_failed_is_a_skip_where_that_is_wanted(rest: FakeCluster, *, deferrable: bool) -> None:
    _, job_id = started(rest, "fail")
    for option in ("soft_fail", "never_fail"):
        with pytest.raises(AirflowSkipException):
            sensor(job_id, deferrable=deferrable, **{option: True}).execute(context())


def test_an_unknown_job_is_one_error_in_both_modes(rest: FakeCluster) -> None:
    del rest
    event = {"reason": "not_found", "job_id": "d" * 32, "message": "gone"}
    for deferrable in (True, False):
        with pytest.raises(JobNotFoundError):
            sensor("d" * 32, deferrable=deferrable).execute(context())
    with pytest.raises(JobNotFoundError, match="gone"):
        sensor("d" * 32).execute_complete(context(), event)


@pytest.mark.parametrize("reason", ["not_found", "unauthenticated", "error"])
def test_never_fail_holds_after_the_deferral_too(reason: str) -> None:
    event = {"reason": reason, "job_id": "d" * 32, "message": "what happened"}
    with pytest.raises(AirflowSkipException, match="what happened"):
        sensor("d" * 32, never_fail=True).execute_complete(context(), event)


def deferred_value(operator: FlinklikeJobSensor, job_id: str) -> Any:
    return operator.execute_complete(context(), {"reason": "finished", "job_id": job_id, "message": ""})
