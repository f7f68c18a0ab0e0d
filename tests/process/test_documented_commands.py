"""The commands of the documentation, run by a shell as they stand there.

A command that starts the cluster finds it stopped, every other one finds it running; only the port and the id of the
job are put in. What needs Spark is in `test_documented_jobs`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_flinklike.client import new_job_id
from tests.kit.cluster.script_cluster import ScriptCluster, free_port
from tests.kit.docs import DocCommand, doc_commands

pytestmark = [pytest.mark.process, pytest.mark.etcd]

CONFIGURATION = """
taskmanager.spark.enabled: false
taskmanager.numberOfTaskSlots: 2
rest.port: {port}
historyserver.web.port: 0
"""
SALES = """
import time
from airflow_flinklike import function_job

def totals(ctx):
    print("the totals")
    return 7

def held(ctx):
    while not ctx.cancelled:
        time.sleep(0.05)

def make_pipeline(days=1, parallelism=1):
    return function_job(totals, name="totals")

pipeline = make_pipeline()
endless = function_job(held)
"""
DAG_FILE = """
from datetime import datetime

from airflow.sdk import DAG


def spark_task():
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    return SparkSubmitOperator(task_id="orders", application="/opt/jobs/orders.py")


with DAG("orders_pilot", schedule=None, start_date=datetime(2026, 1, 1)):
    pass
"""
JOB_ID = "0123456789abcdef0123456789abcdef"
NOT_HERE = {
    "bin/quickstart.sh": "is run by test_quickstart",
    "bin/test.sh": "runs this",
    "bin/bench.sh": "is run by test_benchmarks",
    "bin/chaos.sh": "is run by test_chaos",
    "bin/demo-failover.sh": "is run by test_chaos",
    "pip": "makes an environment",
    "export": "is for Airflow, whose tests parse it",
}


class DocumentedCluster(ScriptCluster):
    """As a reader has it: everything in conf/config.yaml, `bin` and `run` below the working directory."""

    def __init__(self) -> None:
        super().__init__({})
        self.is_running = False
        with (self.run / "conf/config.yaml").open("a") as file:
            file.write(CONFIGURATION.format(port=self.port))
        (self.run / "bin").symlink_to(Path(__file__).resolve().parents[2] / "bin")
        for folder in ("jobs", "dags"):
            (self.run / folder).mkdir()
        (self.run / "dags" / "orders_pilot.py").write_text(DAG_FILE)
        for place in ("sales.py", "jobs/sales.py", "etl.py"):
            (self.run / place).write_text(SALES)
        del self.environment["FLINKLIKE_ADDRESS"]
        self.environment["PATH"] = f"{self.run}/bin:{os.environ['PATH']}"

    @property
    def dynamic(self) -> list[str]:
        """None: what a reader would have to type."""
        return []

    def shell(self, line: str) -> str:
        """What a line writes to stdout; it must end with 0."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self.run, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def bring(self, *, running: bool) -> None:
        """Start or stop it, if need be."""
        if running != self.is_running:
            self.shell(f"bin/{'start' if running else 'stop'}-cluster.sh")
            self.is_running = running


@pytest.fixture(scope="module")
def cluster() -> Iterator[DocumentedCluster]:
    made = DocumentedCluster()
    yield made
    made.close()


def job_for(cluster: DocumentedCluster, words: list[str]) -> str:
    """The id to put in: of a job that has ended, that runs, or that is to come."""
    job_id = new_job_id()
    if "cancel" in words:
        cluster.shell(f"flinklike run -d --job-id {job_id} sales:endless")
    elif "run" not in words:
        cluster.shell(f"flinklike run --job-id {job_id} sales:pipeline")
    return job_id


AS_ROOT = "taskmanager.slots.uids"
"""What takes a Python that is open to all users: tests/process/test_slot_uids.py makes one."""
WITH_SPARK = frozenset({"script-jobs.md", "spark-environments.md", "streaming.md"})
"""Pages whose commands are run by `test_documented_jobs`, `test_environments_of_jobs`, `test_jvms_of_jobs`, and by
`test_savepoints`, `test_killed_orders` and `test_cli_savepoints` with jobs and paths in place of words in
capitals."""
HERE = {
    (*one.assignments.items(), *one.words): one
    for one in doc_commands()
    if one.words[0] not in NOT_HERE and AS_ROOT not in one.line and one.snippet.page.name not in WITH_SPARK
}


@pytest.mark.parametrize("command", HERE.values(), ids=str)
def test_a_documented_command_works(cluster: DocumentedCluster, command: DocCommand) -> None:
    is_of_one_job = command.words[0] == "bin/standalone-job.sh"
    starts = is_of_one_job or command.words[0] == "bin/start-cluster.sh"
    cluster.bring(running=not starts)
    other_port = str(free_port())
    line = command.line.replace("8081", str(cluster.port)).replace("8082", other_port)
    if JOB_ID in line:
        line = line.replace(JOB_ID, job_for(cluster, command.words))
    output = cluster.shell(line)
    cluster.is_running = command.words[0] != "bin/stop-cluster.sh"
    if is_of_one_job:
        cluster.bring(running=False)
    if "--json" in command.words or command.words[0] == "curl":
        assert "errors" not in json.loads(output)
    if "logs" in command.words:
        assert "the totals" in output
    if command.assignments:
        assert f"127.0.0.1:{other_port}" in output
        cluster.bring(running=False)
    if not cluster.is_running:
        assert not cluster.processes()
