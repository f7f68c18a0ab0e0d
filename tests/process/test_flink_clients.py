"""Flink's own clients on a real cluster: what docs/rest.md answers works, what it refuses says why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from airflow_flinklike.client import FlinklikeClient, new_job_id
from runtime.common.states import JobStatus
from tests.benchmarks.cluster import job_graph
from tests.kit.browser.visit import chromium
from tests.kit.checkpoint.query_directories import query_directory, saved
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.host.levels import reached
from tests.kit.rest.flink_clients import distribution, flink, installed, java_program
from tests.kit.rest.flink_dashboard import FlinkDashboard

pytestmark = [pytest.mark.process, pytest.mark.extended, pytest.mark.timeout(1800)]

OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "2"}
NO_OP = job_graph("no-op", "tests.benchmarks.programs:no_op")
NAP = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 600})
NO_QUERIES = "the job has no streaming query"
NOT_HERE = {
    "cluster.delete_dataset", "jobs.rescale", "jobs.create_savepoint", "jobs.stop",
    "jobs.get_checkpointing_configuration", "jobs.get_checkpoints", "jobs.get_checkpoint_ids",
}  # fmt: skip
"""Calls of flink-rest-client that docs/rest.md refuses."""
NOT_ANSWERED = "/checkpoints"
"""End of paths that the dashboard asks for and docs/rest.md refuses; `/checkpoints/config` too."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS) as made:
        yield made


