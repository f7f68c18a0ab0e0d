"""What streaming queries do: a route of their own, and further fields of Flink's bodies of jobs and subtasks."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from runtime.common.states import JobStatus
from runtime.rest.app import create_app
from tests.kit.control_plane.streaming_jobs import PROGRESS, told
from tests.kit.rest.fakes import JOB, RestFakes
from tests.kit.rest.streaming_graphs import put_streams, streaming_graph

VERTEX = f"{1:032x}"
OTHER = f"{2:032x}"
QUERY = {
    "query-id": PROGRESS.query_id,
    "run-id": PROGRESS.run_id,
    "batch-id": 41,
    "batches": 7,
    "rows": 7000,
    "input-rows-per-second": 100.5,
    "processed-rows-per-second": 250.0,
    "trigger-millis": 340,
    "phases": {"addBatch": 300, "walCommit": 20},
    "state-rows": 12,
    "state-bytes": 4096,
    "watermark": 1_700_000_000_000,
    "backlog": 3,
    "progressed": 2000,
    "has-triggered": True,
    "idle": False,
    "busy-since": 0,
    "name": "",
}

pytestmark = pytest.mark.asyncio


@pytest.fixture
def fakes() -> RestFakes:
    fakes = RestFakes()
    put_streams(fakes.dispatcher, JOB, PROGRESS)
    return fakes


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test/v1") as client:
        yield client


async def test_of_a_job(http: httpx.AsyncClient) -> None:
    answer = (await http.get(f"/jobs/{JOB}/streams")).json()
    (vertex,) = answer["vertices"]
    assert (answer["jid"], answer["job-type"]) == (JOB, "STREAMING")
    assert {name: vertex[name] for name in ("id", "name", "uid", "parallelism")} == {
        "id": VERTEX,
        "name": "read",
        "uid": "orders",
        "parallelism": 2,
    }
    first, second = vertex["subtasks"]
    assert first == {
        "subtask": 0,
        "attempt": 0,
        "status": "RUNNING",
        "endpoint": "127.0.0.1:1",
        "taskmanager-id": "tm-1",
        "queries": [QUERY],
        "stalled": False,
        "tasks-completed": 0,
        "tasks-total": 0,
    }
    assert (second["subtask"], second["queries"]) == (1, []), "it has told of none yet"


@pytest.mark.parametrize(
    ("busy_for", "is_running", "expected"),
    [(0, True, False), (590, True, False), (610, True, True), (610, False, False)],
)
async def test_a_query_that_is_long_in_one_trigger_is_stalled(
    http: httpx.AsyncClient, fakes: RestFakes, busy_for: int, is_running: bool, expected: bool
) -> None:
    since = fakes.context().clock.epoch_millis() - busy_for * 1000 if busy_for else 0
    fakes.dispatcher.graphs[JOB] = streaming_graph(JOB, told(busy_since_millis=since), is_running=is_running)
    first = (await http.get(f"/jobs/{JOB}/streams")).json()["vertices"][0]["subtasks"][0]
    assert (first["stalled"], first["queries"][0]["busy-since"]) == (expected, since)


async def test_a_job_without_queries_has_none(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    assert (await http.get(f"/jobs/{JOB}/streams")).json()["vertices"] == []
    assert (await http.get(f"/jobs/{'0' * 32}/streams")).status_code == 404
    vertices = (await http.get(f"/jobs/{JOB}")).json()["vertices"]
    assert not any("streams" in vertex for vertex in vertices)


async def test_bodies_of_flink_have_them_as_further_fields(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.graphs[JOB] = streaming_graph(JOB, PROGRESS, told(backlog=-1, rows=1))
    job = (await http.get(f"/jobs/{JOB}")).json()
    assert (job["job-type"], job["plan"]["type"]) == ("STREAMING", "STREAMING")
    assert (await http.get("/jobs/overview")).json()["jobs"][0]["jobType"] == "STREAMING"
    assert job["vertices"][0]["streams"] == {
        "queries": 2,
        "batches": 14,
        "rows": 7001,
        "input-rows-per-second": 201.0,
        "processed-rows-per-second": 500.0,
        "state-bytes": 8192,
        "backlog": 3,
    }
    assert "streams" not in job["vertices"][1]
    first, second = (await http.get(f"/jobs/{JOB}/vertices/{VERTEX}")).json()["subtasks"]
    assert first["streams"][0] == QUERY
    assert "streams" not in second


async def test_rates_are_those_of_what_runs(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.graphs[JOB] = streaming_graph(JOB, PROGRESS, told(backlog=-1), is_running=False)
    sums = (await http.get(f"/jobs/{JOB}")).json()["vertices"][0]["streams"]
    assert (sums["rows"], sums["processed-rows-per-second"], sums["input-rows-per-second"]) == (14_000, 0, 0)
    fakes.dispatcher.graphs[JOB] = streaming_graph(JOB, told(backlog=-1))
    assert (await http.get(f"/jobs/{JOB}")).json()["vertices"][0]["streams"]["backlog"] == -1
