"""Signals and timeouts of a waiting task, in every state of it: which of them end the job, and which leave it alone."""

import asyncio
import copy
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout, TaskDeferralError
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.execution_time.timeout import timeout
from airflow.triggers.base import BaseTrigger

from airflow_flinklike import Pipeline
from airflow_flinklike.exceptions import JobCanceledError, WorkerStoppedError
from airflow_flinklike.task_instance.stored_job import STORE_KEY, StoredJob, parse_stored
from airflow_flinklike.triggers.job import FlinklikeJobTrigger
from runtime.common.ids import JobId
from tests.kit.airflow.connection import connection_json
from tests.kit.airflow.context import FakeStateStore, context
from tests.kit.airflow.jobs import deferred, job, only_job, started, submit
from tests.kit.rest.fake_cluster import FakeCluster

Says = Callable[[Any], None]


def alarm(seconds: float) -> AbstractContextManager[Any]:
    """Stands for the task runner's code around `execute`."""
    context_manager: AbstractContextManager[Any] = timeout(seconds)  # type: ignore[no-untyped-call]  # Airflow has no hints here
    return context_manager


@pytest.fixture
def airflow_says(monkeypatch: pytest.MonkeyPatch) -> Says:
    """Airflow's answer about the state of the task `run`. An exception is raised."""

    def says(state: Any) -> None:
        def answer(*, dag_id: str, task_ids: list[str], run_ids: list[str], map_index: int | None) -> Mapping[str, Any]:
            assert (dag_id, map_index) == ("dag", None)
            if isinstance(state, Exception):
                raise state
            return {run_ids[0]: {task_ids[0]: state}}

        monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(answer))

    return says


@pytest.fixture
def terminate(rest: FakeCluster) -> Iterator[Callable[[Any], None]]:
    """Installs `on_kill` as the task runner does, and sends SIGTERM after the first request about a job."""
    before = signal.getsignal(signal.SIGTERM)
    threads: list[threading.Thread] = []

    def kill_when_asked() -> None:
        with rest.changed:
            assert rest.changed.wait_for(lambda: any(method == "GET" for method, _ in rest.requests), timeout=10)
        os.kill(os.getpid(), signal.SIGTERM)

    def prepare(operator: Any) -> None:
        signal.signal(signal.SIGTERM, lambda *_: operator.on_kill())
        threads.append(threading.Thread(target=kill_when_asked))
        threads[-1].start()

    yield prepare
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGTERM, before)


# --- a worker's task ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["failed", "success", "restarting", None])
@pytest.mark.parametrize("deferrable", [True, False])
def test_a_mark_or_a_clear_cancels_the_job(
    rest: FakeCluster,
    terminate: Callable[[Any], None],
    airflow_says: Says,
    *,
    state: str | None,
    deferrable: bool,
) -> None:
    airflow_says(state)
    operator = submit("hang", deferrable=deferrable, poll_interval=30)
    terminate(operator)
    begin = time.monotonic()
    with pytest.raises(JobCanceledError):
        operator.execute(context())
    assert time.monotonic() - begin < 5, "Airflow sends SIGKILL after five seconds"
    job_id, killed = only_job(rest)
    assert (rest.cancels, killed.status) == ([job_id], "CANCELED")


@pytest.mark.parametrize("state", ["running", "up_for_retry", ConnectionError("the API server is away")])
def test_the_end_of_a_worker_leaves_the_job_to_the_next_try(
    rest: FakeCluster, terminate: Callable[[Any], None], airflow_says: Says, *, state: Any
) -> None:
    airflow_says(state)
    operator = submit("hang", poll_interval=30)
    terminate(operator)
    store = FakeStateStore()
    with pytest.raises(WorkerStoppedError, match="the next try adopts it"):
        operator.execute(context(store))
    job_id, left = only_job(rest)
    assert (rest.cancels, left.status) == ([], "RUNNING")
    [(promised, expires)] = rest.heartbeats
    assert promised == job_id
    assert 290 < expires / 1000 - time.time() < 310
    timer = threading.Timer(0.2, rest.finish, (job_id, 8))
    timer.start()
    assert submit("hang").execute(context(store)) == 8
    timer.join()
    only_job(rest)
    assert rest.heartbeats[1:] == [(job_id, 0)]


