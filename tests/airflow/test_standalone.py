"""A whole Airflow with our tasks, when processes die or users act: the jobs, values and logs.

All scenarios share one Airflow and one cluster, and run at once. Those that kill shared processes run alone after them.
`dag_cases/standalone_cases.py` defines the steps at which a task stops.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping

import pytest

from tests.kit.airflow.outages import ALONE_LONG, ALONE_SHORT
from tests.kit.airflow.pair import AirflowPair, Case, Scenario, Scenarios
from tests.kit.airflow.rest import PATIENCE

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.slow, pytest.mark.timeout(1500)]

AT_ONCE = 6
LINK = "Flinklike job"
ORPHAN_SECONDS = 2 * PATIENCE
"""`orphan_timeout` of the impatient DAG: longer than a busy Airflow takes to begin the next try."""


# --- a task and its job, when nothing happens ---------------------------------------------------------


def short_job(pair: AirflowPair, name: str) -> None:
    with pair.case(name, "inline", is_open=True) as case:
        case.succeeds("FINISHED", tries=1)
        case.says(f"said by {case.run.xcom('job_id')}")


def decorated_function(pair: AirflowPair, name: str) -> None:
    with pair.case(name, "decorated", is_open=True) as case:
        case.succeeds("FINISHED", tries=0)  # which are not noted: it is no SteppingSubmitOperator


def sensor_beside_the_task(pair: AirflowPair, name: str) -> None:
    with pair.case(name, "sensed") as case:
        job_id = case.works()
        sensor = case.run.at("sensor")
        sensor.wait_task("deferred")
        case.open()
        assert case.run.wait() == "success", sensor.story()
        assert (case.run.xcom(), sensor.xcom()["job"]) == (job_id, job_id)
        assert len(sensor.tries()) <= 1 + case.run.state_mismatches(), "Airflow alone may take a try away"


def _shows_what_the_job_says(dag_id: str, *, while_deferred: bool) -> Scenario:
    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, dag_id) as case:
            job_id = case.works()
            if while_deferred:
                case.run.wait_task("deferred")
            said, logged = f"said by {job_id}", f"logged by {job_id}"
            case.says(said)
            case.says(logged)
            assert str(case.run.links()[LINK]).endswith(f"/jobs/{job_id}")
            case.open()
            case.succeeds("FINISHED", tries=1)
            log = case.run.log()
            assert log.count(said) == log.count(logged)
            assert 1 <= log.count(said) <= 1 + case.run.state_mismatches(), "once in the log of each try"

    return scenario


# --- kill -9 of the task's process at each step -------------------------------------------------------


def _nothing_is_stored(case: Case) -> None:
    assert (case.run.store(), case.jobs()) == ({}, [])


def _only_the_id_is_stored(case: Case) -> None:
    assert case.run.store()
    assert case.jobs() == []


def _the_job_is_there(case: Case) -> None:
    case.works()
    assert case.run.xcom("job_id") is None


def _the_job_has_ended(case: Case) -> None:
    assert case.job_states() == ["FINISHED"]


def _the_job_runs(case: Case) -> None:
    case.works()


def _killed_at(step: str, dag_id: str = "inline") -> Scenario:
    is_open = step == "returning" and dag_id == "inline"
    look = {
        "building": _nothing_is_stored,
        "stored": _only_the_id_is_stored,
        "submitted": _the_job_is_there,
        "deferring": _the_job_runs,
        "resumed": _the_job_has_ended,
        "returning": _the_job_has_ended,
    }[step]

    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, dag_id, stop_at=[step], is_open=is_open) as case:
            if step in {"resumed", "returning"} and not is_open:
                case.run.wait_task("deferred")
                case.open()
            pid = case.stopped_at(step)
            look(case)
            os.kill(pid, signal.SIGKILL)
            case.open()
            case.succeeds("FINISHED", tries=2)

    return scenario


def killed_while_polling(pair: AirflowPair, name: str) -> None:
    with pair.case(name, "inline") as case:
        job_id = case.works()
        case.kill_task()
        case.says(f"Adopting job {job_id}")
        case.open()
        case.succeeds("FINISHED", tries=2)


def killed_twice(pair: AirflowPair, name: str) -> None:
    """The last try adopts the job, too."""
    with pair.case(name, "inline") as case:
        job_id = case.works()
        case.kill_task()
        case.says(f"Adopting job {job_id}")
        case.kill_task()
        case.says(f"Adopting job {job_id}")
        case.open()
        case.succeeds("FINISHED", tries=3)


def killed_in_the_last_try(pair: AirflowPair, name: str) -> None:
    """No try adopts the job: it ends with the run, and a try after a clear runs afresh."""
    with pair.case(name, "inline_once") as case:
        case.works()
        case.kill_task()
        assert case.run.wait() == "failed"
        case.wait_jobs("CANCELED")
        case.open()
        case.run.clear()
        case.works(2)
        case.succeeds("CANCELED", "FINISHED", tries=2)


def killed_without_durable(pair: AirflowPair, name: str) -> None:
    """With `durable=False` the first job runs on beside the second one."""
    with pair.case(name, "forgetful") as case:
        case.works()
        case.kill_task()
        case.works(2)
        case.wait_jobs("RUNNING", "RUNNING")
        case.open()
        assert case.run.wait() == "success"


# --- a worker that goes away --------------------------------------------------------------------------


def worker_gets_sigterm(pair: AirflowPair, name: str) -> None:
    """The job waits for the next try."""
    with pair.case(name, "inline") as case:
        job_id = case.works()
        case.end_worker()
        case.says(f"Job {job_id} goes on; it is cancelled unless a try adopts it")
        case.says(f"Adopting job {job_id}")
        case.open()
        case.succeeds("FINISHED", tries=2)


def worker_gets_sigterm_long_ago(pair: AirflowPair, name: str) -> None:
    """The next try withdraws the promise of a heartbeat."""
    with pair.case(name, "impatient") as case:
        job_id = case.works()
        case.end_worker()
        case.says(f"Adopting job {job_id}")
        case.goes_on(1.1 * ORPHAN_SECONDS)
        case.open()
        case.succeeds("FINISHED", tries=2)


def worker_gets_sigterm_before_it_defers(pair: AirflowPair, name: str) -> None:
    """The task defers at once, without a retry."""
    with pair.case(name, "late_deferring") as case:
        case.works()
        case.end_worker()
        case.run.wait_task("deferred")
        case.open()
        case.succeeds("FINISHED", tries=1)


def worker_gets_sigkill(pair: AirflowPair, name: str) -> None:
    """Airflow notices the death by a missing heartbeat."""
    with pair.case(name, "inline") as case:
        job_id = case.works()
        case.end_worker(signal.SIGKILL)
        case.kill_task()
        case.says(f"Adopting job {job_id}")
        case.open()
        case.succeeds("FINISHED", tries=2)


def supervisor_alone_gets_sigkill(pair: AirflowPair, name: str) -> None:
    """The process of the task outlives its supervisor for a while, beside the next try."""
    with pair.case(name, "inline") as case:
        job_id = case.works()
        case.end_worker(signal.SIGKILL)
        case.says(f"Adopting job {job_id}")
        case.open()
        case.succeeds("FINISHED", tries=2)


def worker_goes_and_nobody_comes_back(pair: AirflowPair, name: str) -> None:
    """The next try is an hour away."""
    with pair.case(name, "late_again") as case:
        case.works()
        case.end_worker()
        case.run.wait_task("up_for_retry")
        assert case.job_states() == ["RUNNING"], "it waits for its client"
        case.wait_jobs("CANCELED")
        assert "ends" not in case.ledger()


# --- what people do -----------------------------------------------------------------------------------


def _marked(dag_id: str, state: str) -> Scenario:
    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, dag_id) as case:
            case.waits()
            case.run.mark(state)
            case.wait_jobs("CANCELED")
            assert (case.run.wait(), case.run.task()["state"], case.run.xcom()) == (state, state, None)
            assert case.ledger().count("begins") == 1

    return scenario


def _run_marked_failed(dag_id: str) -> Scenario:
    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, dag_id) as case:
            case.waits()
            case.run.mark_run("failed")
            case.wait_jobs("CANCELED")
            assert case.run.wait() == "failed"

    return scenario


def _cleared_while_it_works(dag_id: str) -> Scenario:
    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, dag_id) as case:
            case.waits()
            case.run.clear()
            case.works(2)
            case.open()
            case.succeeds("CANCELED", "FINISHED", tries=2)

    return scenario


def _cleared_after_success(dag_id: str) -> Scenario:
    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, dag_id, is_open=True) as case:
            case.succeeds("FINISHED", tries=1)
            case.run.clear()
            case.works(2)
            case.succeeds("FINISHED", "FINISHED", tries=2)

    return scenario


def _cleared_after_a_failure(dag_id: str) -> Scenario:
    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, dag_id) as case:
            job_id = case.works()
            case.fail()
            assert case.run.wait() == "failed"
            case.says(f"LookupError: asked to fail, {job_id}")
            case.open()
            case.run.clear()
            case.works(2)
            case.succeeds("FAILED", "FINISHED", tries=2)

    return scenario


def _fails_once(dag_id: str) -> Scenario:
    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, dag_id) as case:
            job_id = case.works()
            case.fail()
            case.works(2)
            case.says(f"LookupError: asked to fail, {job_id}")
            case.open()
            case.succeeds("FAILED", "FINISHED", tries=2)

    return scenario


def _out_of_time(dag_id: str) -> Scenario:
    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, dag_id) as case:
            case.works()
            assert case.run.wait() == "failed"
            case.wait_jobs("CANCELED")
            case.says("execution_timeout")
            assert case.run.xcom() is None

    return scenario


def refused_by_the_cluster(pair: AirflowPair, name: str) -> None:
    """The log says what is wrong; no job runs, and there is no retry."""
    with pair.case(name, "refused", is_open=True) as case:
        assert case.run.wait() == "failed"
        case.says("JSON values, the limit is")
        assert (case.jobs(), case.ledger(), case.run.xcom("job_id")) == ([], [], None)
        assert case.run.task()["state"] == "failed"
        assert len({number for number, _, _ in case.task_processes()}) == 1


def _run_deleted_while_it_works(dag_id: str) -> Scenario:
    """Airflow deletes ended runs only, and does not wait for their tasks. A run of the same name is another run.

    The number of tries varies: Airflow may take the end of the old worker for that of the new run's first try.
    """

    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, dag_id) as case:
            case.waits()
            case.run.mark_run("failed")
            case.run.delete()
            case.wait_jobs("CANCELED")
            case.make_run_again()
            case.works(2)
            case.open()
            case.succeeds("CANCELED", "FINISHED")

    return scenario


def run_deleted_behind_its_task(pair: AirflowPair, name: str) -> None:
    """The task only submits, so no process waits for the job."""
    with pair.case(name, "not_waiting") as case:
        job_id = case.works()
        assert case.run.wait() == "success"
        assert (case.run.xcom(), case.job_states()) == (job_id, ["RUNNING"])
        case.run.delete()
        case.wait_jobs("CANCELED")
        assert "ends" not in case.ledger()


def store_edited_by_hand(pair: AirflowPair, name: str) -> None:
    """After a clear, a finished task with an unreadable entry in the store submits a new job."""
    with pair.case(name, "inline", is_open=True) as case:
        case.succeeds("FINISHED", tries=1)
        for key in case.run.store():
            case.run.write_store(key, ["not", {"a": "job"}])
        case.run.clear()
        case.works(2)
        case.succeeds("FINISHED", "FINISHED", tries=2)


def _store_lost_while_it_works(value: object) -> Scenario:
    """The retry finds the job by the ids that tries choose."""

    def scenario(pair: AirflowPair, name: str) -> None:
        with pair.case(name, "inline") as case:
            job_id = case.works()
            if value is None:
                case.run.empty_store()
            else:
                case.run.write_store("flinklike_job", value)
            case.kill_task()
            case.says(f"Adopting job {job_id}")
            case.open()
            case.succeeds("FINISHED", tries=2)

    return scenario


def store_emptied_by_hand(pair: AirflowPair, name: str) -> None:
    with pair.case(name, "inline", is_open=True) as case:
        case.succeeds("FINISHED", tries=1)
        case.run.empty_store()
        case.run.clear()
        case.works(2)
        case.succeeds("FINISHED", "FINISHED", tries=2)


AT_ONCE_SHORT: Mapping[str, Scenario] = {
    "short_job": short_job,
    "inline_log": _shows_what_the_job_says("inline", while_deferred=False),
    "deferred_log": _shows_what_the_job_says("deferred", while_deferred=True),
    "sensor_beside_the_task": sensor_beside_the_task,
    "killed_at_stored": _killed_at("stored"),
    "killed_at_deferring": _killed_at("deferring", "deferred"),
    "killed_while_polling": killed_while_polling,
    "worker_gets_sigterm": worker_gets_sigterm,
    "marked_failed_inline": _marked("inline", "failed"),
    "marked_failed_deferred": _marked("deferred", "failed"),
    "cleared_inline": _cleared_while_it_works("inline"),
    "cleared_deferred": _cleared_while_it_works("deferred"),
    "cleared_after_success": _cleared_after_success("inline"),
}
AT_ONCE_LONG: Mapping[str, Scenario] = {
    "decorated_function": decorated_function,
    "hybrid_log": _shows_what_the_job_says("hybrid", while_deferred=True),
    "killed_at_building": _killed_at("building"),
    "killed_at_submitted": _killed_at("submitted"),
    "killed_at_returning": _killed_at("returning"),
    "killed_at_building_deferred": _killed_at("building", "deferred"),
    "killed_at_stored_deferred": _killed_at("stored", "deferred"),
    "killed_at_submitted_deferred": _killed_at("submitted", "deferred"),
    "killed_at_deferring_hybrid": _killed_at("deferring", "hybrid"),
    "killed_at_resumed": _killed_at("resumed", "deferred"),
    "killed_at_returning_deferred": _killed_at("returning", "deferred"),
    "killed_twice": killed_twice,
    "killed_in_the_last_try": killed_in_the_last_try,
    "killed_without_durable": killed_without_durable,
    "worker_gets_sigterm_long_ago": worker_gets_sigterm_long_ago,
    "worker_gets_sigterm_before_it_defers": worker_gets_sigterm_before_it_defers,
    "worker_gets_sigkill": worker_gets_sigkill,
    "supervisor_alone_gets_sigkill": supervisor_alone_gets_sigkill,
    "worker_goes_and_nobody_comes_back": worker_goes_and_nobody_comes_back,
    "marked_success_inline": _marked("inline", "success"),
    "marked_success_deferred": _marked("deferred", "success"),
    "run_marked_failed_inline": _run_marked_failed("inline"),
    "run_marked_failed_deferred": _run_marked_failed("deferred"),
    "cleared_after_success_deferred": _cleared_after_success("deferred"),
    "cleared_after_a_failure_inline": _cleared_after_a_failure("inline_once"),
    "cleared_after_a_failure_deferred": _cleared_after_a_failure("deferred_once"),
    "fails_once_inline": _fails_once("inline"),
    "fails_once_deferred": _fails_once("deferred"),
    "out_of_time_inline": _out_of_time("inline_timed"),
    "out_of_time_deferred": _out_of_time("deferred_timed"),
    "refused_by_the_cluster": refused_by_the_cluster,
    "run_deleted_inline": _run_deleted_while_it_works("inline"),
    "run_deleted_deferred": _run_deleted_while_it_works("deferred"),
    "run_deleted_behind_its_task": run_deleted_behind_its_task,
    "store_edited_by_hand": store_edited_by_hand,
    "store_emptied_by_hand": store_emptied_by_hand,
    "store_emptied_while_it_works": _store_lost_while_it_works(None),
    "store_edited_while_it_works": _store_lost_while_it_works("not a job"),
}
AT_ONCE_ALL = {**AT_ONCE_SHORT, **AT_ONCE_LONG}
ALONE_ALL = {**ALONE_SHORT, **ALONE_LONG}


def marked(short: Mapping[str, Scenario], long: Mapping[str, Scenario]) -> list[object]:
    return [*short, *(pytest.param(name, marks=pytest.mark.extended) for name in long)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowPair]:
    # On a busy machine a cluster may take longer than a minute to come back.
    patience = {"AIRFLOW__FLINKLIKE__FIRST_CONTACT_TIMEOUT": "600"}
    with AirflowPair(tmp_path_factory.mktemp("cases"), environment=patience) as made:
        yield made


@pytest.fixture(scope="module")
def scenarios(pair: AirflowPair, request: pytest.FixtureRequest) -> Iterator[Scenarios]:
    """Start all selected scenarios."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    names = [str(item.callspec.params["at_once"]) for item in items if "at_once" in item.fixturenames]
    running = Scenarios(pair, {name: AT_ONCE_ALL[name] for name in names}, at_once=AT_ONCE)
    yield running
    running.close()


@pytest.mark.parametrize("at_once", marked(AT_ONCE_SHORT, AT_ONCE_LONG))
def test_beside_others(scenarios: Scenarios, at_once: str) -> None:
    scenarios.result(at_once)


@pytest.mark.parametrize("alone", marked(ALONE_SHORT, ALONE_LONG))
def test_alone(pair: AirflowPair, alone: str) -> None:
    ALONE_ALL[alone](pair, alone)
