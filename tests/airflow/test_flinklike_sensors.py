"""Sensors and the cancel operator against a fake REST endpoint: in a worker, rescheduled, deferred."""

import asyncio
import copy
import threading
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, AirflowSensorTimeout

from airflow_flinklike.exceptions import ClusterUnavailableError, JobNotFoundError
from airflow_flinklike.operators.cancel import FlinklikeCancelOperator
from airflow_flinklike.sensors import job
from airflow_flinklike.sensors.cluster import FlinklikeClusterSensor
from airflow_flinklike.sensors.job import FlinklikeJobSensor
from airflow_flinklike.triggers.job import FlinklikeJobTrigger
from airflow_flinklike.triggers.sensing import FlinklikeClusterTrigger, FlinklikeJobStateTrigger
from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.context import context
from tests.kit.airflow.jobs import deferred, started
from tests.kit.control_plane.plane import eventually
from tests.kit.host.heard import Heard
from tests.kit.rest.fake_cluster import FakeCluster, FakeJob

JOB, OTHER = "a" * 32, "b" * 32


def put(rest: FakeCluster, job_id: str, status: str, *passed: str, name: str = "etl", started_at: int = 5) -> None:
    with rest.changed:
        modified = rest.jobs[job_id].modified + 1 if job_id in rest.jobs else 1
        rest.jobs[job_id] = FakeJob({"name": name}, "", status, modified, started=started_at, passed=list(passed))
        rest.changed.notify_all()


def sensor(**fields: Any) -> FlinklikeJobSensor:
    return FlinklikeJobSensor(**{"task_id": "wait", "poke_interval": 0.05, "timeout": 20, **fields})


def rescheduling(operator: Any) -> Any:
    seen = context()
    seen["ti"].get_first_reschedule_date = lambda _: None
    return operator.execute(seen)


async def payload_of(trigger: Any) -> dict[str, Any]:
    (payload,) = [event.payload async for event in trigger.run()]
    return {**payload}


# --- jobs -------------------------------------------------------------------------------------------------


def test_a_state_before_the_end_is_enough(rest: FakeCluster) -> None:
    put(rest, JOB, "CREATED")
    timer = threading.Timer(0.2, put, (rest, JOB, "RUNNING"))
    timer.start()
    seen = context()
    assert sensor(job_id=JOB, target_states="RUNNING").execute(seen) == "RUNNING"
    timer.join()
    assert seen["ti"].xcoms["job_id"] == JOB


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """The lines of the sensor and of its trigger."""
    made = Heard()
    monkeypatch.setattr(FlinklikeJobSensor, "log", made.log)
    monkeypatch.setattr(FlinklikeJobTrigger, "log", made.log)
    monkeypatch.setattr(job, "now_seconds", made.clock)
    return made


def test_the_output_of_the_job_shows_while_it_runs(rest: FakeCluster, heard: Heard) -> None:
    put(rest, JOB, "RUNNING")
    operator = sensor(job_id=JOB, log_limit=1000)
    assert not operator.poke(context()).is_done
    heard.now += 60.0
    rest.write(JOB, b"first\n")
    assert not operator.poke(context()).is_done
    assert heard.lines == [f"Job {JOB}: RUNNING", "==> read stdout", "first"]
    heard.now += 0.1
    rest.write(JOB, b"last\n")
    rest.finish(JOB)
    assert operator.poke(context()).is_done
    assert heard.lines[3:] == [f"Job {JOB}: FINISHED", "last"]


@pytest.mark.parametrize("event", [{"verdict": "reached"}, {"reason": "finished", "bookmark": {"state": "FINISHED"}}])
@pytest.mark.parametrize("log_limit", [0, 1000])
def test_what_was_written_before_a_deferral_shows_at_the_end(
    rest: FakeCluster, heard: Heard, event: dict[str, Any], *, log_limit: int
) -> None:
    put(rest, JOB, "FINISHED")
    rest.write(JOB, b"all\n")
    sensor(job_id=JOB, log_limit=log_limit).execute_complete(context(), {"job_id": JOB, **event})
    assert ("all" in heard.lines) is bool(log_limit)
    assert (f"Job {JOB}: FINISHED" in heard.lines) is ("verdict" in event), "unless the trigger has said so"