def test_a_deferrable_task_goes_on_in_the_triggerer_when_its_worker_ends(
    rest: FakeCluster, terminate: Callable[[Any], None], airflow_says: Says
) -> None:
    airflow_says("running")
    operator = submit("hang", deferrable=True, poll_interval=30, orphan_timeout=timedelta(minutes=1))
    terminate(operator)
    trigger: Any = deferred(operator).trigger
    job_id, left = only_job(rest)
    assert (rest.cancels, left.status, trigger.job_id) == ([], "RUNNING", job_id)
    assert [one for one, _ in rest.heartbeats] == [job_id]
    assert trigger.insist_interval == 20, "it withdraws the promise"


@pytest.mark.asyncio
async def test_a_trigger_of_an_adopted_job_says_that_it_is_here(rest: FakeCluster) -> None:
    _, job_id = started(rest, "hang")
    timer = threading.Timer(0.2, rest.finish, (job_id,))
    timer.start()
    async for _ in FlinklikeJobTrigger(job_id, "flinklike_default", insist_interval=60).run():
        assert rest.heartbeats == [(job_id, 0)]
    timer.join()


def test_a_worker_beside_which_another_try_was_started_says_nothing(
    rest: FakeCluster, terminate: Callable[[Any], None], airflow_says: Says
) -> None:
    """Airflow does so after a crash of its scheduler: the task is running, in another process."""
    airflow_says("running")
    operator = submit("hang", deferrable=True, poll_interval=30)
    terminate(operator)
    store = FakeStateStore()
    original = store.set

    def set_and_forget(key: str, value: Any) -> None:
        original(key, value)
        store.get = lambda key, default=None: None  # type: ignore[method-assign]  # as the server says of an id it does not know

    store.set = set_and_forget  # type: ignore[method-assign]  # the other try has another id
    with pytest.raises(WorkerStoppedError):
        operator.execute(context(store))
    assert (rest.cancels, rest.heartbeats, only_job(rest)[1].status) == ([], [], "RUNNING")


def test_who_waits_for_an_adopted_job_says_so_often_enough(rest: FakeCluster) -> None:
    """A promise of the worker before may arrive late. It must not end the job of the current try."""
    store, job_id = started(rest, "hang")
    enough: list[bool] = []

    def finish_when_it_was_said_often() -> None:
        with rest.changed:
            enough.append(rest.changed.wait_for(lambda: len(rest.heartbeats) >= 3, timeout=20))
        rest.finish(job_id)

    finisher = threading.Thread(target=finish_when_it_was_said_often)
    finisher.start()
    submit("hang", poll_interval=60, orphan_timeout=3).execute(context(store))
    finisher.join()
    assert enough == [True]
    assert set(rest.heartbeats) == {(job_id, 0)}


@pytest.mark.parametrize("fields", [{"orphan_timeout": None}, {"cancel_on_kill": False}])
def test_nobody_is_made_to_come_back_for_a_job_that_may_stay(
    rest: FakeCluster, terminate: Callable[[Any], None], airflow_says: Says, *, fields: dict[str, Any]
) -> None:
    airflow_says("running")
    operator = submit("hang", poll_interval=30, **fields)
    terminate(operator)
    with pytest.raises(WorkerStoppedError):
        operator.execute(context())
    assert not rest.heartbeats


def test_an_error_of_the_task_leaves_the_job_too(rest: FakeCluster) -> None:
    """The worker cannot store the link: its API server is away."""
    seen = context()

    def broken(key: str, value: Any) -> None:
        raise ConnectionError(key, value)

    operator = submit("hang")
    operator.tell_job = lambda *_: broken("link", 1)  # type: ignore[method-assign]  # comes after the submit
    with pytest.raises(ConnectionError):
        operator.execute(seen)
    job_id, left = only_job(rest)
    assert (left.status, [one for one, _ in rest.heartbeats]) == ("RUNNING", [job_id])


