"""Flink's metrics: names, values and aggregates; and what a TaskManager takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from runtime.common.errors import UnavailableError
from runtime.common.states import JobStatus
from runtime.rest.app import create_app
from runtime.rest.bodies.metric_values import aggregated
from runtime.rest.routes.metric_values import LEFT_OUT
from tests.kit.rest.fakes import JOB, RestFakes

VERTEX = f"/jobs/{JOB}/vertices/{1:032x}"


@pytest.fixture
def fakes() -> RestFakes:
    fakes = RestFakes()
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    return fakes


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test/v1") as client:
        yield client


@pytest.mark.asyncio
async def test_names_are_listed_and_unknown_ones_left_out(http: httpx.AsyncClient) -> None:
    names = {one["id"] for one in (await http.get(f"/jobs/{JOB}/metrics")).json()}
    assert {"numRestarts", "uptime"} <= names
    got = (await http.get(f"/jobs/{JOB}/metrics?get=numRestarts,nonsense")).json()
    assert got == [{"id": "numRestarts", "value": "0"}]
    assert {"id": "0.numBytesIn", "value": "5"} in (await http.get(f"{VERTEX}/metrics?get=0.numBytesIn")).json()
    assert (await http.get(f"{VERTEX}/subtasks/0/metrics?get=numBytesIn")).json() == [
        {"id": "numBytesIn", "value": "5"}
    ]
    too_many = ",".join(map(str, range(300)))
    assert (await http.get(f"/jobs/{JOB}/metrics?get={too_many}")).status_code == 400


@pytest.mark.asyncio
async def test_aggregates_of_subtasks(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    graph = fakes.dispatcher.graphs[JOB]
    first, second = graph.vertices
    (one,) = first.subtasks
    other = replace(one.current, metrics=replace(one.current.metrics, read_bytes=15))
    wide = replace(first, parallelism=2, subtasks=(one, replace(one, index=1, current=other)))
    fakes.dispatcher.graphs[JOB] = replace(graph, vertices=(wide, second))
    below = f"{VERTEX}/subtasks/metrics"
    assert (await http.get(f"{below}?get=numBytesIn")).json() == [
        {"id": "numBytesIn", "min": 5.0, "max": 15.0, "avg": 10.0, "sum": 20.0}
    ]
    assert (await http.get(f"{below}?get=numBytesIn&agg=skew,max")).json() == [
        {"id": "numBytesIn", "max": 15.0, "skew": 50.0}
    ]
    assert (await http.get(f"{below}?get=numBytesIn&agg=sum&subtasks=1-9")).json() == [
        {"id": "numBytesIn", "sum": 15.0}
    ]
    assert {"id": "numBytesIn"} in (await http.get(below)).json()
    for wrong in ("agg=median&get=x", "get=x&subtasks=a-b", f"get=x&subtasks={'9' * 5000}"):
        assert (await http.get(f"{below}?{wrong}")).status_code == 400, wrong


@pytest.mark.asyncio
async def test_jobs_and_processes(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    assert (await http.get("/jobs/metrics?get=numRunningTasks&agg=max")).json() == [
        {"id": "numRunningTasks", "max": 1.0}
    ]
    heap = {"id": "Status.JVM.Memory.Heap.Used", "value": str(200 << 20)}
    assert (await http.get("/taskmanagers/tm-1/metrics?get=Status.JVM.Memory.Heap.Used")).json() == [heap]
    together = (await http.get("/taskmanagers/metrics?get=Status.JVM.Memory.Heap.Used&agg=sum")).json()
    assert together == [{"id": "Status.JVM.Memory.Heap.Used", "sum": float(200 << 20)}]
    assert LEFT_OUT not in (await http.get("/taskmanagers/metrics")).headers
    named = await http.get("/taskmanagers/metrics", params={"taskmanagers": "tm-1,gone\r\nx: y"})
    assert named.headers[LEFT_OUT] == "1 of 2: gone%0D%0Ax:%20y"
    assert (await http.get("/jobmanager/metrics?get=Status.JVM.Threads.Count")).json()[0]["value"] == "9"
    assert (await http.get("/taskmanagers/tm-9/metrics")).status_code == 404
    fakes.processes["127.0.0.1:1"].error = UnavailableError("away")
    silent = await http.get("/taskmanagers/metrics")
    assert (silent.json(), silent.headers[LEFT_OUT]) == ([], "1 of 1: tm-1")
    many = await http.get("/taskmanagers/metrics", params={"taskmanagers": ",".join(f"t{n}" for n in range(25))})
    assert many.headers[LEFT_OUT].startswith("25 of 25: t0, t1,")
    assert many.headers[LEFT_OUT].endswith("t19 and 5 more")
    assert (await http.get("/taskmanagers/tm-1/usage")).status_code == 503


@pytest.mark.asyncio
async def test_what_a_task_manager_takes(http: httpx.AsyncClient) -> None:
    body = (await http.get("/taskmanagers/tm-1/usage")).json()
    assert body["slots"][0] == {
        "index": 0,
        "attempt-id": f"{JOB}_{1:032x}_0_7_0",
        "job-id": JOB,
        "memory": 300 << 20,
        "limit": 1 << 30,
    }
    assert body["slots"][1]["job-id"] == ""
    (jvm,) = body["jvms"]
    assert (jvm["environment"], jvm["gc-count"], jvm["conf"]["spark.my.password"]) == ("", 12, "******")


_VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20)


@given(_VALUES)
def test_aggregates_hold_together(values: list[float]) -> None:
    (one,) = aggregated([{"x": value} for value in values], ["x"], ["min", "max", "avg", "sum", "skew"])
    assert one["min"] <= one["avg"] + 1e-6
    assert one["avg"] <= one["max"] + 1e-6
    assert one["sum"] == pytest.approx(one["avg"] * len(values), abs=1e-3)
    assert len(values) > 1 or one["skew"] == 0