@pytest.mark.asyncio
async def test_a_deferral_for_an_end_repeats_no_line(rest: FakeCluster, heard: Heard) -> None:
    put(rest, JOB, "RUNNING")
    rest.write(JOB, b"first\n")
    operator = sensor(job_id=JOB, deferrable=True, log_limit=1000)
    trigger: Any = deferred(operator).trigger
    rest.write(JOB, b"last\n")
    rest.finish(JOB)
    event = await payload_of(trigger)
    sensor(job_id=JOB, log_limit=1000).execute_complete(context(), event)
    states = [f"Job {JOB}: {state}" for state in ("RUNNING", "FINISHED")]
    assert heard.lines == [*states, "==> read stdout", "first", "last"]


@pytest.mark.parametrize("fields", [{}, {"xcom_limit": None}, {"do_xcom_push": False}])
def test_a_value_above_the_limit_fails_without_a_retry(rest: FakeCluster, fields: dict[str, Any]) -> None:
    put(rest, JOB, "FINISHED")
    value = rest.jobs[JOB].result = "x" * 50_000
    operator = sensor(job_id=JOB, **fields)
    if fields:
        assert operator.execute(context()) == value
        return
    with pytest.raises(AirflowFailException, match=r"50002 bytes, and xcom_limit is 49152: have the job write it"):
        operator.execute(context())
    with pytest.raises(AirflowFailException, match="xcom_limit"):
        operator.execute_complete(context(), {"verdict": "reached", "job_id": JOB})


def test_a_state_that_was_passed_counts_and_the_value_is_there(rest: FakeCluster) -> None:
    put(rest, JOB, "FINISHED", "RUNNING")
    rest.jobs[JOB].result = [1]
    assert sensor(job_id=JOB, target_states=["RUNNING"]).execute(context()) == [1]


def test_a_failure_may_be_what_is_waited_for(rest: FakeCluster) -> None:
    put(rest, JOB, "FAILED")
    assert sensor(job_id=JOB, target_states=["FAILED", "CANCELED"]).execute(context()) == "FAILED"
    put(rest, JOB, "FINISHED")
    with pytest.raises(AirflowFailException, match="is FINISHED and never was CANCELED, FAILED"):
        sensor(job_id=JOB, target_states=["FAILED", "CANCELED"]).execute(context())


def test_a_job_by_its_name_is_waited_for_from_before_it_is_there(rest: FakeCluster) -> None:
    timer = threading.Timer(0.2, put, (rest, JOB, "FINISHED"))
    timer.start()
    seen = context()
    assert sensor(job_name="etl").execute(seen) is None
    timer.join()
    assert seen["ti"].xcoms["job_url"].endswith(f"/ui/jobs/{JOB}")


def test_fields_are_templates(rest: FakeCluster) -> None:
    put(rest, OTHER, "FINISHED", name="etl 2024-05-06", started_at=1)
    put(rest, JOB, "RUNNING", name="etl 2024-05-06", started_at=1_714_953_600_000)
    operator = sensor(job_name="etl {{ ds }}", started_after="{{ ds }}", target_states="{{ params.state }}")
    seen = context(params={"state": "RUNNING"})
    operator.render_template_fields(seen)
    assert operator.execute(seen) == "RUNNING"


@pytest.mark.parametrize("fields", [{}, {"job_id": JOB, "job_name": "x"}, {"job_id": JOB, "target_states": "DONE"}])
def test_what_cannot_be_meant_fails_without_retry(rest: FakeCluster, fields: dict[str, Any]) -> None:
    del rest
    with pytest.raises(AirflowFailException, match="task 'wait': "):
        sensor(**fields).execute(context())


