"""The pictures of docs/dashboard.md: all pages of a real cluster that runs the example DAG's jobs.

RECORD_PICTURES=1 writes them to docs/dashboard; without it they are made all the same, and nothing is kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.kit.browser.visit import Visit
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster
from tests.kit.spark.spark_box import QUICK_JVM

pytestmark = [pytest.mark.process, pytest.mark.spark, pytest.mark.extended, pytest.mark.timeout(900)]

DOCS = ROOT / "docs" / "dashboard"
OPTIONS = {"taskmanager.numberOfTaskSlots": "4", "taskmanager.spark.warm-up.count": "2", **QUICK_JVM}
BROKEN = """
from airflow_flinklike import function_job

def total(ctx):
    prices = {"apple": 3}
    return sum(prices[name] for name in ("apple", "pear"))

prices = function_job(total)
"""


@pytest.fixture(scope="module")
def cluster(class_archive: Path | None) -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=2, class_archive=class_archive) as started:
        yield started


def test_pictures_of_all_pages(browser: Browser, cluster: ScriptCluster, tmp_path: Path) -> None:
    target = DOCS if os.environ.get("RECORD_PICTURES") else tmp_path / "pictures"
    target.mkdir(exist_ok=True)
    sys.path.insert(0, str(ROOT / "dags"))
    from tpch.tables import make_tables

    data = make_tables(tmp_path / "data", 0.05)
    (tmp_path / "prices.py").write_text(BROKEN)
    broken = run(cluster, str(tmp_path / "prices.py") + ":prices", cwd=tmp_path)
    script = ["tpch/order_priorities.py", "--data", str(data), "--output", str(tmp_path / "priorities")]
    run(cluster, "--name", "order-priorities", *script)
    job = run(
        cluster, "--param", f"data={data}", "--param", f"output={tmp_path / 'out'}", "tpch.revenue:revenue_pipeline"
    )
    light = Visit(browser, cluster.url)
    light.sign_in(cluster.token)
    light.open(f"ui/jobs/{job}", "svg .vertex.good")
    light.page.screenshot(path=target / "job-graph-running.png")
    expect(light.page.locator("main h1 .state")).to_have_text("FINISHED", timeout=300_000)
    looks(light, target, job, broken, "")
    light.close()
    for scheme, width, name in (("dark", 1280, "-dark"), ("dark", 380, "-narrow")):
        other = Visit(browser, cluster.url, scheme=scheme, width=width)
        other.sign_in(cluster.token)
        looks(other, target, job, broken, name)
        other.close()


def run(cluster: ScriptCluster, *arguments: str, cwd: Path = ROOT / "dags") -> str:
    """The id of a job that is submitted."""
    done = cluster.cli("run", "--detached", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def looks(person: Visit, target: Path, job: str, broken: str, name: str) -> None:
    """A picture of each page; of some only in other colours and sizes. `broken`: a job that says why it has failed."""
    pages = {
        "overview": ("ui", ".figures"),
        "job-graph": (f"ui/jobs/{job}", "svg .vertex"),
        "job-timeline": (f"ui/jobs/{job}/timeline", "canvas"),
    }
    if not name:
        pages |= {
            "jobs": ("ui/jobs", "tbody tr"),
            "job-subtasks": (f"ui/jobs/{job}/subtasks", "tbody tr"),
            "job-logs": (f"ui/jobs/{broken}/logs", ".line"),
            "job-spark": (f"ui/jobs/{job}/spark", "tbody tr"),
            "job-configuration": (f"ui/jobs/{job}/configuration", "tbody"),
            "taskmanagers": ("ui/taskmanagers", "tbody tr"),
            "jobmasters": ("ui/jobmasters", "tbody tr"),
            "jobmanager": ("ui/jobmanager", "tbody tr"),
            "submit": ("ui/submit", "form"),
            "events": ("ui/events", "tbody tr"),
        }
    for page, (path, wanted) in pages.items():
        person.open(path, wanted)
        person.page.wait_for_timeout(300)  # bars grow in
        person.page.screenshot(path=target / f"{page}{name}.png", animations="disabled")
    if not name:
        person.open("ui/jobs?state=FAILED", "tbody a")
        person.page.click("tbody a")
        person.page.click(".tabs >> text=Exceptions")
        person.page.wait_for_selector(".failure")
        person.page.screenshot(path=target / "job-exceptions.png", animations="disabled")
    assert person.problems == []
