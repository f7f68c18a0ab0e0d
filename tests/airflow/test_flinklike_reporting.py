"""Reports of a task about its job: log lines, the link, XComs, asset events, lineage."""

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_flinklike.exceptions import JobFailedError, ResultTooLargeError
from airflow_flinklike.links.job import FlinklikeJobLink
from airflow_flinklike.operators.submit import FlinklikeSubmitOperator
from airflow_flinklike.task_instance.openlineage import LineageJob
from airflow_flinklike.triggers.job import FlinklikeJobTrigger
from tests.kit.airflow.context import context
from tests.kit.airflow.jobs import deferred, only_job, submit
from tests.kit.host.heard import Heard
from tests.kit.rest.fake_cluster import FakeCluster

# --- log ----------------------------------------------------------------------------------------------------


def until(rest: FakeCluster, condition: Callable[[], bool]) -> None:
    with rest.changed:
        assert rest.changed.wait_for(condition, timeout=20)


def looks(rest: FakeCluster) -> int:
    return sum(path.endswith("/logs") for _, path in rest.requests)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """The lines of the operator and of its trigger."""
    made = Heard()
    monkeypatch.setattr(FlinklikeSubmitOperator, "log", made.log)
    monkeypatch.setattr(FlinklikeJobTrigger, "log", made.log)
    return made


def test_lines_appear_while_the_job_runs(rest: FakeCluster, heard: Heard) -> None:
    rest.outputs["hang"] = b"first\n"
    operator = submit("hang")
    worker = threading.Thread(target=operator.execute, args=(context(),))
    worker.start()
    until(rest, lambda: looks(rest) == 1)
    job_id, _ = only_job(rest)
    rest.write(job_id, b"second\nthi")
    until(rest, lambda: looks(rest) == 2)
    rest.write(job_id, b"rd\n")
    rest.finish(job_id, None)
    worker.join(20)
    assert [line for line in heard.lines if not line.startswith("Job ")] == [
        f"Submitted job {job_id} (hang): {rest.url}/ui/jobs/{job_id}",
        "==> read stdout",
        "first",
        "second",
        "third",
    ]


def test_a_failure_names_the_page_of_its_job(rest: FakeCluster, heard: Heard) -> None:
    with pytest.raises(JobFailedError):
        submit("fail").execute(context())
    job_id, _ = only_job(rest)
    (line,) = [one for one in heard.warnings if one.startswith(f"Job {job_id} FAILED: ")]
    assert line.endswith(f"\nAttempts and logs: {rest.url}/ui/jobs/{job_id}")


def test_what_the_cluster_warns_of_is_in_the_log(rest: FakeCluster, heard: Heard) -> None:
    rest.warnings = ["queue elt: it has no options"]
    submit("finish").execute(context())
    assert heard.warnings.count(rest.warnings[0]) == 1


def test_a_short_job_costs_one_request_for_its_log(rest: FakeCluster, heard: Heard) -> None:
    rest.outputs["finish"] = b"hello\n"
    operator = submit("finish")
    operator.execute(context())
    job_id, _ = only_job(rest)
    assert [(method, path.partition("?")[0]) for method, path in rest.requests] == [
        ("POST", "/jobs"),
        ("GET", f"/jobs/{job_id}/execution-result"),
        ("POST", f"/jobs/{job_id}/logs"),
    ]
    assert "hello" in heard.lines
    rest.requests.clear()
    submit("finish", log_limit=0).execute(context())
    assert looks(rest) == 0


def test_the_limit_points_to_the_rest(rest: FakeCluster, heard: Heard) -> None:
    rest.outputs["finish"] = b"line\n" * 1000
    operator = submit("finish", log_limit=500)
    operator.execute(context())
    job_id, _ = only_job(rest)
    rest_of = f"{rest.url}/ui/jobs/{job_id}, or flinklike logs {job_id}"
    assert f"The output goes on (log_limit=500 is used up): {rest_of}" in heard.lines
    assert heard.lines.count("line") < 10


@pytest.mark.asyncio
async def test_a_deferral_repeats_and_loses_nothing(rest: FakeCluster, heard: Heard) -> None:
    rest.outputs["hang"] = b"first\nsecond\n"
    operator = submit("hang", deferrable=True, inline_timeout=1.5)
    trigger: Any = deferred(operator).trigger
    job_id = trigger.job_id
    rest.write(job_id, b"third\nfou")
    path, kwargs = trigger.serialize()
    assert path.endswith(".FlinklikeJobTrigger")
    kept = json.dumps(kwargs)
    assert "first" not in kept
    assert len(kept) < 1000
    again = FlinklikeJobTrigger(**json.loads(kept))

    def write_and_finish() -> None:
        until(rest, lambda: looks(rest) == 2)
        rest.write(job_id, b"rth\n")
        rest.finish(job_id, 4)

    ending = threading.Thread(target=write_and_finish)
    ending.start()
    [event] = [event.payload async for event in again.run()]
    ending.join()
    assert "third" not in json.dumps(event)
    back = submit("hang")
    assert back.execute_complete(context(), json.loads(json.dumps(event))) == 4
    words = {"first", "second", "third", "fourth"}
    assert [line for line in heard.lines if line in words] == ["first", "second", "third", "fourth"]