def test_a_sensor_may_be_copied_and_used_again(rest: FakeCluster) -> None:
    put(rest, JOB, "FINISHED")
    operator = sensor(job_id=JOB, log_limit=1000)
    for _ in range(2):
        seen = context()
        operator.execute(seen)
        assert seen["ti"].xcoms["job_id"] == JOB
        operator = copy.deepcopy(operator)


def test_a_rescheduled_sensor_gives_its_slot_back(rest: FakeCluster) -> None:
    put(rest, JOB, "RUNNING")
    operator = sensor(job_id=JOB, mode="reschedule", poke_interval=60)
    with pytest.raises(AirflowRescheduleException):
        rescheduling(operator)
    put(rest, JOB, "FINISHED")
    rest.jobs[JOB].result = 7
    assert rescheduling(operator) == 7
    assert not any("wait=" in path and "status" in path for _, path in rest.requests)


def test_a_sensor_times_out(rest: FakeCluster) -> None:
    put(rest, JOB, "RUNNING")
    with pytest.raises(AirflowSensorTimeout):
        sensor(job_id=JOB, timeout=0, target_states="FINISHED").execute(context())


def test_an_end_is_left_to_the_shared_trigger_and_anything_else_to_the_sensors_own(rest: FakeCluster) -> None:
    put(rest, JOB, "RUNNING")
    ends = deferred(sensor(job_id=JOB, deferrable=True))
    assert isinstance(ends.trigger, FlinklikeJobTrigger)
    assert not ends.trigger.cancel_on_kill
    put(rest, JOB, "CREATED")
    for fields in ({"job_id": JOB, "target_states": "RUNNING"}, {"job_name": "nobody"}):
        caught = deferred(sensor(deferrable=True, **fields))
        assert isinstance(caught.trigger, FlinklikeJobStateTrigger)
        assert (caught.method_name, caught.timeout) == ("execute_complete", timedelta(seconds=20))


@pytest.mark.asyncio
async def test_a_deferred_sensor_comes_back_with_the_value(rest: FakeCluster) -> None:
    operator = sensor(job_name="etl", deferrable=True)
    trigger = deferred(operator).trigger
    trigger.poll_interval = 0.1
    moves = [threading.Timer(0.2, put, (rest, JOB, "RUNNING")), threading.Timer(0.5, put, (rest, JOB, "FINISHED"))]
    for move in moves:
        move.start()
    event = await payload_of(trigger)
    assert event == {"verdict": "reached", "job_id": JOB}
    rest.jobs[JOB].result = {"rows": 1}
    seen = context()
    assert operator.execute_complete(seen, event) == {"rows": 1}
    assert seen["ti"].xcoms["job_id"] == JOB


@pytest.mark.asyncio
async def test_a_deferred_sensor_hears_that_it_waits_in_vain(rest: FakeCluster) -> None:
    put(rest, JOB, "CANCELED")
    trigger = FlinklikeJobStateTrigger("flinklike_default", target_states=["RUNNING"], job_id=JOB)
    event = await payload_of(trigger)
    assert event["verdict"] == "missed"
    with pytest.raises(AirflowFailException, match="was canceled"):
        sensor(job_id=JOB, target_states="RUNNING").execute_complete(context(), event)


