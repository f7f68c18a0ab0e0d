"""Spark's own pages of a real JVM, through the JobManager, while a job runs (R58)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.kit.browser.visit import PATIENCE_MILLIS, Visit
from tests.kit.cluster.script_cluster import ScriptCluster

expect.set_options(timeout=PATIENCE_MILLIS)
pytestmark = [pytest.mark.process, pytest.mark.etcd, pytest.mark.timeout(900)]

OPTIONS = {
    "taskmanager.numberOfTaskSlots": "1",
    "taskmanager.memory.spark.size": "600 mb",
    "taskmanager.spark.warm-up.count": "0",
}
JOB = """
from pathlib import Path
import time
from airflow_flinklike import function_job

def work(ctx):
    spark = ctx.spark
    spark.sparkContext.setJobDescription("<script>window.hostile = 1</script><img src=x onerror='hostile = 1'> counts")
    spark.range(0, 1000, 1, 2).selectExpr("id % 7 as k").groupBy("k").count().collect()
    print("at", spark.sparkContext.uiWebUrl, flush=True)
    while not Path({gate!r}).exists():
        time.sleep(0.1)
    return 7

working = function_job(work)
"""


@pytest.fixture(scope="module")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=1, class_archive=class_archive) as started:
        yield started


@pytest.fixture
def person(browser: Browser, cluster: ScriptCluster) -> Iterator[Visit]:
    one = Visit(browser, cluster.url)
    one.sign_in(cluster.token)
    yield one
    one.close()
    assert one.problems == []


def test_the_pages_of_a_running_job_are_shown_apart_from_the_dashboard(
    cluster: ScriptCluster, person: Visit, tmp_path: Path
) -> None:
    gate, file = tmp_path / "gate", tmp_path / "shops.py"
    file.write_text(JOB.format(gate=str(gate)))
    done = cluster.cli("run", "--detached", f"{file}:working")
    assert done.returncode == 0, done.stderr
    person.open("ui")
    person.page.click("tbody >> text=work")
    person.page.click(".tabs >> text=Logs")
    log = person.page.locator(".log")
    expect(log).to_contain_text(f"at {cluster.url}/ui/taskmanagers/")
    told = re.search(r"at (\S+)", log.inner_text())
    person.page.click(".tabs >> text=Spark")
    link = person.page.locator("a >> text=Spark UI").first
    expect(link).to_have_attribute("target", "_blank")
    assert told is not None
    assert told[1] == f"{cluster.url}/{link.get_attribute('href')}"

    person.expected = ("asked another host",)
    page = person.page
    page.goto(told[1])
    page.wait_for_url("**/jobs/")
    assert not page.url.startswith(cluster.url)
    expect(page.locator("body")).to_contain_text("counts")
    assert page.evaluate("window.hostile") is None
    page.click("a >> text=Stages")
    expect(page.locator("body")).to_contain_text("Completed Stages")
    page.locator("a:has-text('collect at')").first.click()
    expect(page.locator("#active-tasks-table, #tasks-table, table").first).to_be_visible()
    page.click("a >> text=SQL")
    expect(page.locator("body")).to_contain_text("COMPLETED")
    page.click("a >> text=Executors")
    expect(page.locator("#active-executors-table, #executorSummary, table").first).to_be_visible()
    page.click("a >> text=Environment")
    expect(page.locator("body")).to_contain_text("spark.app.id")

    # A script in these pages is of another origin than the dashboard, and has nothing that is worth something there.
    assert page.evaluate("document.cookie") == ""
    assert page.evaluate("localStorage.getItem('flinklike-csrf-token')") is None
    person.expected = ("",)
    reads = "address => fetch(address, {credentials: 'include'}).then(one => 'read', error => 'refused')"
    assert page.evaluate(reads, f"{cluster.url}/overview") == "refused"
    person.problems.clear()
    gate.touch()
