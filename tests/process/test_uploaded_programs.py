"""R54: an uploaded program on a real cluster, whose leader is killed: listed, planned in a slot, and run."""

from __future__ import annotations

import io
import os
import signal
import zipfile
from collections.abc import Iterator

import httpx
import pytest

from airflow_flinklike.client import FlinklikeClient
from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from tests.kit.cluster.job_managers import answers, leader_and_standby
from tests.kit.cluster.script_cluster import ScriptCluster
from tests.kit.host.levels import reached

pytestmark = [pytest.mark.process, pytest.mark.etcd]

OPTIONS = {
    "taskmanager.spark.enabled": "false",
    "high-availability.lease-timeout": "3 s",
    "rest.long-poll.max-wait": "2 s",
}
FIRST, SECOND = JobId("1" * 32), JobId("2" * 32)
PIPELINE = """
import os, pathlib, time
import helper
from airflow_flinklike import Pipeline


def make(mark, gate="", parallelism=1):
    pathlib.Path(mark).write_text(f"{os.getpid()}")
    while gate and not pathlib.Path(gate).exists():
        time.sleep(0.05)
    made = Pipeline("daily")
    numbers = made.source("numbers", helper.numbers, parallelism=parallelism)
    numbers.gather().sink("total", lambda ctx, rows: helper.total(rows))
    return made
"""
HELPER = """
def numbers(ctx):
    return [ctx.subtask_index]


def total(rows):
    return {"total": 7}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ScriptCluster]:
    with ScriptCluster(OPTIONS, masters=2) as made:
        yield made


@pytest.fixture
def http(cluster: ScriptCluster) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {cluster.token}"}
    with httpx.Client(base_url=cluster.urls[0], headers=headers, timeout=30) as made:
        yield made


def program() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("flows.py", PIPELINE)
        archive.writestr("helper.py", HELPER)
        archive.writestr("etl.py", "import helper, sys\nprint(helper.total(sys.argv))\n")
    return made.getvalue()


def test_a_program_outlives_the_leader_and_its_plan_is_made_in_a_slot(
    cluster: ScriptCluster, http: httpx.Client
) -> None:
    leader, standby = leader_and_standby(cluster)
    mark, gate = cluster.run / "mark", cluster.run / "gate"
    with httpx.Client(base_url=standby.url, headers=http.headers, timeout=30) as other:
        stored = other.post("/jars/upload", files={"jarfile": ("flows-1.0.zip", program())})
        assert stored.status_code == 200, stored.text
        jar = stored.json()["filename"].rpartition("/")[2]
        body = {
            "entryClass": "flows:make",
            "programArgsList": [f"mark={mark}", f"gate={gate}"],
            "parallelism": 2,
            "jobId": FIRST,
        }
        # The plan waits for the gate, and its leader dies.
        waits = other.post(f"/jars/{jar}/run", json=body)
        assert (waits.status_code, FIRST in waits.text) == (503, True), waits.text
        reached(mark.exists, "the planner runs")
        assert int(mark.read_text()) not in {leader.pid, standby.pid}
        os.kill(leader.pid, signal.SIGKILL)
        reached(lambda: answers(cluster, standby.url, by_itself=True), "the stand-by leads", timeout=30)
        gate.touch()
        assert [one["id"] for one in other.get("/jars").json()["files"]] == [jar]

        def ran() -> bool:
            return other.post(f"/jars/{jar}/run", json=body).status_code == 200

        reached(ran, "the repeated request has run the program")
        script = {"entryClass": "etl.py", "jobId": SECOND}
        assert other.post(f"/jars/{jar}/run", json=script).status_code == 200
        # R54: a repeat is the same job, after another upload of the bytes and without the program too.
        assert other.post("/jars/upload", files={"jarfile": ("flows-1.0.zip", program())}).status_code == 200
        assert [other.post(f"/jars/{jar}/run", json=one).status_code for one in (body, script)] == [200, 200]
        assert other.delete(f"/jars/{jar}").status_code == 200
        assert [other.post(f"/jars/{jar}/run", json=one).status_code for one in (body, script)] == [200, 200]
    with FlinklikeClient([standby.url], cluster.token) as client:
        first, second = client.wait_for_result(FIRST), client.wait_for_result(SECOND)
        assert (first.status, first.value) == (JobStatus.FINISHED, {"total": 7})
        assert second.status is JobStatus.FINISHED
        plans = [one for one in client.get("/jobs/overview")["jobs"] if one["name"] == "plan of flows:make"]
        assert len(plans) == 1, "a repeat goes on with the plan that was begun"