@pytest.mark.asyncio
async def test_triggers_of_sensors_share_connections_and_looks(rest: FakeCluster) -> None:
    """Any number of sensors costs one request for each list, and one poll."""
    put(rest, JOB, "CREATED")
    wanted: dict[str, Any] = {"flinklike_conn_id": "flinklike_default", "target_states": ["RUNNING"]}
    named = [FlinklikeJobStateTrigger(**wanted, job_name="etl") for _ in range(50)]
    known = [FlinklikeJobStateTrigger(**wanted, job_id=JOB) for _ in range(50)]
    rooms = [FlinklikeClusterTrigger("flinklike_default", free_slots=1) for _ in range(50)]
    with rest.changed:
        rest.peers.clear()
        rest.requests.clear()
    waiting = [asyncio.ensure_future(payload_of(one)) for one in (*named, *known)]
    assert {one["free_slots"] for one in await asyncio.gather(*map(payload_of, rooms))} == {3}
    await eventually(lambda: any(path == "/jobs/wait" for _, path in rest.requests))
    put(rest, JOB, "RUNNING")
    assert {one["job_id"] for one in await asyncio.gather(*waiting)} == {JOB}
    paths = [path for _, path in rest.requests]
    assert (paths.count("/jobs/overview"), paths.count("/taskmanagers")) == (1, 1)
    assert set(paths) == {"/jobs/overview", "/taskmanagers", "/jobs/wait"}
    assert len(rest.peers) <= 4, "a connection for each request that is under way"


def test_the_end_that_the_shared_trigger_tells_is_judged_too(rest: FakeCluster) -> None:
    put(rest, JOB, "CANCELED")
    event = {"reason": "canceled", "job_id": JOB, "message": ""}
    assert sensor(job_id=JOB, target_states="CANCELED").execute_complete(context(), event) == "CANCELED"
    with pytest.raises(AirflowFailException, match="was canceled"):
        sensor(job_id=JOB).execute_complete(context(), event)


