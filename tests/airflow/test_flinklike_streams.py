"""Jobs that do not end: a task that waits until they run, one job for all runs, a sensor of their queries."""

import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSensorTimeout

from airflow_flinklike.decorators.branch import FlinklikeBranchOperator
from airflow_flinklike.decorators.sensor import FlinklikePokeOperator
from airflow_flinklike.exceptions import (
    JobCanceledError,
    JobConflictError,
    JobFailedError,
    JobNotFoundError,
    PipelineError,
)
from airflow_flinklike.operators.adoption import SharedTask, TaskLife, number_after
from airflow_flinklike.operators.job_run import JobRun
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.sensors.stream import FlinklikeStreamSensor
from airflow_flinklike.task_instance.stored_job import STORE_KEY
from airflow_flinklike.task_instance.task_states import KillCause
from airflow_flinklike.triggers.sensing import FlinklikeStreamTrigger
from airflow_flinklike.views.task_jobs import TaskPlace, proved
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.kit.airflow.context import context
from tests.kit.airflow.jobs import deferred, only_job, started, submit
from tests.kit.rest.fake_cluster import FakeCluster, FakeJob

JOB = "a" * 32


def beginning(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs whose task runs a moment after somebody has looked at it."""

    def submitted(body: dict[str, Any]) -> tuple[int, Any]:
        answer = FakeCluster.submit(rest, body)
        rest.jobs[body["job_id"]].task_state = "INITIALIZING"
        threading.Timer(0.3, rest.start, (body["job_id"],)).start()
        return answer

    monkeypatch.setattr(rest, "submit", submitted)


def run_of(number: int, **more: Any) -> Any:
    """The context of the same task in another run of its DAG, whose store is empty."""
    seen = context(**more)
    seen["ti"].run_id = seen["run_id"] = f"scheduled__{number}"
    return seen


def canceled(rest: FakeCluster, job_id: str) -> None:
    """Somebody else has cancelled the job."""
    with rest.changed:
        rest.cancel(job_id)


async def payload_of(trigger: Any) -> dict[str, Any]:
    (payload,) = [event.payload async for event in trigger.run()]
    return {**payload}


# --- waiting until a job runs ---------------------------------------------------------------------------------


def test_a_task_returns_when_all_tasks_of_its_job_run(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    beginning(rest, monkeypatch)
    job_id = submit("hang", wait_for="running").execute(context())
    _, job = only_job(rest)
    assert (job.status, job.task_state) == ("RUNNING", "RUNNING")
    assert job_id in rest.jobs
    assert not rest.cancels
    assert sum(path == f"/jobs/{job_id}" for _, path in rest.requests) >= 2, "it has looked before the job ran"


def test_a_job_that_ends_before_it_runs_fails_the_task(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobFailedError, match="ValueError: no rows"):
        submit("fail", wait_for="running").execute(context())

    def submitted(body: dict[str, Any]) -> tuple[int, Any]:
        answer = FakeCluster.submit(rest, body)
        rest.cancel(body["job_id"])
        return answer

    monkeypatch.setattr(rest, "submit", submitted)
    with pytest.raises(JobCanceledError):
        submit("hang", wait_for="running").execute(context())


def test_a_job_that_has_finished_has_run(rest: FakeCluster) -> None:
    job_id = submit("finish", wait_for="running").execute(context())
    assert rest.jobs[job_id].status == "FINISHED"


def test_a_retry_adopts_the_job_whose_start_was_not_seen(rest: FakeCluster) -> None:
    store, job_id = started(rest, "hang")
    assert submit("hang", wait_for="running").execute(context(store, try_number=2)) == job_id
    only_job(rest)


def test_a_clear_ends_the_job_that_runs_and_submits_another(rest: FakeCluster) -> None:
    store, job_id = started(rest, "hang")
    another = submit("hang", wait_for="running").execute(context(store, max_tries=3))
    assert rest.cancels == [job_id]
    assert {job_id: "CANCELED", another: "RUNNING"} == {one: job.status for one, job in rest.jobs.items()}


@pytest.mark.asyncio
async def test_a_deferred_task_comes_back_when_the_job_runs(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    beginning(rest, monkeypatch)
    operator = submit("hang", wait_for="running", deferrable=True, inline_timeout=0)
    trigger: Any = deferred(operator).trigger
    assert trigger.serialize()[1]["until_running"]
    event = await payload_of(trigger)
    job_id, _ = only_job(rest)
    assert (event["reason"], event["job_id"]) == ("running", job_id)
    assert operator.execute_complete(context(), event) == job_id
    assert not rest.cancels


@pytest.mark.asyncio
async def test_a_deferred_task_fails_with_its_job(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    beginning(rest, monkeypatch)
    operator = submit("hang", wait_for="running", deferrable=True, inline_timeout=0)
    trigger: Any = deferred(operator).trigger
    canceled(rest, only_job(rest)[0])
    event = await payload_of(trigger)
    assert event["reason"] == "canceled"
    with pytest.raises(JobCanceledError):
        operator.execute_complete(context(), event)


def idle_script(directory: Path, **fields: Any) -> FlinklikeSubmitOperator:
    """A streaming script that starts no query until somebody tells of one."""
    (directory / "hang_idle.py").write_text("print(1)\n")
    given: Any = {"task_id": "run", "application": str(directory / "hang_idle.py"), "wait_for": "running", **fields}
    return FlinklikeSubmitOperator(streaming=True, poll_interval=0.2, **given)


def triggering(rest: FakeCluster) -> threading.Timer:
    """A query of the only job starts, and then triggers."""

    def trigger() -> None:
        rest.tell_script(only_job(rest)[0], {"name": "rows", "has_triggered": False})
        gone.wait(0.5)
        rest.tell_script(only_job(rest)[0], {"name": "rows"})

    gone = threading.Event()
    timer = threading.Timer(0.5, trigger)
    timer.start()
    return timer


def test_a_streaming_script_runs_from_the_first_trigger_of_a_query_on(rest: FakeCluster, tmp_path: Path) -> None:
    timer = triggering(rest)
    job_id = idle_script(tmp_path).execute(context())
    assert rest.jobs[job_id].streams[0]["subtasks"][0]["queries"][0]["has-triggered"]
    timer.join()
    assert rest.jobs[job_id].status == "RUNNING"


def test_a_streaming_script_that_ends_without_a_query_has_run(rest: FakeCluster, tmp_path: Path) -> None:
    timer = threading.Timer(0.5, lambda: rest.finish(only_job(rest)[0]))
    timer.start()
    job_id = idle_script(tmp_path).execute(context())
    assert rest.jobs[job_id].status == "FINISHED"
    timer.join()


@pytest.mark.asyncio
async def test_a_deferred_task_waits_for_the_first_query_of_a_script(rest: FakeCluster, tmp_path: Path) -> None:
    operator = idle_script(tmp_path, deferrable=True, inline_timeout=0)
    trigger: Any = deferred(operator).trigger
    timer = triggering(rest)
    event = await payload_of(trigger)
    job_id, job = only_job(rest)
    assert (event["reason"], event["job_id"]) == ("running", job_id)
    assert job.streams[0]["subtasks"][0]["queries"][0]["has-triggered"]
    timer.join()


def test_an_older_trigger_is_not_asked_for_what_it_does_not_know(rest: FakeCluster) -> None:
    trigger: Any = deferred(submit("hang", deferrable=True, inline_timeout=0)).trigger
    assert "until_running" not in trigger.serialize()[1]
    del rest


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"wait_for": "start"}, "wait_for is 'start', expected 'end' or 'running'"),
        ({"wait_for": "running", "wait_for_completion": False}, "wait_for_completion=False does not"),
        ({"ensure_running": True, "wait_for_completion": False}, "wait_for_completion=False does not"),
        ({"ensure_running": True, "wait_for": "end"}, "ensure_running waits until the job runs"),
    ],
)
def test_what_contradicts_itself_is_refused_when_the_dag_is_parsed(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=f"task 'run': .*{words}"):
        submit(**fields)


@pytest.mark.parametrize("operator", [FlinklikeBranchOperator, FlinklikePokeOperator])
def test_what_needs_the_value_waits_for_the_end(operator: Any) -> None:
    with pytest.raises(PipelineError, match="task 'run': "):
        operator(task_id="run", python_callable=lambda: True, wait_for="running")


def test_a_job_that_another_one_keeps_away_is_no_job_of_an_earlier_try(
    rest: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "submit", lambda _: (409, {"errors": ["job x may work on the checkpoints 'orders'"]}))
    with pytest.raises(JobConflictError, match="may work on the checkpoints 'orders'"):
        submit("hang").execute(context())


# --- one job for all runs -------------------------------------------------------------------------------------


def test_every_run_finds_the_job_that_runs(rest: FakeCluster) -> None:
    found = {submit("hang", ensure_running=True).execute(run_of(number)) for number in range(3)}
    assert found == {only_job(rest)[0]}


def test_a_run_submits_the_job_again_when_it_has_ended(rest: FakeCluster) -> None:
    first = submit("hang", ensure_running=True).execute(run_of(1))
    canceled(rest, first)
    second = submit("hang", ensure_running=True).execute(run_of(2))
    assert first != second
    assert submit("hang", ensure_running=True).execute(run_of(3)) == second
    del rest.jobs[first]  # the cluster forgets it
    assert submit("hang", ensure_running=True).execute(run_of(4)) == second


def test_a_job_that_is_ending_is_followed_by_another(rest: FakeCluster) -> None:
    first = submit("hang", ensure_running=True).execute(run_of(1))
    rest.jobs[first].status = "CANCELLING"
    timer = threading.Timer(0.3, canceled, (rest, first))
    timer.start()
    second = submit("hang", ensure_running=True).execute(run_of(2))
    timer.join()
    assert (rest.jobs[first].status, rest.jobs[second].status) == ("CANCELED", "RUNNING")


def test_so_is_one_that_ends_between_two_looks(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    first = submit("hang", ensure_running=True).execute(run_of(1))
    look = JobRun._status

    def ends_before(run: JobRun, job_id: JobId) -> JobStatus | None:
        canceled(rest, first)
        return look(run, job_id)

    monkeypatch.setattr(JobRun, "_status", ends_before)
    second = submit("hang", ensure_running=True).execute(run_of(2))
    assert (rest.jobs[first].status, rest.jobs[second].status) == ("CANCELED", "RUNNING")


def test_a_mark_or_a_clear_leaves_the_job_of_all_runs_alone(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = run_of(1)
    job_id = submit("hang", ensure_running=True).execute(seen)
    stored = seen["task_state_store"].values[STORE_KEY]
    assert (stored["cancel_on_kill"], stored["outlives_task"]) == (False, True), "the listener cancels nothing"
    cleared = run_of(1, store=seen["task_state_store"], max_tries=5)
    assert submit("hang", ensure_running=True).execute(cleared) == job_id
    rest.jobs[job_id].task_state = "INITIALIZING"
    operator = submit("hang", ensure_running=True, execution_timeout=timedelta(seconds=9))
    monkeypatch.setattr(operator, "_kill_cause", lambda *_: KillCause.USER)
    timer = threading.Timer(0.5, operator.on_kill)
    timer.start()
    with pytest.raises(JobCanceledError):
        operator.execute(run_of(2))
    timer.join()
    run: Any = SimpleNamespace(job_id=job_id)
    assert "is kept" in operator._timed_out(run)
    assert rest.jobs[job_id].status == "RUNNING"
    assert not rest.cancels
    assert not rest.heartbeats


def test_the_job_of_all_runs_is_shown_at_each_of_them_and_nowhere_else(rest: FakeCluster) -> None:
    del rest
    for number in (1, 2):
        seen = run_of(number)
        job_id = submit("hang", ensure_running=True).execute(seen)
        stored = seen["task_state_store"].values[STORE_KEY]
        found = proved(TaskPlace("dag", f"scheduled__{number}", "run", -1), stored)
        assert found is not None
        assert found.job.job_id == job_id
        assert proved(TaskPlace("other", f"scheduled__{number}", "run", -1), stored) is None


def test_numbers_go_on_and_begin_again_where_the_cluster_has_forgotten() -> None:
    assert [number_after(set()), number_after({1}), number_after({3, 7})] == [1, 2, 8]
    assert number_after({500}) == 1
    assert number_after({1, 2, 500}) == 3
    assert number_after(set(range(1, 501))) is None
    task = SharedTask("dag", "run", -1)
    assert set(task.numbers().values()) == set(range(1, 501))
    assert not set(task.numbers()) & {TaskLife("dag", "r", "run", -1, "", 2).job_id_of(n) for n in range(1, 501)}


def test_a_task_whose_ids_are_all_known_says_so(rest: FakeCluster) -> None:
    for job_id in SharedTask("dag", "run", -1).numbers():
        rest.jobs[job_id] = FakeJob({"name": "x"}, "", "FAILED")
    with pytest.raises(AirflowFailException, match="500 ended jobs of this task") as caught:
        submit("hang", ensure_running=True).execute(run_of(1))
    del caught


# --- how far queries are --------------------------------------------------------------------------------------


def sensor(**fields: Any) -> FlinklikeStreamSensor:
    return FlinklikeStreamSensor(**{"task_id": "wait", "job_id": JOB, "poke_interval": 0.05, "timeout": 20, **fields})


@pytest.fixture
def job(rest: FakeCluster) -> FakeJob:
    rest.jobs[JOB] = FakeJob({"name": "etl"}, "")
    rest.tell_query(JOB, batch_id=3, rows=40, backlog=7, watermark=90_000)
    return rest.jobs[JOB]


@pytest.mark.parametrize(
    ("fields", "is_met"),
    [
        ({}, True),
        ({"batch": 3}, True),
        ({"batch": "3", "rows": "40", "max_backlog": "7", "max_lag": "10"}, True),
        ({"max_lag": timedelta(seconds=10), "uid": "orders"}, True),
        ({"batch": 4}, False),
        ({"rows": 41}, False),
        ({"max_backlog": 6}, False),
        ({"max_lag": 9.9}, False),
        ({"batch": 3, "rows": 41}, False),
    ],
)
@pytest.mark.usefixtures("job")
def test_all_conditions_have_to_be_met(fields: dict[str, Any], *, is_met: bool) -> None:
    told = {"orders": {"batch": 3, "rows": 40, "backlog": 7, "lag": 10.0}}
    answer = sensor(**fields).poke(context())
    assert (bool(answer), answer.xcom_value) == (is_met, told if is_met else None)


@pytest.mark.usefixtures("job")
def test_every_query_of_the_job_has_to_be_there(rest: FakeCluster) -> None:
    rest.tell_query(JOB, "alerts")
    assert not sensor().poke(context())
    assert sensor(uid="orders").poke(context())
    rest.tell_query(JOB, "alerts", batch_id=0, rows=1)
    assert sensor().poke(context())
    assert not sensor(max_backlog=10).poke(context()), "alerts does not say what its sources have left"
    assert not sensor(max_lag=10).poke(context()), "alerts has no watermark"


def test_queries_of_a_script_are_found_by_their_names(rest: FakeCluster) -> None:
    rest.jobs[JOB] = FakeJob({"name": "etl"}, "")
    assert not sensor(uid="rows").poke(context()), "the script has started no query yet"
    rest.tell_script(JOB, {"name": "rows", "batch_id": 5, "rows": 9}, {"name": "sums", "batch_id": 0})
    told = {"batch": 5, "rows": 9, "backlog": None, "lag": None}
    others = {"batch": 0, "rows": 0, "backlog": None, "lag": None}
    assert sensor(uid="rows", batch=5).poke(context()).xcom_value == {"rows": told}
    assert sensor(uid="script").poke(context()).xcom_value == {"rows": told, "sums": others}, "all of the script"
    assert sensor().poke(context()).xcom_value == {"rows": told, "sums": others}
    assert not sensor(batch=1).poke(context()), "sums has not"
    assert not sensor(uid="late").poke(context()), "a script may start it yet"
    rest.jobs[JOB].status = "FINISHED"
    with pytest.raises(AirflowFailException, match="no streaming query 'late' among: rows, sums"):
        sensor(uid="late").poke(context())
    rest.tell_script(JOB, {"batch_id": 5, "rows": 9})
    assert sensor().poke(context()).xcom_value == {"script": told}, "a query without a name"


def test_a_job_by_its_name_is_waited_for_from_before_it_is_there(rest: FakeCluster) -> None:
    def come() -> None:
        rest.jobs[JOB] = FakeJob({"name": "etl"}, "")
        rest.tell_query(JOB, batch_id=0, rows=1)

    timer = threading.Timer(0.2, come)
    timer.start()
    seen = context()
    assert sensor(job_id=None, job_name="etl").execute(seen)["orders"]["rows"] == 1
    timer.join()
    assert seen["ti"].xcoms["job_id"] == JOB


def test_a_job_that_has_ended_is_judged_by_where_it_was(rest: FakeCluster, job: FakeJob) -> None:
    job.status = "FINISHED"
    assert sensor(batch=3).execute(context())["orders"]["batch"] == 3
    with pytest.raises(AirflowFailException, match=r"will not get there. Job a+: FINISHED, orders has batch 3"):
        sensor(batch=4).execute(context())
    with pytest.raises(AirflowFailException, match="will not get there"):
        sensor(batch=4).execute_complete(context(), {"verdict": "missed", "job_id": JOB, "queries": {}})
    del rest


@pytest.mark.usefixtures("job")
def test_a_sensor_times_out() -> None:
    with pytest.raises(AirflowSensorTimeout):
        sensor(batch=4, timeout=0).execute(context())


@pytest.mark.asyncio
@pytest.mark.usefixtures("job")
async def test_a_deferred_sensor_comes_back(rest: FakeCluster) -> None:
    operator = sensor(batch=4, deferrable=True)
    caught = deferred(operator)
    trigger: Any = caught.trigger
    assert isinstance(trigger, FlinklikeStreamTrigger)
    assert (caught.method_name, caught.timeout) == ("execute_complete", timedelta(seconds=20))
    trigger.poll_interval = 0.1
    timer = threading.Timer(0.3, lambda: rest.tell_query(JOB, batch_id=4, rows=1))
    timer.start()
    event = await payload_of(trigger)
    timer.join()
    assert (event["verdict"], event["queries"]["orders"]["batch"]) == ("reached", 4)
    seen = context()
    assert operator.execute_complete(seen, event)["orders"]["batch"] == 4
    assert seen["ti"].xcoms["job_id"] == JOB


@pytest.mark.asyncio
async def test_a_deferred_sensor_hears_of_the_end_and_of_errors(rest: FakeCluster, job: FakeJob) -> None:
    job.status = "FAILED"
    wish = {"uid": "", "batch": 9, "rows": None, "max_backlog": None, "max_lag": None}
    event = await payload_of(FlinklikeStreamTrigger("flinklike_default", wish=wish, job_name="etl"))
    assert event["verdict"] == "missed"
    event = await payload_of(FlinklikeStreamTrigger("flinklike_default", wish=wish, job_id="b" * 32))
    assert event["reason"] == "not_found"
    with pytest.raises(JobNotFoundError):
        sensor().execute_complete(context(), event)
    del rest


@pytest.mark.parametrize(
    "fields",
    [{"job_id": None}, {"job_name": "x"}, {"batch": "many"}, {"rows": -1}, {"max_lag": "soon"}, {"max_lag": -1}],
)
def test_what_cannot_be_meant_fails_without_retry(rest: FakeCluster, fields: dict[str, Any]) -> None:
    del rest
    operator = sensor()
    vars(operator).update(fields)  # rendered
    with pytest.raises(AirflowFailException, match="task 'wait': "):
        operator.execute(context())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"batch": "many"}, "batch is 'many', expected a whole number"),
        ({"rows": -1}, "rows is '-1'"),
        ({"max_lag": "soon"}, "max_lag is 'soon', expected seconds"),
    ],
)
def test_numbers_that_are_none_are_refused_when_the_dag_is_parsed(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        sensor(**fields)
    sensor(batch="{{ params.batch }}", max_lag="{{ params.lag }}")


@pytest.mark.usefixtures("job")
def test_a_query_that_the_job_does_not_have_is_not_waited_for() -> None:
    with pytest.raises(AirflowFailException, match="no streaming query 'others' among: orders"):
        sensor(uid="others").execute(context())


def test_a_trigger_of_streams_survives_serialization() -> None:
    wish = {"uid": "orders", "batch": 9, "rows": None, "max_backlog": 1, "max_lag": 2.5}
    trigger = FlinklikeStreamTrigger("c", wish=wish, job_name="etl", started_after_millis=5, poll_interval=2.0)
    path, kwargs = trigger.serialize()
    from airflow.sdk._shared.module_loading import import_string
    from airflow.sdk.serde import deserialize, serialize

    assert deserialize(serialize(kwargs)) == kwargs
    assert import_string(path)(**kwargs).serialize() == (path, kwargs)
