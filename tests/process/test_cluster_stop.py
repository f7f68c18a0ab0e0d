"""DELETE /cluster of real processes: all of them end, and a job that had not ended goes on at the next start."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest

from airflow_flinklike.client import new_job_id
from runtime.common.states import JobStatus
from tests.benchmarks.cluster import job_graph
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {"taskmanager.spark.enabled": "false", "high-availability.lease-timeout": "3 s"}
NAP = job_graph("nap", "tests.benchmarks.programs:nap", params={"seconds": 3})


@pytest.fixture
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS) as made:
        yield made


def test_all_processes_end_and_the_jobs_go_on_later(cluster: ScriptCluster) -> None:
    job = new_job_id()
    with cluster.connect() as client:
        client.submit(NAP, job_id=job)
        reached(lambda: client.get(f"/jobs/{job}/status")["status"] == "RUNNING", "it runs")
    roles = ("jobmanager", "jobmaster", "taskmanager")
    before = {pid for role in roles for pid in cluster.pids()[role]}
    assert len(before) >= 3
    headers = {"authorization": f"Bearer {cluster.token}"}
    assert httpx.delete(f"{cluster.url}/cluster", headers=headers, timeout=30).json() == {}
    reached(lambda: not before & cluster.processes().keys(), "all have ended", timeout=60)
    (log,) = (cluster.run / "run" / "log").glob("audit-*.jsonl")
    last = json.loads(log.read_text().splitlines()[-1])
    assert (last["action"], last["outcome"], last["missed"]) == ("stop-cluster", "done", "")
    cluster.start()
    with cluster.connect() as client:
        assert client.wait_for_result(job).status is JobStatus.FINISHED