@pytest.mark.asyncio
async def test_a_trigger_says_why_it_cannot_go_on(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    event = await payload_of(FlinklikeJobStateTrigger("flinklike_default", target_states=["RUNNING"], job_id=JOB))
    assert event == {"reason": "not_found", "message": f"Job {JOB} not found"}
    with pytest.raises(JobNotFoundError, match="not found"):
        sensor(job_id=JOB).execute_complete(context(), event)
    monkeypatch.setenv("AIRFLOW_CONN_WRONG", connection_json(rest.url, token="wrong"))
    assert (await payload_of(FlinklikeClusterTrigger("wrong")))["reason"] == "unauthenticated"
    assert (await payload_of(FlinklikeClusterTrigger("nobody_made_it")))["reason"] == "no_connection"


@pytest.mark.parametrize(
    "trigger",
    [
        FlinklikeJobStateTrigger("c", target_states=["RUNNING"], job_id=JOB, poll_interval=2.0),
        FlinklikeJobStateTrigger("c", target_states=["FAILED"], job_name="etl", started_after_millis=5),
        FlinklikeClusterTrigger("c", free_slots=3, has_spark=True, spark_profile="big", poll_interval=2.0),
    ],
)
def test_triggers_survive_serialization(trigger: Any) -> None:
    path, kwargs = trigger.serialize()
    from airflow.sdk._shared.module_loading import import_string
    from airflow.sdk.serde import deserialize, serialize

    assert deserialize(serialize(kwargs)) == kwargs
    assert import_string(path)(**kwargs).serialize() == (path, kwargs)


# --- the cluster --------------------------------------------------------------------------------------------


def room(**fields: Any) -> FlinklikeClusterSensor:
    return FlinklikeClusterSensor(**{"task_id": "room", "poke_interval": 0.05, "timeout": 20, **fields})


def test_room_is_there_or_comes(rest: FakeCluster) -> None:
    assert room(free_slots=3, spark=True).execute(context()) == 3
    operator = room(free_slots="{{ params.n }}")
    operator.render_template_fields(context(params={"n": 4}))
    more = {"id": "tm-2", "freeSlots": 2, "spark": False, "state": "ready"}
    timer = threading.Timer(0.2, rest.task_managers.append, (more,))
    timer.start()
    assert operator.execute(context()) == 5
    timer.join()


def test_a_cluster_that_is_away_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", connection_json("http://127.0.0.1:9"))
    with pytest.raises(AirflowSensorTimeout):
        room(flinklike_conn_id="away", timeout=0).execute(context())
    assert isinstance(deferred(room(flinklike_conn_id="away", deferrable=True)).trigger, FlinklikeClusterTrigger)


def test_a_number_is_a_number(rest: FakeCluster) -> None:
    del rest
    with pytest.raises(AirflowFailException, match="free_slots is 'many', expected a number"):
        room(free_slots="many").execute(context())


@pytest.mark.asyncio
async def test_a_deferred_sensor_waits_for_room(rest: FakeCluster) -> None:
    operator = room(free_slots=4, deferrable=True)
    caught = deferred(operator)
    assert caught.timeout == timedelta(seconds=20)
    trigger: Any = caught.trigger
    trigger.poll_interval = 0.1
    timer = threading.Timer(0.2, rest.task_managers.append, ({"id": "t", "freeSlots": 1, "state": "ready"},))
    timer.start()
    event = await payload_of(trigger)
    timer.join()
    assert event == {"verdict": "reached", "free_slots": 4}
    assert operator.execute_complete(context(), event) == 4
    with pytest.raises(ClusterUnavailableError, match="broken"):
        operator.execute_complete(context(), {"reason": "error", "message": "broken"})


# --- cancel -------------------------------------------------------------------------------------------------


def cancel(**fields: Any) -> Any:
    return FlinklikeCancelOperator(**{"task_id": "cancel", "poll_interval": 0.1, **fields}).execute(context())


def test_a_running_job_is_cancelled_and_waited_for(rest: FakeCluster) -> None:
    _, job_id = started(rest, "hang")
    assert cancel(job_id=job_id) == {job_id: "CANCELED"}
    assert cancel(job_id=job_id) == {job_id: "CANCELED"}
    assert rest.cancels == [job_id, job_id]


def test_many_jobs_are_asked_before_one_is_waited_for(rest: FakeCluster) -> None:
    for job_id in (JOB, OTHER):
        put(rest, job_id, "RUNNING")
    for given in ([JOB, OTHER], f"{JOB}, {OTHER}", iter((JOB, OTHER))):
        rest.requests.clear()
        assert cancel(job_id=given) == {JOB: "CANCELED", OTHER: "CANCELED"}
        assert [method for method, _ in rest.requests] == ["PATCH", "PATCH", "GET", "GET"]


def test_every_job_of_a_name_that_is_not_over(rest: FakeCluster) -> None:
    put(rest, JOB, "RUNNING")
    put(rest, OTHER, "FINISHED")
    put(rest, "c" * 32, "RUNNING", name="other")
    assert cancel(job_name="etl") == {JOB: "CANCELED"}
    assert cancel(job_name="nobody") == {}


def test_what_is_over_stays_as_it_is(rest: FakeCluster) -> None:
    put(rest, JOB, "FINISHED")
    assert cancel(job_id=JOB) == {JOB: "FINISHED"}


def test_what_is_unknown_is_no_error_unless_that_is_wanted(rest: FakeCluster) -> None:
    del rest
    assert cancel(job_id=JOB) == {}
    with pytest.raises(JobNotFoundError):
        cancel(job_id=JOB, missing_ok=False)


@pytest.mark.parametrize("nothing", ["", "None", [], "[]"])
def test_nothing_was_submitted(rest: FakeCluster, nothing: Any) -> None:
    assert cancel(job_id=nothing) == {}
    assert not rest.requests


def test_without_waiting_the_state_of_the_moment_is_told(rest: FakeCluster) -> None:
    put(rest, JOB, "RUNNING")
    rest._end = lambda job, status, value: setattr(job, "status", "CANCELLING")  # type: ignore[method-assign]  # slowly
    assert cancel(job_id=JOB, wait_for_completion=False) == {JOB: "CANCELLING"}


@pytest.mark.parametrize("fields", [{}, {"job_id": JOB, "job_name": "etl"}, {"job_id": "xyz"}])
def test_what_cannot_be_cancelled_fails_without_retry(rest: FakeCluster, fields: dict[str, Any]) -> None:
    del rest
    with pytest.raises(AirflowFailException):
        cancel(**fields)
