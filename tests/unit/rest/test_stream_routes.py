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
    "interval-millis": 0,
    "back-pressured": False,
    "thread": "",
    "stage": "",
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


async def test_a_query_that_hangs_says_where_and_one_that_is_late_says_so(
    http: httpx.AsyncClient, fakes: RestFakes
) -> None:
    place = {"thread": "stream execution thread for orders, WAITING in Object.wait:1", "stage": "stage 7, start"}
    late = told(interval_millis=300, **place)
    idle = told(interval_millis=299, is_idle=True)
    fakes.dispatcher.graphs[JOB] = streaming_graph(JOB, late, told(interval_millis=340), idle)
    queries = (await http.get(f"/jobs/{JOB}/streams")).json()["vertices"][0]["subtasks"][0]["queries"]
    shown = [(one["interval-millis"], one["back-pressured"]) for one in queries]
    assert shown == [(300, True), (340, False), (299, False)]
    assert {name: queries[0][name] for name in place} == place
    fakes.dispatcher.graphs[JOB] = streaming_graph(JOB, late, is_running=False)
    (ended,) = (await http.get(f"/jobs/{JOB}/streams")).json()["vertices"][0]["subtasks"][0]["queries"]
    assert not ended["back-pressured"], "what has ended is late for nothing"
    subtasks = (await http.get(f"/jobs/{JOB}/vertices/{VERTEX}")).json()["subtasks"]
    assert not subtasks[0]["streams"][0]["back-pressured"]


@pytest.mark.parametrize(
    ("intervals", "level", "ratio", "busy"),
    [([340], "ok", 0.0, 1.0), ([680], "ok", 0.0, 0.5), ([255], "low", 0.25, 1.0), ([0, 85, 680], "high", 0.75, 1.0)],
)
async def test_back_pressure_is_how_late_batches_are(
    http: httpx.AsyncClient, fakes: RestFakes, intervals: list[int], level: str, ratio: float, busy: float
) -> None:
    streams = [told(interval_millis=one) for one in intervals]
    fakes.dispatcher.graphs[JOB] = streaming_graph(JOB, *streams)
    body = (await http.get(f"/jobs/{JOB}/vertices/{VERTEX}/backpressure")).json()
    assert (body["status"], body["backpressure-level"]) == ("ok", level)
    first, second = body["subtasks"]
    assert (first["backpressureLevel"], first["ratio"], first["busyRatio"], first["idleRatio"]) == (
        level,
        ratio,
        busy,
        1 - busy,
    )
    assert (second["backpressureLevel"], second["ratio"]) == ("ok", 0.0), "it has told of none yet"


async def test_an_idle_query_is_under_no_back_pressure(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.graphs[JOB] = streaming_graph(JOB, told(interval_millis=85, is_idle=True))
    body = (await http.get(f"/jobs/{JOB}/vertices/{VERTEX}/backpressure")).json()
    first = body["subtasks"][0]
    assert (body["backpressure-level"], first["ratio"], first["idleRatio"]) == ("ok", 0.0, 1.0)


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


async def test_watermarks_are_flinks(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    put_streams(fakes.dispatcher, JOB, PROGRESS, told(run_id="other", watermark_millis=1_600_000_000_000))
    answer = (await http.get(f"/jobs/{JOB}/vertices/{VERTEX}/watermarks")).json()
    assert answer == [
        {"id": "0.currentInputWatermark", "value": "1600000000000"},
        {"id": "1.currentInputWatermark", "value": "-9223372036854775808"},
    ]
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    assert (await http.get(f"/jobs/{JOB}/vertices/{VERTEX}/watermarks")).json() == [], "a batch job has none"