def test_an_adoption_that_comes_too_late_submits_afresh(rest: FakeCluster) -> None:
    """The cluster was about to cancel the job when the retry came."""
    store, job_id = started(rest, "hang")
    original = rest.heartbeat

    def too_late(job_id: str, expires_millis: int) -> tuple[int, Any]:
        rest.cancel(job_id)
        return original(job_id, expires_millis)

    rest.heartbeat = too_late  # type: ignore[method-assign]  # the deadline passes between two requests
    operator = submit("finish")
    operator.execute(context(store))
    assert (rest.jobs[job_id].status, len(rest.jobs)) == ("CANCELED", 2)


def test_a_task_that_must_not_cancel_leaves_the_job(
    rest: FakeCluster, terminate: Callable[[Any], None], airflow_says: Says
) -> None:
    airflow_says("failed")
    operator = submit("hang", cancel_on_kill=False, poll_interval=30)
    terminate(operator)
    with pytest.raises(JobCanceledError):
        operator.execute(context())
    assert only_job(rest)[1].status == "RUNNING"


def test_a_kill_before_the_job_is_sent_sends_none(rest: FakeCluster) -> None:
    operator = submit("hang")

    def killed_meanwhile() -> Pipeline:
        operator.on_kill()
        return job("hang")()

    operator.pipeline = killed_meanwhile
    with pytest.raises(WorkerStoppedError, match="before it had a job"):
        operator.execute(context())
    assert not rest.jobs


@pytest.mark.parametrize(("state", "cancels", "promises"), [("failed", 2, 0), ("running", 0, 2)])
def test_what_a_kill_says_of_a_job_that_is_being_sent_is_repeated_when_it_has_arrived(
    rest: FakeCluster, airflow_says: Says, *, state: str, cancels: int, promises: int
) -> None:
    """The request overtakes the submit, which the cluster takes only after it."""
    airflow_says(state)
    operator = submit("hang")
    original = rest.submit

    def killed_meanwhile(body: dict[str, Any]) -> tuple[int, Any]:
        operator.on_kill()
        assert rest.changed.wait_for(lambda: rest.cancels or rest.heartbeats, timeout=10)
        return original(body)

    rest.submit = killed_meanwhile  # type: ignore[method-assign]  # the request is under way when the signal comes
    with pytest.raises(JobCanceledError if cancels else WorkerStoppedError):
        operator.execute(context())
    job_id, submitted = only_job(rest)
    assert (rest.cancels, len(rest.heartbeats)) == ([job_id] * cancels, promises)
    assert submitted.status == ("CANCELED" if cancels else "RUNNING")


def test_a_deferrable_task_goes_on_in_the_triggerer_when_its_worker_ends_during_the_submit(
    rest: FakeCluster, airflow_says: Says
) -> None:
    """The cluster accepts the promise, so it has the job."""
    airflow_says("running")
    operator = submit("hang", deferrable=True)
    original = rest.submit

    def killed_meanwhile(body: dict[str, Any]) -> tuple[int, Any]:
        taken = original(body)
        operator.on_kill()
        assert rest.changed.wait_for(lambda: rest.heartbeats, timeout=10)
        return taken

    rest.submit = killed_meanwhile  # type: ignore[method-assign]  # it has the job, and its answer is under way
    seen = context()
    trigger: Any = deferred(operator, seen).trigger
    assert [trigger.job_id] == [one for one, _ in rest.heartbeats] == list(rest.jobs)
    assert trigger.insist_interval is not None, "it withdraws the promise"
    assert seen["ti"].xcoms["job_id"] == trigger.job_id