@pytest.fixture
def client(cluster: ScriptCluster) -> Iterator[FlinklikeClient]:
    with cluster.connect() as made:
        yield made


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def test_the_command_line(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> None:
    job = new_job_id()
    client.submit(NAP, job_id=job)
    reached(lambda: client.get(f"/jobs/{job}/status")["status"] == "RUNNING", "it runs")

    def told(*arguments: str) -> tuple[int, str]:
        done = flink(*arguments, address=cluster.url, token=cluster.token, home=tmp_path)
        return done.returncode, done.stdout + done.stderr

    code, text = told("list")
    assert (code, f"{job} : nap (RUNNING)" in text) == (0, True), text
    code, text = told("stop", job)
    assert (code, "No savepoint directory configured" in text) == (1, True), text
    place = str(tmp_path / "savepoints")
    for command in (
        ("stop", "-p", place, job),
        ("stop", "-d", "-p", place, job),
        ("savepoint", job, place),
        ("checkpoint", job),
        ("cancel", "-s", place, job),
    ):
        code, text = told(*command)
        assert (code, NO_QUERIES in text) == (1, True), text
    code, text = told("cancel", job)
    assert (code, f"Cancelled job {job}" in text) == (0, True), text
    assert client.wait_for_result(job).status is JobStatus.CANCELED
    assert told("cancel", job)[0] == 0, "as with Flink, again"
    code, text = told("list", "-a")
    assert (code, f"{job} : nap (CANCELED)" in text) == (0, True), text
    code, text = told("cancel", "0" * 32)
    assert (code, "not found" in text) == (1, True), text
    directory = tmp_path / "savepoints"
    savepoint = saved(directory, query_directory(tmp_path / "query", batches=1), batch_id=0, job_id=job)
    code, text = told("savepoint", "-d", savepoint.as_uri())
    assert (code, "disposed" in text) == (0, True), text
    assert list(directory.iterdir()) == []
    code, text = told("savepoint", "-d", str(savepoint))
    assert (code, "there is no savepoint at" in text) == (1, True), text


def test_a_job_of_flink_is_refused_at_once(cluster: ScriptCluster, client: FlinklikeClient, tmp_path: Path) -> None:
    program = java_program(tmp_path)
    if program is None:
        pytest.skip("no Java compiler")

    def told(*arguments: str) -> tuple[int, str]:
        done = flink(*arguments, str(program), address=cluster.url, token=cluster.token, home=tmp_path)
        return done.returncode, done.stdout + done.stderr

    assert told("info")[0] == 0, "which asks nobody"
    before = len(refused_submits(cluster))
    code, text = told("run")
    assert (code, "this cluster runs PySpark jobs, not Java job graphs" in text) == (1, True), text
    assert len(refused_submits(cluster)) == before + 1, "the client took it for a broken connection, and repeated it"


def refused_submits(cluster: ScriptCluster) -> list[str]:
    logs = (cluster.run / "run" / "log").glob("audit-*.jsonl")
    return [line for log in logs for line in log.read_text().splitlines() if '"submit"' in line and '"failed"' in line]


def test_each_call_of_flink_rest_client(cluster: ScriptCluster, tmp_path: Path) -> None:
    (tmp_path / "etl.py").write_text("print(1)\n")
    (tmp_path / "nap.py").write_text("import time\ntime.sleep(600)\n")
    flows = 'from airflow_flinklike import Pipeline\npipeline = Pipeline("flow")\npipeline.source("n", "helper:n")\n'
    with zipfile.ZipFile(tmp_path / "flows.zip", "w") as archive:
        archive.writestr("flows.py", flows)
        archive.writestr("helper.py", "def n(ctx):\n    return 1\n")
        archive.writestr("etl.py", "import helper\n")
    at = urlsplit(cluster.url)
    calls = [ROOT / "tests" / "kit" / "rest" / "flink_rest_calls.py", at.hostname, at.port, cluster.token, tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(installed())}
    command = [sys.executable, *map(str, calls)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    found = {name for name, refusal in outcomes.items() if refusal}
    assert found == NOT_HERE
    for refusal in outcomes.values():
        assert not refusal or refusal.startswith(("REST response error (400): ", "REST response error (404): ",
                                                  "REST response error (409): "))  # fmt: skip
    assert (len(outcomes), len(NOT_HERE)) == (58, 7)


PAGES = {
    "/overview": "SingleJobApplication(no-op)",
    "/job/running": "Running Jobs",
    "/job/completed": "no-op",
    "/job/completed/{job}/overview": "no-op",
    "/job/completed/{job}/exceptions": "Root Exception",
    "/job/completed/{job}/timeline": "Vertex TimeLine",
    "/job/completed/{job}/checkpoints": "No Data",
    "/job/completed/{job}/configuration": "Execution Configuration",
    "/application/completed/{job}/overview": "no-op",
    "/task-manager": "{manager}",
    "/task-manager/{manager}/metrics": "Physical Memory",
    "/task-manager/{manager}/logs": "taskmanager",
    "/task-manager/{manager}/log-list": "taskmanager",
    "/task-manager/{manager}/stdout": "Stdout",
    "/task-manager/{manager}/thread-dump": "Id=",
    "/job-manager/metrics": "JVM",
    "/job-manager/config": "rest.port",
    "/job-manager/logs": "runtime.",
    "/job-manager/log": "jobmanager",
    "/job-manager/stdout": "Stdout",
    "/job-manager/thread-dump": "Id=",
    "/submit": "Add New",
}


def test_each_page_of_the_dashboard(
    cluster: ScriptCluster, client: FlinklikeClient, browser: Browser, tmp_path: Path
) -> None:
    job = new_job_id()
    client.submit(NO_OP, job_id=job)
    assert client.wait_for_result(job).status is JobStatus.FINISHED
    manager = client.get("/taskmanagers")["taskmanagers"][0]["id"]
    with FlinkDashboard(distribution(), cluster.url, cluster.token) as site:
        page = browser.new_page()
        broken: list[str] = []
        page.on("pageerror", lambda error: broken.append(str(error)))
        for path, text in PAGES.items():
            page.goto(f"{site.address}/#{path.format(job=job, manager=manager)}")
            expect(page.locator("body")).to_contain_text(text.format(manager=manager), timeout=30_000)
        run_a_script(page, tmp_path)
        page.close()
    assert not broken
    unexpected = {one for one in site.refused if not one[1].removesuffix("/config").endswith(NOT_ANSWERED)}
    assert not unexpected
    assert len(site.asked) > len(PAGES)


def run_a_script(page: Page, folder: Path) -> None:
    """Upload it and run it with arguments, on the page Submit; it leads to the page of the job."""
    (folder / "uploaded.py").write_text("import sys\nassert sys.argv[1:] == ['a', 'b']\n")
    page.set_input_files("input[type=file]", folder / "uploaded.py")
    page.click("text=uploaded.py")
    page.locator("input[formcontrolname=programArgs]:visible").first.fill("a b")
    page.locator("button.ant-btn-primary:visible", has_text="Submit").first.click()
    expect(page.locator("body")).to_contain_text("FINISHED", timeout=60_000)
    assert "/job/" in page.url
