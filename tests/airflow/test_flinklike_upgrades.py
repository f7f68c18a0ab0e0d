"""What a streaming job is started with, and how the one job of all runs is replaced when its code has changed."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_flinklike import Pipeline
from airflow_flinklike.decorators.flinklike import FlinklikeDecoratedOperator
from airflow_flinklike.exceptions import JobRefusedError, PipelineError, SavepointFailedError
from airflow_flinklike.operators.calls import CallInterruptedError
from airflow_flinklike.operators.job_run import JobRun
from airflow_flinklike.operators.sql import FlinklikeSqlOperator
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from tests.airflow.test_flinklike_streams import canceled, run_of
from tests.kit.airflow.context import context
from tests.kit.airflow.jobs import only_job
from tests.kit.host.levels import reached
from tests.kit.rest.fake_cluster import FakeCluster

Build = Callable[[], Pipeline]


def stream(interval: str = "1 second", **options: Any) -> Build:
    def build() -> Pipeline:
        pipeline = Pipeline("hang-orders", **options)
        pipeline.stream_source("orders", "jobs.code:read").stream_sink(
            "kept", "jobs.code:keep", trigger=interval, foreach_batch=True
        )
        return pipeline

    return build


def submit(interval: str = "1 second", *, options: Any = None, **fields: Any) -> FlinklikeSubmitOperator:
    made = stream(interval, **(options or {}))
    return FlinklikeSubmitOperator(**{"task_id": "run", "pipeline": made, "poll_interval": 0.2, **fields})


def ensure(interval: str = "1 second", **fields: Any) -> FlinklikeSubmitOperator:
    return submit(interval, ensure_running=True, **fields)


def statuses(rest: FakeCluster) -> list[str]:
    return [job.status for job in rest.jobs.values()]


def started_from(rest: FakeCluster, job_id: str) -> str:
    found = rest.jobs[job_id].graph.get("savepoint")
    return "" if found is None else str(found["path"])


# --- configuration, savepoints --------------------------------------------------------------------------------


def test_a_pipeline_has_options_of_the_cluster_for_itself(rest: FakeCluster) -> None:
    own = {"configuration": {"execution.checkpointing.interval": "1 min", "execution.checkpointing.timeout": "1 h"}}
    given = {"execution.checkpointing.interval": "{{ params.interval }}", "execution.checkpointing.num-retained": 3}
    operator = submit(options=own, configuration=given, wait_for="running")
    operator.configuration = {**given, "execution.checkpointing.interval": "10 s"}  # rendered
    operator.execute(context())
    assert only_job(rest)[1].graph["configuration"] == {
        "execution.checkpointing.interval": "10 s",
        "execution.checkpointing.timeout": "1 h",
        "execution.checkpointing.num-retained": "3",
    }


def test_scripts_functions_and_statements_have_it_too(rest: FakeCluster, tmp_path: Any) -> None:
    (tmp_path / "finish.py").write_text("print(1)\n")
    given: Any = {"configuration": '{"execution.checkpointing.interval": "10 s"}', "task_id": "run"}
    FlinklikeSubmitOperator(application=str(tmp_path / "finish.py"), name="finish", **given).execute(context())
    FlinklikeSqlOperator(sql="select 1", name="finish-sql", **given).execute(context())
    operator = FlinklikeDecoratedOperator(python_callable=lambda: 1, **given)
    graphs = [job.graph for job in rest.jobs.values()]
    graphs.append(operator.build_program(context()).graph.document())
    assert [one["configuration"] for one in graphs] == 3 * [{"execution.checkpointing.interval": "10 s"}]


def test_what_is_no_option_is_refused_when_the_dag_is_parsed() -> None:
    with pytest.raises(PipelineError, match=r"configuration: execution.checkpointing.interval is a bool"):
        submit(configuration={"execution.checkpointing.interval": True})


def test_a_script_may_stream(rest: FakeCluster, tmp_path: Any) -> None:
    (tmp_path / "hang.py").write_text("print(1)\n")
    given: Any = {"task_id": "run", "application": str(tmp_path / "hang.py"), "wait_for": "running"}
    FlinklikeSubmitOperator(streaming=True, **given).execute(context())
    (vertex,) = only_job(rest)[1].graph["vertices"]
    assert vertex["operators"][0]["code"]["starts_queries"]
    with pytest.raises(PipelineError, match="streaming is for application="):
        submit(streaming=True)


def test_a_script_has_a_name_for_its_state(rest: FakeCluster, tmp_path: Any) -> None:
    (tmp_path / "hang.py").write_text("print(1)\n")
    given: Any = {"task_id": "run", "application": str(tmp_path / "hang.py"), "wait_for": "running"}
    FlinklikeSubmitOperator(streaming=True, checkpoint_name="orders", **given).execute(context())
    assert only_job(rest)[1].graph["checkpoint_name"] == "orders"
    with pytest.raises(PipelineError, match="give it to the Pipeline"):
        submit(checkpoint_name="orders")


def test_a_job_is_started_from_a_savepoint(rest: FakeCluster) -> None:
    fields: Any = {"from_savepoint": "/s/savepoint-1", "allow_non_restored_state": True, "claim_mode": "claim"}
    submit(wait_for="running", **fields).execute(context())
    assert only_job(rest)[1].graph["savepoint"] == {
        "path": "/s/savepoint-1",
        "allow_non_restored_state": True,
        "claim_mode": "CLAIM",
    }


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"claim_mode": "CLAIM"}, "claim_mode are of from_savepoint"),
        ({"allow_non_restored_state": True}, "claim_mode are of from_savepoint"),
        ({"from_savepoint": "relative"}, "absolute path"),
        ({"from_savepoint": "/s", "claim_mode": "LEGACY"}, "'LEGACY' is none of NO_CLAIM, CLAIM"),
        ({"savepoint_directory": "/s"}, "ensure_running=True"),
        ({"savepoint_directory": "s3://s", "ensure_running": True}, "absolute path"),
    ],
)
def test_what_makes_no_sense_is_refused_when_the_dag_is_parsed(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        submit(**fields)


def test_an_xcom_without_a_savepoint_starts_nothing_from_the_sources(rest: FakeCluster) -> None:
    operator = submit(from_savepoint="{{ ti.xcom_pull(task_ids='stop') }}")
    operator.from_savepoint = "None"  # rendered
    with pytest.raises(PipelineError, match="'None' is no directory for savepoints"):
        operator.execute(context())
    assert not rest.jobs


# --- ensure_running when the code has changed -----------------------------------------------------------------


def test_the_same_code_leaves_the_job_alone(rest: FakeCluster) -> None:
    found = {ensure().execute(run_of(number, params={"day": number})) for number in range(3)}
    assert found == {only_job(rest)[0]}
    assert " code " in only_job(rest)[1].client


def test_changed_code_goes_on_from_a_savepoint_of_the_job_before(rest: FakeCluster) -> None:
    first = ensure(savepoint_directory="/shared").execute(run_of(1))
    second = ensure("2 seconds", savepoint_directory="/shared").execute(run_of(2))
    assert statuses(rest) == ["FINISHED", "RUNNING"]
    assert started_from(rest, second) == f"/shared/savepoint-{first[:6]}-1"
    third = ensure("3 seconds").execute(run_of(3))
    assert started_from(rest, third).startswith(f"/savepoints/savepoint-{second[:6]}")
    assert not rest.cancels


@pytest.mark.parametrize("dies_at", ["_submit", "_going_on"])
def test_a_worker_that_dies_between_stop_and_submit_loses_nothing(
    rest: FakeCluster, monkeypatch: pytest.MonkeyPatch, dies_at: str
) -> None:
    first = ensure().execute(run_of(1))

    def dies(*_: Any) -> Any:
        raise CallInterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(JobRun, dies_at, dies)
        with pytest.raises(Exception, match="killed before it had a job"):
            ensure("2 seconds").execute(run_of(2))
    assert statuses(rest) == ["FINISHED"]
    for run in (run_of(2, try_number=2), run_of(3)):
        second = ensure("2 seconds").execute(run)
        assert started_from(rest, second).startswith(f"/savepoints/savepoint-{first[:6]}")
    assert statuses(rest) == ["FINISHED", "RUNNING"]


def test_a_worker_that_dies_during_the_stop_is_followed_by_one_that_waits_for_it(rest: FakeCluster) -> None:
    first = ensure().execute(run_of(1))
    rest.savepoint_outcomes = ["-"]
    operator = ensure("2 seconds")

    def kill_during_the_stop() -> None:
        reached(lambda: rest.jobs[first].operations, "the stop is asked for")
        operator.on_kill()

    killer = threading.Thread(target=kill_during_the_stop)
    killer.start()
    with pytest.raises(Exception, match="killed before it had a job"):
        operator.execute(run_of(2))
    killer.join()
    (trigger_id,) = rest.jobs[first].operations
    timer = threading.Timer(0.3, rest.complete, (first, trigger_id))
    timer.start()
    second = ensure("2 seconds").execute(run_of(2, try_number=2))
    timer.join()
    assert len(rest.jobs[first].operations) == 1
    assert started_from(rest, second)


def test_a_stop_that_fails_leaves_the_job_and_the_next_try_asks_again(rest: FakeCluster) -> None:
    first = ensure().execute(run_of(1))
    rest.savepoint_outcomes = ["no space left"]
    with pytest.raises(SavepointFailedError, match="no space left"):
        ensure("2 seconds").execute(run_of(2))
    assert statuses(rest) == ["RUNNING"]
    second = ensure("2 seconds").execute(run_of(2, try_number=2))
    assert started_from(rest, second).startswith(f"/savepoints/savepoint-{first[:6]}")


def test_a_job_that_fails_after_its_upgrade_is_followed_by_one_from_the_same_savepoint(rest: FakeCluster) -> None:
    first = ensure().execute(run_of(1))
    second = ensure("2 seconds").execute(run_of(2))
    rest.jobs[second].status = "FAILED"
    third = ensure("3 seconds").execute(run_of(3))
    assert started_from(rest, third) == started_from(rest, second) != ""
    assert started_from(rest, third).startswith(f"/savepoints/savepoint-{first[:6]}")


def test_a_job_that_somebody_has_cancelled_begins_anew(rest: FakeCluster) -> None:
    ensure().execute(run_of(1))
    second = ensure("2 seconds").execute(run_of(2))
    canceled(rest, second)
    assert started_from(rest, ensure("2 seconds").execute(run_of(3))) == ""
    assert started_from(rest, second) != ""


def test_a_job_with_a_name_for_its_state_is_stopped_and_goes_on_there(rest: FakeCluster) -> None:
    options = {"checkpoint_name": "orders"}
    ensure(options=options).execute(run_of(1))
    second = ensure("2 seconds", options=options).execute(run_of(2))
    assert statuses(rest) == ["FINISHED", "RUNNING"]
    assert started_from(rest, second) == "", "the cluster refuses both at once"


def test_a_job_is_not_stopped_for_code_that_has_no_query_for_its_state(rest: FakeCluster) -> None:
    first = ensure().execute(run_of(1))
    rest.tell_query(first, "kept")
    rest.tell_query(first, "ledger")
    with pytest.raises(JobRefusedError, match=r"state of 'ledger', and the changed code .* runs on with the code"):
        ensure("2 seconds").execute(run_of(2))
    assert (statuses(rest), rest.jobs[first].operations) == (["RUNNING"], {})
    second = ensure("2 seconds", allow_non_restored_state=True).execute(run_of(3))
    assert statuses(rest) == ["FINISHED", "RUNNING"]
    assert started_from(rest, second)


def test_a_job_is_not_stopped_for_code_of_another_parallelism(rest: FakeCluster) -> None:
    first = ensure().execute(run_of(1))
    rest.tell_query(first, "kept")
    with pytest.raises(JobRefusedError, match=r"has parallelism 1, and the changed code gives it 2: .* runs on with"):
        ensure("2 seconds", options={"parallelism": 2}).execute(run_of(2))
    assert statuses(rest) == ["RUNNING"]


def test_a_job_of_an_earlier_release_is_left_alone(rest: FakeCluster) -> None:
    first = ensure().execute(run_of(1))
    rest.jobs[first].client = "airflow dag.run scheduled__1"
    assert ensure("2 seconds").execute(run_of(2)) == first


def script(directory: Path, text: str, **fields: Any) -> FlinklikeSubmitOperator:
    (directory / "hang.py").write_text(text)
    given: Any = {"task_id": "run", "application": str(directory / "hang.py"), "poll_interval": 0.2, **fields}
    return FlinklikeSubmitOperator(ensure_running=True, **{"streaming": True, **given})


def test_a_changed_script_goes_on_from_a_savepoint_of_the_one_before(rest: FakeCluster, tmp_path: Path) -> None:
    first = script(tmp_path, "print(1)").execute(run_of(1))
    assert script(tmp_path, "print(1)").execute(run_of(2)) == first
    second = script(tmp_path, "print(2)", savepoint_directory="/shared").execute(run_of(3))
    assert statuses(rest) == ["FINISHED", "RUNNING"]
    assert started_from(rest, second) == f"/shared/savepoint-{first[:6]}-1"
    rest.jobs[second].status = "FAILED"
    third = script(tmp_path, "print(2)").execute(run_of(4))
    assert started_from(rest, third) == started_from(rest, second), "it loses nothing"
    canceled(rest, third)
    assert started_from(rest, script(tmp_path, "print(2)").execute(run_of(5))) == ""


def test_a_script_with_a_name_for_its_state_goes_on_there(rest: FakeCluster, tmp_path: Path) -> None:
    script(tmp_path, "print(1)", checkpoint_name="orders").execute(run_of(1))
    second = script(tmp_path, "print(2)", checkpoint_name="orders").execute(run_of(2))
    assert (statuses(rest), started_from(rest, second)) == (["FINISHED", "RUNNING"], "")


def test_a_pipeline_follows_a_script_by_the_names_of_its_queries(rest: FakeCluster, tmp_path: Path) -> None:
    first = script(tmp_path, "print(1)").execute(run_of(1))
    with pytest.raises(JobRefusedError, match="state of 'rows', and the changed code has no query of that uid"):
        ensure().execute(run_of(2))
    rest.tell_script(first, {"name": "kept"})
    assert started_from(rest, ensure().execute(run_of(3)))


def test_a_job_without_state_runs_on_with_its_code_and_the_log_says_so(
    rest: FakeCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = script(tmp_path, "print(1)", streaming=False).execute(run_of(1))
    capsys.readouterr()
    assert script(tmp_path, "print(2)", streaming=False).execute(run_of(2)) == first
    assert "has another code than this run, and runs on with it" in capsys.readouterr().out
    del rest
