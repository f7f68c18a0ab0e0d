"""The picture of docs/metrics.md: what a real Prometheus shows of a real cluster. RECORD_PICTURES=1 writes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.parse
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from runtime.common.ids import JobId
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.script_cluster import ROOT, ScriptCluster, free_port

pytest.importorskip("prometheus_client", reason="pip install -r requirements/metrics.txt")

PROMETHEUS = shutil.which("prometheus")
pytestmark = [
    pytest.mark.process,
    pytest.mark.extended,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus (Debian: prometheus) is not installed"),
]
OPTIONS = {"taskmanager.spark.enabled": "false", "metrics.reporters": "prometheus"}
NO_OP = job_graph("no-op", "tests.benchmarks.programs:no_op")
JOBS = 60
GRAPHS = [
    'sum by (state) (flinklike_jobs{state=~"FINISHED|RUNNING|CREATED"})',
    "histogram_quantile(0.99, sum by (le, process) (rate(flinklike_event_loop_lag_seconds_bucket[30s])))",
]


def test_a_picture_of_what_prometheus_shows(browser: Browser, tmp_path: Path) -> None:
    assert PROMETHEUS is not None
    with ScriptCluster(OPTIONS, job_masters=1) as cluster, (tmp_path / "log").open("w") as log:
        shutil.copy(ROOT / "conf/prometheus/alerts.yml", tmp_path)
        shown = (ROOT / "conf/prometheus/prometheus.yml").read_text()
        changes = {
            "http://127.0.0.1:8081/": f"{cluster.url}/",
            "/etc/prometheus/flinklike-token": str(cluster.run / "run" / "token"),
            "15s": "1s",
        }
        for before, after in changes.items():
            shown = shown.replace(before, after)
        (tmp_path / "prometheus.yml").write_text(shown)
        address = f"127.0.0.1:{free_port()}"
        arguments = [f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
        process = subprocess.Popen([PROMETHEUS, *arguments, f"--web.listen-address={address}"], stdout=log, stderr=log)
        try:
            with cluster.connect() as client:
                for number in range(JOBS):
                    job_id = JobId(f"{number + 1:032x}")
                    client.submit(NO_OP, job_id=job_id)
                    client.wait_for_result(job_id)
                    time.sleep(0.4)  # a line takes more than one scrape
            _picture(browser, f"http://{address}", tmp_path)
        finally:
            process.terminate()
            process.wait(30)


def _picture(browser: Browser, address: str, folder: Path) -> None:
    of_graphs = {
        f"g{at}.{name}": value
        for at, query in enumerate(GRAPHS)
        for name, value in {"expr": query, "tab": "0", "range_input": "1m"}.items()
    }
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{address}/classic/graph?{urllib.parse.urlencode(of_graphs)}")
    expect(page.locator(".legend").nth(len(GRAPHS) - 1)).to_contain_text("process", timeout=120_000)
    expect(page.locator(".legend").first).to_contain_text("FINISHED")
    target = ROOT / "docs" / "metrics" if os.environ.get("RECORD_PICTURES") else folder
    target.mkdir(exist_ok=True)
    page.wait_for_timeout(2000)  # lines are drawn
    page.screenshot(path=target / "prometheus.png", animations="disabled", full_page=True)
    page.close()
