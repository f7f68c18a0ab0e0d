"""Where Spark's own pages are when there are several JobManagers (R58): at the leader, also for who asks a stand-by."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from tests.kit.cluster.script_cluster import ScriptCluster
from tests.process.conftest import WITHOUT_SPARK

pytestmark = [pytest.mark.process, pytest.mark.etcd]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(WITHOUT_SPARK, masters=2, job_masters=1) as made:
        yield made


def test_every_job_manager_leads_to_the_pages_of_the_leader(cluster: ScriptCluster) -> None:
    shown = {"authorization": f"Bearer {cluster.token}"}
    manager = httpx.get(f"{cluster.url}/taskmanagers", headers=shown).json()["taskmanagers"][0]["id"]
    ports = set()
    for url in cluster.urls:
        told = httpx.post(f"{url}/taskmanagers/{manager}/spark-ui", json={}, headers=shown).json()
        ports.add(told["port"])
        pages = told["address"] or f"http://127.0.0.1:{told['port']}"
        opened = httpx.post(f"{pages}/open", json={"code": told["code"]}, headers={"origin": pages})
        page = httpx.get(f"{pages}{opened.json()['path']}jobs/", cookies=dict(opened.cookies))
        assert page.status_code == 404
        assert f"TaskManager {manager}: this TaskManager runs no Spark" in page.text
    assert len(ports) == 1
    lines = [
        line for path in (cluster.run / "run" / "log").glob("audit-*.jsonl") for line in path.read_text().splitlines()
    ]
    audited = [json.loads(line) for line in lines if "open-spark-ui" in line]
    assert {(one["outcome"], one["object"]) for one in audited} == {("done", manager)}