def test_a_kill_before_the_task_has_begun_never_defers_to_the_job_of_the_try_before(
    rest: FakeCluster, airflow_says: Says
) -> None:
    """The task may have been cleared, so it is not decided yet what becomes of the job."""
    airflow_says("running")
    store, _ = started(rest, "hang")
    operator = submit("hang", deferrable=True)
    operator.on_kill()
    with pytest.raises(WorkerStoppedError):
        operator.execute(context(store))


def test_a_kill_after_the_task_does_nothing(rest: FakeCluster) -> None:
    operator = submit("finish")
    operator.execute(context())
    operator.on_kill()
    assert not rest.cancels
    copy.deepcopy(operator).execute(context())


@pytest.mark.parametrize(("state", "cancels"), [("failed", 1), ("running", 0)])
def test_a_kill_before_the_task_has_begun_ends_the_job_of_the_try_before(
    rest: FakeCluster, airflow_says: Says, *, state: str, cancels: int
) -> None:
    """The signal comes while Airflow renders templates."""
    airflow_says(state)
    store, job_id = started(rest, "hang")
    operator = submit("hang")
    operator.on_kill()
    with pytest.raises(JobCanceledError if cancels else WorkerStoppedError):
        operator.execute(context(store))
    assert rest.cancels == [job_id] * cancels


def test_a_kill_before_there_is_a_job_sends_none(rest: FakeCluster) -> None:
    operator = submit("hang")
    operator.on_kill()
    with pytest.raises(WorkerStoppedError, match="before it had a job"):
        operator.execute(context())
    assert not rest.jobs


def test_a_kill_does_not_wait_for_a_cluster_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, airflow_says: Says
) -> None:
    airflow_says("failed")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        monkeypatch.setenv("AIRFLOW_CONN_SILENT", connection_json(f"http://{host}:{port}"))
        operator = submit("hang", flinklike_conn_id="silent")

        def kill_when_connected() -> None:
            with silent.accept()[0]:
                operator.on_kill()
                left.wait(100)

        killer = threading.Thread(target=kill_when_connected)
        left = threading.Event()
        killer.start()
        begin = time.monotonic()
        with pytest.raises(JobCanceledError):
            operator.execute(context())
        assert time.monotonic() - begin < 5, "Airflow sends SIGKILL after five seconds"
        left.set()
        killer.join()


# --- timeouts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deferrable", [True, False])
def test_the_execution_timeout_cancels_the_job_and_says_so(rest: FakeCluster, *, deferrable: bool) -> None:
    """An alarm raises wherever the main thread is, as in the task runner."""
    operator = submit("hang", execution_timeout=timedelta(seconds=0.3), poll_interval=30, deferrable=deferrable)
    with (
        pytest.raises(AirflowTaskTimeout, match=r"execution_timeout 0:00:00.3\d* is over: job \w+ was cancelled"),
        alarm(0.3),
    ):
        operator.execute(context())
    operator.on_kill()  # the task runner calls it afterwards
    job_id, over = only_job(rest)
    assert (rest.cancels, over.status) == ([job_id], "CANCELED")


def test_the_execution_timeout_ends_the_wait_for_a_cluster_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        host, port = closed.getsockname()
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", connection_json(f"http://{host}:{port}"))
    operator = submit("hang", flinklike_conn_id="away", execution_timeout=timedelta(seconds=0.5))
    with pytest.raises(AirflowTaskTimeout, match="is over"), alarm(0.5):
        operator.execute(context())


def test_a_deferral_that_breaks_leaves_the_job_to_the_next_try(rest: FakeCluster) -> None:
    store, job_id = started(rest, "hang")
    with pytest.raises(TaskDeferralError):
        submit("hang", deferrable=True).resume_execution("__fail__", {"error": "Trigger failure"}, context(store))
    assert (rest.cancels, [one for one, _ in rest.heartbeats]) == ([], [job_id])


