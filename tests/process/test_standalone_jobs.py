"""bin/standalone-job.sh: one job as its own cluster, by real processes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.entrypoint.application import application_job_id
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process]

WITHOUT_STORE = {
    "high-availability.type": "none",
    "high-availability.etcd.embedded": "false",
    "resourcemanager.driver": "process",
    "resourcemanager.previous-worker.recovery.timeout": "0 ms",
    "taskmanager.spark.enabled": "false",
    "taskmanager.numberOfTaskSlots": "1",
}
WITH_STORE = {
    **WITHOUT_STORE,
    "high-availability.type": "etcd",
    "high-availability.etcd.embedded": "true",
    "high-availability.lease-timeout": "3 s",
}
SCRIPT = """
import pathlib, sys, time
folder, wait_for, failure = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
with (folder / "runs").open("a") as file:
    file.write("run\\n")
while wait_for and not (folder / wait_for).exists():
    time.sleep(0.05)
if failure:
    raise ValueError(" ".join(failure))
"""
MODULE = """
from airflow_flinklike import Pipeline

pipeline = Pipeline("daily-sales")
pipeline.source("orders", lambda ctx: [3, 4]).sink("report", lambda ctx, rows: {"sum": sum(rows[0])})
broken = Pipelin("typo")
"""


class Application(ScriptCluster):
    """A directory for one job and its cluster. Nothing is started before `start_job`."""

    def __init__(self, options: dict[str, str], cluster_id: str = "sales") -> None:
        super().__init__({**options, "high-availability.cluster-id": cluster_id})
        self.job_id: JobId = application_job_id(cluster_id)
        self.folder = self.run / "job"
        self.folder.mkdir()
        (self.folder / "etl.py").write_text(SCRIPT)
        (self.folder / "sales.py").write_text(MODULE.replace('broken = Pipelin("typo")\n', ""))
        (self.folder / "typo.py").write_text(MODULE)
        self._foreground: list[subprocess.Popen[str]] = []

    def start_job(self, *words: str) -> subprocess.CompletedProcess[str]:
        """`start`, from the directory of the job."""
        return self.script("standalone-job.sh", "start", *self.dynamic, *words, cwd=self.folder)

    def foreground(self, *words: str) -> subprocess.Popen[str]:
        """`start-foreground`."""
        command = [str(ROOT / "bin" / "standalone-job.sh"), "start-foreground", *self.dynamic, *words]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, env=self.environment, cwd=self.folder, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        self._foreground.append(process)
        return process

    @property
    def runs(self) -> int:
        """How often the script has begun."""
        path = self.folder / "runs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def let_go(self) -> None:
        """The script goes on."""
        (self.folder / "go").touch()

    def pid(self) -> int:
        """Of the process of the application."""
        (pid,) = self.pids()["standalonejob"]
        return pid

    def ended(self, pid: int) -> None:
        """Wait until a process that is no child of ours has ended."""
        reached(lambda: not Path(f"/proc/{pid}").exists(), "the process has ended by itself")

    def close(self) -> None:
        """Without anything left."""
        for process in self._foreground:
            if process.poll() is None:
                process.kill()
            process.communicate()
        if (self.run / "run").exists():
            super().close()
        shutil.rmtree(self.run, ignore_errors=True)


@pytest.fixture
def application() -> Iterator[Application]:
    made = Application(WITHOUT_STORE)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def durable() -> Iterator[Application]:
    made = Application(WITH_STORE)
    try:
        yield made
    finally:
        made.close()


def output(process: subprocess.Popen[str]) -> list[str]:
    said, _ = process.communicate(timeout=240)
    return said.splitlines()


def test_a_pipeline_runs_and_nothing_is_left(application: Application) -> None:
    process = application.foreground("--job", "sales:pipeline")
    said = output(process)
    assert process.returncode == 0, application.logs()
    job = application.job_id
    assert f"Job {job} (daily-sales): {application.url}/ui/jobs/{job}" in said
    assert said[-1].startswith(f"Job {job} FINISHED after ")
    assert application.processes() == {}, "the TaskManagers that it has started are gone"
    assert list((application.run / "run" / "pid").glob("*.json")) == []


def test_a_script_gets_its_arguments_and_its_failure_is_the_exit_code(application: Application) -> None:
    process = application.foreground("--job", "etl.py", "--", str(application.folder), "", "no", "-D", "orders")
    said = output(process)
    assert process.returncode == 163, application.logs()
    assert f"Job {application.job_id} FAILED after " in said[-1]
    assert "ValueError: no -D orders" in said[-1]
    assert application.processes() == {}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--job", "typo.py:pipeline"), "typo.py, line 6: NameError: name 'Pipelin' is not defined"),
        (("--job", "nowhere:pipeline"), "nowhere"),
        (("--job", "sales:pipeline", "--", "2026-11-29"), "is not a script, so it takes no arguments"),
        (("--job", "etl.py", "--cnf", "a=b"), "No such option: --cnf"),
        (("--job", "etl.py", "-D", "execution.shutdown-on-attached-exit=true"), "is for start-foreground"),
    ],
)
def test_what_is_wrong_with_the_job_is_said_at_its_start(
    application: Application, words: tuple[str, ...], sentence: str
) -> None:
    done = application.start_job(*words)
    assert done.returncode == 1
    assert sentence in done.stderr, done.stderr
    assert application.processes() == {}


def test_a_client_that_waits_hears_of_the_end_and_the_history_has_the_job(application: Application) -> None:
    process = application.foreground("--job", "etl.py", "--", str(application.folder), "go")
    reached(lambda: application.runs, "the script runs")
    with application.connect(retry_for=0.0) as client:
        application.let_go()
        assert client.wait_for_result(application.job_id).status is JobStatus.FINISHED
    output(process)
    assert process.returncode == 0
    assert [path for path in (application.run / "run" / "storage" / "history").rglob("*") if path.is_file()]


def test_without_a_store_a_stop_cancels_the_job(application: Application) -> None:
    process = application.foreground("--job", "etl.py", "--", str(application.folder), "go")
    reached(lambda: application.runs, "the script runs")
    process.send_signal(signal.SIGTERM)
    said = output(process)
    assert process.returncode == 0
    assert f"Job {application.job_id} CANCELED after " in said[-1]
    assert application.processes() == {}


@pytest.mark.etcd
def test_a_killed_process_finds_its_job_again_whose_task_goes_on(durable: Application) -> None:
    words = ("--job", "etl.py", "--", str(durable.folder), "go")
    done = durable.start_job(*words)
    assert done.returncode == 0, done.stderr
    assert f"{durable.url}/ui/jobs/{durable.job_id}" in done.stdout
    reached(lambda: durable.runs, "the script runs")
    os.kill(durable.pid(), signal.SIGKILL)
    (durable.folder / "etl.py").unlink()  # nothing is built again

    done = durable.start_job(*words)
    assert done.returncode == 0, done.stderr
    assert f"Job {durable.job_id} is known: it goes on." in done.stdout
    with durable.connect() as client:
        reached(lambda: state(client, durable) == "RUNNING", "it is adopted")
    pid = durable.pid()
    durable.let_go()
    durable.ended(pid)
    assert durable.runs == 1
    assert durable.pids().get("taskmanager", []) == [] or not running(durable.pids()["taskmanager"])

    again = durable.foreground(*words)
    said = output(again)
    assert again.returncode == 0
    assert f"Job {durable.job_id} is known: it has ended, and does not run twice." in said
    assert durable.runs == 1


@pytest.mark.etcd
def test_with_a_store_a_stopped_process_leaves_the_job_to_the_next_one(durable: Application) -> None:
    words = ("--job", "etl.py", "--", str(durable.folder), "go", "bad")
    assert durable.start_job(*words).returncode == 0
    reached(lambda: durable.runs, "the script runs")
    done = durable.script("standalone-job.sh", "stop")
    assert done.returncode == 0, done.stdout + done.stderr
    assert running(durable.pids()["taskmanager"]), "the task goes on"
    durable.let_go()
    process = durable.foreground(*words)
    said = output(process)
    assert process.returncode == 163, said
    assert durable.runs == 1
    assert "ValueError: bad" in said[-1]


def test_a_process_that_is_to_stay_serves_rest_until_it_is_stopped(application: Application) -> None:
    application.add_options({"execution.shutdown-on-application-finish": "false"})
    done = application.start_job("--job", "sales:pipeline")
    assert done.returncode == 0, done.stderr
    with application.connect() as client:
        assert client.wait_for_result(application.job_id).value == {"sum": 7}
        reached(lambda: state(client, application) == "FINISHED", "it is shown")
    second = application.start_job("--job", "sales:pipeline")
    assert "a run directory of its own, FLINKLIKE_RUN_DIR" in second.stderr
    session = application.script("start-cluster.sh")
    assert "runs one job as its own cluster" in session.stderr
    assert application.cli("list").returncode == 0
    done = application.script("standalone-job.sh", "stop")
    assert done.returncode == 0
    assert application.processes() == {}


@pytest.mark.etcd
def test_with_a_store_the_application_has_a_name(durable: Application) -> None:
    durable.add_options({"high-availability.cluster-id": "default"})
    done = durable.start_job("--job", "sales:pipeline")
    assert done.returncode == 1
    assert "high-availability.cluster-id names the application" in done.stderr
    assert durable.processes() == {}


def state(client: FlinklikeClient, application: Application) -> str:
    return str(client.get(f"/jobs/{application.job_id}/status")["status"])


def running(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]
