"""The dashboard of a real cluster: a job that runs, its log as it grows, a cancel, and a JobManager that dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.kit.browser.visit import PATIENCE_MILLIS, Visit
from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "2"}
JOB = """
from pathlib import Path
import time
from airflow_flinklike import function_job

def talk(ctx):
    print("first words", flush=True)
    while not Path({gate!r}).exists():
        time.sleep(0.1)
    print("last words", flush=True)
    return 7

def fail(ctx):
    prices = {{}}
    return prices["prise"]

talking, failing = function_job(talk), function_job(fail)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=1) as started:
        yield started


@pytest.fixture
def person(browser: Browser, cluster: ScriptCluster) -> Iterator[Visit]:
    one = Visit(browser, cluster.url)
    one.sign_in(cluster.token)
    yield one
    one.close()
    assert one.problems == []


def submit(cluster: ScriptCluster, tmp_path: Path, name: str) -> Path:
    gate, file = tmp_path / "gate", tmp_path / "shops.py"
    file.write_text(JOB.format(gate=str(gate)))
    done = cluster.cli("run", "--detached", f"{file}:{name}")
    assert done.returncode == 0, done.stderr
    return gate


def test_a_job_is_watched_from_its_start_to_its_result(cluster: ScriptCluster, person: Visit, tmp_path: Path) -> None:
    gate = submit(cluster, tmp_path, "talking")
    person.open("ui")
    person.page.click("tbody >> text=talk")
    expect(person.page.locator("main h1")).to_contain_text("RUNNING")
    person.page.click(".tabs >> text=Logs")
    expect(person.page.locator(".log")).to_contain_text("first words")
    gate.touch()
    expect(person.page.locator(".log")).to_contain_text("last words")
    expect(person.page.locator("main h1")).to_contain_text("FINISHED")
    expect(person.page.locator(".result")).to_have_text("7")
    person.page.click(".tabs >> text=Timeline")
    expect(person.page.locator("canvas")).to_have_count(1)
    person.page.click("nav >> text=TaskManagers")
    expect(person.page.locator("tbody")).to_contain_text("0/2")


def test_a_failure_shows_the_line(cluster: ScriptCluster, person: Visit, tmp_path: Path) -> None:
    submit(cluster, tmp_path, "failing")
    person.open("ui/jobs?state=FAILED")
    person.page.click("tbody >> text=fail")
    person.page.click(".tabs >> text=Exceptions")
    expect(person.page.locator(".user-line")).to_contain_text('return prices["prise"]')


def test_the_page_goes_on_when_the_job_manager_comes_back(
    cluster: ScriptCluster, person: Visit, tmp_path: Path
) -> None:
    person.expected = ("ERR_CONNECTION", "ERR_EMPTY_RESPONSE", "503")  # nobody answers for a while
    gate = submit(cluster, tmp_path, "talking")
    person.open("ui/jobs?state=unfinished")
    person.page.click("tbody >> text=talk")
    expect(person.page.locator("main h1")).to_contain_text("RUNNING")
    (leader,) = cluster.pids()["jobmanager"]
    os.kill(leader, signal.SIGKILL)
    expect(person.page.locator(".banner")).to_contain_text("does not answer")
    started = cluster.script("jobmanager.sh", "start", *cluster.dynamic)
    assert started.returncode == 0, started.stderr
    expect(person.page.locator(".banner")).to_have_count(0, timeout=2 * PATIENCE_MILLIS)
    gate.touch()
    expect(person.page.locator("main h1")).to_contain_text("FINISHED")
