"""The trace of a job in a collector: below its caller, whole, once, and over a loss of its owner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="pip install -r requirements/traces.txt")

from airflow_flinklike.client import FlinklikeClient, new_job_id
from airflow_flinklike.exceptions import JobNotFoundError
from runtime.common.states import JobStatus
from runtime.traces.span import span_id
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.naps import attempts
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.services.otlp_receiver import OtlpReceiver, ReceivedSpan
from tests.process.conftest import WITHOUT_SPARK

pytestmark = [pytest.mark.process, pytest.mark.etcd]

TRACE, PARENT = "c" * 32, "d" * 16
CALLER = f"00-{TRACE}-{PARENT}-01"
NO_OP = job_graph("no-op", "tests.benchmarks.programs:no_op")


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver().serving() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(receiver: OtlpReceiver) -> Iterator[ScriptCluster]:
    options = {
        **WITHOUT_SPARK,
        "traces.reporters": "otlp",
        "traces.reporter.otlp.exporter.endpoint": receiver.endpoint,
        "traces.reporter.otlp.service.name": "nightly",
        "metrics.reporters": "otlp",
        "metrics.reporter.otlp.exporter.endpoint": f"{receiver.address}/v1/metrics",
        "metrics.reporter.otlp.interval": "1 s",
        "env.log.format": "json",
    }
    with ScriptCluster(options, job_masters=2) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


def of_job(receiver: OtlpReceiver, job_id: str) -> dict[str, list[ReceivedSpan]]:
    """All spans below that of the job, with it, by name, once it has arrived."""
    reached(lambda: any(one.id == span_id(job_id) for one in receiver.spans), "the span of the job")
    reached(lambda: any(one.id == span_id(job_id, "submit") for one in receiver.spans), "the span of the submit")
    ids, found = {span_id(job_id)}, [one for one in receiver.spans if one.id == span_id(job_id)]
    for _ in range(3):
        new = [one for one in receiver.spans if one.parent_id in ids and one not in found]
        found += new
        ids |= {one.id for one in new}
    names: dict[str, list[ReceivedSpan]] = {}
    for one in found:
        names.setdefault(one.name, []).append(one)
    return names


def test_a_job_is_below_the_span_of_its_caller(
    client: FlinklikeClient, receiver: OtlpReceiver, cluster: ScriptCluster
) -> None:
    job = new_job_id()
    client.submit(NO_OP, job_id=job, traceparent=CALLER)
    client.submit(NO_OP, job_id=job, traceparent=f"00-{'e' * 32}-{PARENT}-01")
    assert client.wait_for_result(job).status is JobStatus.FINISHED
    spans = of_job(receiver, job)
    (of_it,) = spans["job no-op"]
    assert (of_it.trace_id, of_it.parent_id, of_it.service) == (TRACE, PARENT, "nightly")
    assert of_it.attributes["flinklike.job.status"] == "FINISHED"
    assert {"submit", "assignment", "wait", "deployment", "run"} <= spans.keys()
    assert all(len(found) == 1 for found in spans.values()), "each once, although it was submitted twice"
    assert {one.trace_id for found in spans.values() for one in found} == {TRACE}
    assert client.get(f"/jobs/{job}")["trace-id"] == TRACE
    told = {line["process"] for line in lines(cluster) if line.get("job") == job and line.get("trace_id") == TRACE}
    assert "jobmanager" in told
    assert not [line for line in lines(cluster) if line.get("job") == job and line.get("trace_id", TRACE) != TRACE]


def lines(cluster: ScriptCluster) -> Iterator[dict[str, str]]:
    for path in (cluster.run / "run" / "log").glob("*.log"):
        for line in path.read_text().splitlines():
            if line.startswith("{"):
                yield json.loads(line)


def test_a_caller_that_is_not_sampled_has_no_trace(client: FlinklikeClient, receiver: OtlpReceiver) -> None:
    silent, loud = new_job_id(), new_job_id()
    client.submit(NO_OP, job_id=silent, traceparent=f"00-{'f' * 32}-{PARENT}-00")
    client.wait_for_result(silent)
    client.submit(NO_OP, job_id=loud)
    client.wait_for_result(loud)
    spans = of_job(receiver, loud)
    assert (spans["job no-op"][0].trace_id, spans["job no-op"][0].parent_id) == (loud, ""), "a trace of its own"
    assert [one for one in receiver.spans if one.trace_id == "f" * 32] == []
    assert client.get(f"/jobs/{silent}")["trace-id"] == "f" * 32


def test_the_command_passes_its_trace_on(cluster: ScriptCluster, receiver: OtlpReceiver, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('done')\n")
    job = new_job_id()
    command = [str(ROOT / "bin" / "flinklike"), "run", "--job-id", job, str(script)]
    environment = {**cluster.environment, "TRACEPARENT": f"00-{'1' * 32}-{PARENT}-01"}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=200)
    assert of_job(receiver, job)["job script.py"][0].trace_id == "1" * 32


def test_the_next_owner_tells_the_whole_trace_once(
    client: FlinklikeClient, receiver: OtlpReceiver, cluster: ScriptCluster
) -> None:
    job = new_job_id()
    nap = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 600})
    client.submit(nap, job_id=job, traceparent=f"00-{'2' * 32}-{PARENT}-01")
    reached(lambda: [state for _, state in attempts(client, [job])] == ["RUNNING"], "the task runs")
    owner = client.get(f"/jobs/{job}")["jobmaster-id"]
    os.kill(pid_of(cluster, client, owner), signal.SIGKILL)
    reached(lambda: client.get(f"/jobs/{job}")["jobmaster-id"] not in {"", owner}, "the job has another owner")
    reached(lambda: [state for _, state in attempts(client, [job])] == ["RUNNING"], "the task goes on")
    client.cancel(job)
    assert client.wait_for_result(job).status is JobStatus.CANCELED
    spans = of_job(receiver, job)
    (of_it,) = spans["job nap"]
    assert (of_it.trace_id, of_it.parent_id, of_it.events) == ("2" * 32, PARENT, ("takeover",))
    assert all(len(found) == 1 for found in spans.values()), "no span twice"
    assert "run" in spans


def pid_of(cluster: ScriptCluster, client: FlinklikeClient, owner: str) -> int:
    """The JobMaster process: its log names the incarnation."""
    for line in lines(cluster):
        message = line.get("message", "")
        if owner in message and message.startswith("jobmaster") and "starts (pid" in message:
            return int(line["pid"])
    raise AssertionError(owner)


def test_all_processes_send_metrics_to_the_same_collector(client: FlinklikeClient, receiver: OtlpReceiver) -> None:
    job = new_job_id()
    client.submit(NO_OP, job_id=job)
    client.wait_for_result(job)
    wanted = {
        ("jobmanager", "flinklike_job_submits_total"),
        ("jobmaster", "flinklike_jobmaster_jobs"),
        ("taskmanager", "flinklike_taskmanager_tasks_started_total"),
        *((process, "flinklike_process_cpu_seconds_total") for process in ("jobmanager", "jobmaster", "taskmanager")),
    }
    reached(lambda: wanted <= receiver.metrics.keys(), "metrics of all processes")
    with pytest.raises(JobNotFoundError, match=r"set metrics\.reporters: prometheus"):
        client.get("/metrics")
    assert client.get("/metrics/targets") == []
