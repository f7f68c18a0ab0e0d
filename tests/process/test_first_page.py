"""What a user meets first: the address of a real cluster in a browser and in curl, and jobs by names that say much."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.kit.cluster.script_cluster import ScriptCluster

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {"taskmanager.spark.enabled": "false", "taskmanager.numberOfTaskSlots": "1"}
BROWSER = {"accept": "text/html,application/xhtml+xml"}
JOBS = """
from airflow_flinklike import function_job

count_shops = lambda ctx: 3

def total(ctx):
    return 4

by_variable = function_job(count_shops)
by_name = function_job(total)
by_place = function_job(lambda ctx: 5)
"""


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, job_masters=1) as started:
        yield started


def test_the_address_leads_to_jobs_by_their_names(cluster: ScriptCluster, tmp_path: Path) -> None:
    file = tmp_path / "shops.py"
    file.write_text(JOBS)
    for name in ("by_variable", "by_name", "by_place"):
        done = cluster.cli("run", f"{file}:{name}")
        assert done.returncode == 0, done.stderr
    names = {"count_shops", "total", "lambda at shops.py:11"}
    assert {job["name"] for job in json.loads(cluster.cli("list", "--json").stdout)["jobs"]} == names

    with httpx.Client(base_url=cluster.url, headers=BROWSER, follow_redirects=True) as browser:
        asked = browser.get("/")
        assert (asked.status_code, 'name="token"' in asked.text) == (401, True)
        page = browser.post("/", data={"token": cluster.token})
        assert (page.status_code, page.url.path) == (200, "/ui")
        for script in re.findall(r'src="(ui/static/[^"]+)"', page.text):
            assert browser.get(page.url.join(script)).status_code == 200
        assert browser.get("/overview").status_code == 401, "a cookie alone opens pages only"

    told = httpx.get(f"{cluster.url}/", headers={"authorization": f"Bearer {cluster.token}"}).json()
    assert (told["page"], told["jobs"]) == ("/ui", "/jobs/overview")
    refused = httpx.get(f"{cluster.url}/")
    assert refused.status_code == 401
    assert "A browser opens /ui" in refused.json()["errors"][0]
