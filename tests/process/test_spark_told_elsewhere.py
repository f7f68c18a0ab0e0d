"""What others hear of Spark's work: a collector its stages as spans, and Spark's own history server its event logs."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="pip install -r requirements/traces.txt")

from runtime.taskexecutor.driver_jvm.command import spark_home
from runtime.taskexecutor.driver_jvm.java import java_of_spark
from tests.kit.cluster.script_cluster import ScriptCluster, free_port
from tests.kit.host.levels import reached
from tests.kit.services.otlp_receiver import OtlpReceiver
from tests.process.conftest import SPARK

pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.spark, pytest.mark.timeout(900)]

JOB = """
from airflow_flinklike import function_job

def work(ctx):
    ctx.spark.sparkContext.setJobDescription("sums by key")
    return ctx.spark.range(0, 1000, 1, 2).selectExpr("id % 7 as k").groupBy("k").count().count()

working = function_job(work)
"""


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with OtlpReceiver().serving() as made:
        yield made


@pytest.fixture(scope="module")
def event_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("event-logs")


@pytest.fixture(scope="module")
def cluster(receiver: OtlpReceiver, event_logs: Path, class_archive: Path | None) -> Iterator[ScriptCluster]:
    options = {
        **SPARK,
        "traces.reporters": "otlp",
        "traces.reporter.otlp.exporter.endpoint": receiver.endpoint,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_logs.as_uri(),
    }
    with ScriptCluster(options, job_masters=1, class_archive=class_archive) as made:
        yield made


@pytest.fixture(scope="module")
def done(cluster: ScriptCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A job that has used Spark; its name."""
    file = tmp_path_factory.mktemp("job") / "shops.py"
    file.write_text(JOB)
    ran = cluster.cli("run", f"{file}:working")
    assert ran.returncode == 0, ran.stderr
    return "work"


def test_stages_are_spans_below_their_attempt(receiver: OtlpReceiver, done: str) -> None:
    reached(lambda: any(one.name.startswith("stage ") for one in receiver.spans), "a span of a stage")
    attempts = {one.id: one for one in receiver.spans if one.name.startswith(done)}
    stages = [one for one in receiver.spans if one.name.startswith("stage ")]
    assert {one.parent_id for one in stages} <= attempts.keys()
    for stage in stages:
        of_it = attempts[stage.parent_id]
        assert stage.trace_id == of_it.trace_id
        assert of_it.start_nanos <= stage.start_nanos <= stage.end_nanos <= of_it.end_nanos
    assert sum(one.attributes["flinklike.spark.tasks"] for one in stages) >= 3


@contextmanager
def history_of(directory: Path, tmp_path: Path) -> Iterator[str]:
    """Spark's own history server over event logs; its address."""
    port, home, java = free_port(), spark_home(), java_of_spark(os.environ)
    options = [f"-Dspark.history.fs.logDirectory={directory.as_uri()}", f"-Dspark.history.ui.port={port}"]
    options += ["-Dspark.history.fs.update.interval=1s", "-Xmx400m"]
    command = [str(java.executable), *options, "-cp", f"{home}/jars/*", "org.apache.spark.deploy.history.HistoryServer"]
    with (tmp_path / "history.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
    try:
        yield f"http://127.0.0.1:{port}/api/v1/applications"
    finally:
        server.kill()
        server.wait()


def asked(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)
    except OSError:
        return []


@pytest.mark.extended
def test_sparks_own_history_server_reads_the_event_logs(
    cluster: ScriptCluster, event_logs: Path, done: str, tmp_path: Path
) -> None:
    assert done
    with history_of(event_logs, tmp_path) as applications:
        reached(lambda: asked(applications), "the application of the warm JVM is in the history")
        (application,) = asked(applications)
        assert not application["attempts"][0]["completed"], "its JVM runs"
        jobs = f"{applications}/{application['id']}/jobs"
        reached(lambda: [one for one in asked(jobs) if one.get("description") == "sums by key"], "the job is told")
        cluster.stop()
        reached(lambda: asked(applications)[0]["attempts"][0]["completed"], "its JVM has ended its log")
        assert {one["status"] for one in asked(jobs)} == {"SUCCEEDED"}