# --- XCom and link --------------------------------------------------------------------------------------------


def test_a_value_above_the_limit_fails_without_a_retry_and_says_what_to_do(rest: FakeCluster) -> None:
    rest.results["finish"] = "x" * 50_000
    with pytest.raises(ResultTooLargeError, match=r"xcom_limit is 49152: .*ctx\.output_path\(\)") as caught:
        submit("finish").execute(context())
    assert isinstance(caught.value, AirflowFailException)
    assert submit("finish", xcom_limit=60_000).execute(context()) == "x" * 50_000
    assert submit("finish", xcom_limit=None).execute(context()) == "x" * 50_000
    assert submit("finish", do_xcom_push=False).execute(context()) == "x" * 50_000


def test_the_link_is_the_xcom_job_url_for_plain_and_mapped_tasks() -> None:
    from airflow.sdk import DAG
    from airflow.serialization.serialized_objects import DagSerialization

    with DAG(dag_id="linked", schedule=None) as dag:
        submit(task_id="one", pipeline="jobs.code:build")
        FlinklikeSubmitOperator.partial(task_id="many", pipeline="jobs.code:build").expand(pipeline_params=[{}, {}])
    found = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    for task in found.tasks:
        [link] = task.operator_extra_links
        assert (link.name, link.xcom_key) == ("Flinklike job", "job_url")
    assert FlinklikeJobLink().xcom_key == "job_url"


# --- assets ---------------------------------------------------------------------------------------------------


def test_outlets_get_what_the_job_wrote(rest: FakeCluster) -> None:
    rest.written = {"write-records": 7, "write-bytes": 300}
    rest.results["finish"] = {"files": 2, "rows": 8}
    table, other = Asset("s3://lake/table"), Asset("s3://lake/other")
    events = OutletEventAccessors()
    events[other].extra["rows"] = 1
    submit("finish", outlets=[table, other]).execute(context(outlet_events=events))
    job_id, _ = only_job(rest)
    facts = {"job_id": job_id, "job_url": f"{rest.url}/ui/jobs/{job_id}", "rows": 8, "bytes": 300, "files": 2}
    assert events[table].extra == facts
    assert events[other].extra == {**facts, "rows": 1}
    assert ("GET", f"/jobs/{job_id}") in rest.requests


def test_a_task_without_outlets_asks_for_nothing(rest: FakeCluster) -> None:
    submit("finish").execute(context())
    job_id, _ = only_job(rest)
    assert ("GET", f"/jobs/{job_id}") not in rest.requests


# --- OpenLineage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["finish", "fail"])
def test_lineage_names_the_job(rest: FakeCluster, name: str) -> None:
    operator = submit(name)
    assert operator.lineage_job() is None
    with pytest.raises(JobFailedError) if name == "fail" else nullcontext():
        operator.execute(context())
    job_id, _ = only_job(rest)
    assert operator.lineage_job() == LineageJob(job_id, rest.url)


def test_what_the_provider_injects_is_in_the_submitted_conf(rest: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def inject(properties: dict[str, Any], seen: Any) -> dict[str, Any]:
        return {**properties, "spark.openlineage.parentJobName": seen["run_id"]}

    monkeypatch.setattr(
        "airflow_flinklike.task_instance.openlineage._injection", lambda name: inject if "parent" in name else None
    )
    submit("finish", openlineage_inject_parent_job_info=True, openlineage_inject_transport_info=True).execute(context())
    _, submitted = only_job(rest)
    assert submitted.graph["spark_conf"] == {"spark.openlineage.parentJobName": "manual__1"}


def test_nothing_is_injected_by_default_and_the_provider_is_never_imported(rest: FakeCluster) -> None:
    import sys

    submit("finish").execute(context())
    _, submitted = only_job(rest)
    assert submitted.graph["spark_conf"] == {}
    assert not [name for name in sys.modules if name.startswith("airflow.providers.openlineage")]


def test_the_defaults_are_those_of_the_provider(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    code = (
        "from airflow_flinklike.operators.submit import FlinklikeSubmitOperator as O\n"
        "o = O(task_id='t', application='x.py')\n"
        "print(o.openlineage_inject_parent_job_info, o.openlineage_inject_transport_info)"
    )
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO": "True",
    }
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-2:] == ["True", "False"]