def test_a_deferral_that_times_out_cancels_the_job(rest: FakeCluster) -> None:
    """No triggerer has taken the trigger: Airflow resumes the task to fail it."""
    store, job_id = started(rest, "hang")
    operator = submit("hang", deferrable=True, execution_timeout=timedelta(seconds=30))
    with pytest.raises(AirflowTaskTimeout, match=r"execution_timeout 0:00:30 is over: job \w+ was cancelled"):
        operator.resume_execution("__fail__", {"error": "Trigger timeout"}, context(store))
    assert rest.cancels == [job_id]


# --- a deferred task ----------------------------------------------------------------------------------------


def killed_trigger(job_id: str, *, consent: bool = True) -> FlinklikeJobTrigger:
    trigger = FlinklikeJobTrigger(job_id, "flinklike_default", cancel_on_kill=consent)
    trigger.task_instance = SimpleNamespace(  # type: ignore[assignment]  # the four fields that matter
        dag_id="dag", run_id="manual__1", task_id="run", map_index=-1
    )
    return trigger


@pytest.mark.asyncio
@pytest.mark.parametrize("consent", [True, False])
@pytest.mark.parametrize("state", ["failed", "success", None, "queued", "running"])
async def test_a_mark_or_a_clear_of_a_deferred_task_cancels_the_job(
    rest: FakeCluster, airflow_says: Says, *, state: str | None, consent: bool
) -> None:
    airflow_says(state)
    _, job_id = started(rest, "hang")
    await killed_trigger(job_id, consent=consent).on_kill()
    assert rest.cancels == ([job_id] if consent else [])


@pytest.mark.asyncio
async def test_a_trigger_that_is_cancelled_again_and_again_cancels_its_job(
    rest: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Airflow below 3.3 does. The question goes on: a triggerer of 3.0 or 3.1 would not outlive its end."""
    monkeypatch.delattr(BaseTrigger, "on_kill")
    asked, gate = threading.Event(), threading.Event()
    answers: list[bool] = []

    def answer(**_: Any) -> Mapping[str, Any]:
        asked.set()
        answers.append(gate.wait(60))
        return {"manual__1": {"run": "failed"}}

    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(answer))
    _, job_id = started(rest, "hang")
    trigger = killed_trigger(job_id)

    async def first_event() -> Any:
        return await anext(trigger.run())

    running = asyncio.create_task(first_event())
    await asyncio.sleep(0)
    while not asked.is_set():
        running.cancel()
        await asyncio.sleep(0.01)
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (answers, rest.cancels) == ([True], [job_id])


@pytest.mark.asyncio
@pytest.mark.parametrize("state", ["deferred", ConnectionError("the API server is away")])
async def test_a_triggerer_that_loses_a_trigger_leaves_the_job(
    rest: FakeCluster, airflow_says: Says, *, state: Any
) -> None:
    """Airflow calls `on_kill` also when another triggerer has taken the trigger over."""
    airflow_says(state)
    _, job_id = started(rest, "hang")
    await killed_trigger(job_id).on_kill()
    assert not rest.cancels


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["finish", "fail"])
async def test_a_kill_after_the_end_of_the_job_is_no_error(rest: FakeCluster, airflow_says: Says, *, name: str) -> None:
    airflow_says("failed")
    _, job_id = started(rest, name)
    await killed_trigger(job_id).on_kill()
    assert rest.jobs[job_id].status != "CANCELED"


def test_the_old_trigger_of_a_cleared_task_never_cancels_the_new_job(rest: FakeCluster) -> None:
    """The cancellation may come at any time, since the new job has another id."""
    store, old = started(rest, "hang", max_tries=2)
    operator = submit("hang", wait_for_completion=False)
    new = operator.execute(context(store, max_tries=3))
    with rest.changed:
        rest.cancel(old)
    assert (rest.jobs[old].status, rest.jobs[new].status) == ("CANCELED", "RUNNING")
    assert parse_stored(store.values[STORE_KEY]) == StoredJob(JobId(new), 3, conn_id="flinklike_default")
