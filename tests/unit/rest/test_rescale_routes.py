"""Bounds and rescales of a streaming job in Flink's bodies, and as refused for other jobs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from runtime.common.errors import ConflictError
from runtime.gateways.rescales import VertexBounds
from runtime.rest.app import create_app
from tests.kit.rest.fakes import JOB, RestFakes
from tests.kit.rest.rescaled_jobs import RESCALES, VERTEX
from tests.kit.rest.streaming_graphs import put_checkpoints

FLINK = json.loads(Path(__file__).with_name("flink_rescales.json").read_text())
"""Answers of Flink 2.3.0."""
pytestmark = pytest.mark.asyncio


@pytest.fixture
def fakes() -> RestFakes:
    fakes = RestFakes()
    put_checkpoints(fakes.dispatcher, JOB, None)
    fakes.dispatcher.graphs[JOB] = replace(fakes.dispatcher.graphs[JOB], rescales=RESCALES)
    return fakes


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=f"http://test/jobs/{JOB}") as client:
        yield client


async def body(http: httpx.AsyncClient, path: str) -> Any:
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("name", ["config", "overview", "summary"])
async def test_fields_are_those_of_flink(http: httpx.AsyncClient, name: str) -> None:
    ours = await body(http, f"/rescales/{name}")
    assert set(ours) - {"pauseStatsInMillis"} == set(FLINK[name])


async def test_all_of_a_job(http: httpx.AsyncClient) -> None:
    overview = await body(http, "/rescales/overview")
    assert overview["rescalesCounts"] == {"ignored": 0, "inProgress": 1, "completed": 2, "failed": 0}
    assert overview["latest"]["completed"]["rescaleUuid"] == "e" * 32
    summary = await body(http, "/rescales/summary")
    assert (summary["pauseStatsInMillis"]["min"], summary["pauseStatsInMillis"]["max"]) == (0, 700)
    assert summary["failedRescalesDurationStatsInMillis"]["p50"] == "NaN"
    history = await body(http, "/rescales/history")
    assert [(one["rescaleAttemptId"], one["pauseInMillis"]) for one in history] == [(3, None), (2, 700), (1, 0)]


async def test_one_rescale(http: httpx.AsyncClient) -> None:
    one = await body(http, f"/rescales/details/{'e' * 32}")
    assert one["vertices"][VERTEX]["preRescaleParallelism"] == 1
    assert one["vertices"][VERTEX]["postRescaleParallelism"] == 3
    assert one["slots"]["default"]["postRescaleSlots"] == 3
    assert (one["triggerCause"], one["terminatedReason"]) == ("NEW_RESOURCE_AVAILABLE", "SUCCEEDED")
    assert [span["durationInMillis"] for span in one["schedulerStates"]] == [500, None]
    assert (await http.get("/rescales/details/unknown")).status_code == 404


async def test_bounds_are_read_and_set(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    known = await body(http, "/resource-requirements")
    assert known == {VERTEX: {"parallelism": {"lowerBound": 1, "upperBound": 4}}}
    answer = await http.put("/resource-requirements", json=known)
    assert (answer.status_code, answer.json()) == (200, {})
    (wanted,) = fakes.dispatcher.requirements
    assert (wanted.job_id, wanted.bounds) == (JOB, (VertexBounds(VERTEX, 1, 4),))
    fakes.dispatcher.refusal = ConflictError("it has 4 splits")
    assert (await http.put("/resource-requirements", json=known)).status_code == 409


@pytest.mark.parametrize(
    "content",
    [
        {},
        {VERTEX: {}},
        {VERTEX: {"parallelism": {"lowerBound": 0, "upperBound": 1}}},
        {VERTEX: {"parallelism": {"lowerBound": 1, "upperBound": 1, "other": 1}}},
        {"no id": {"parallelism": {"lowerBound": 1, "upperBound": 1}}},
    ],
)
async def test_what_is_no_bounds_is_refused(http: httpx.AsyncClient, fakes: RestFakes, content: Any) -> None:
    assert (await http.put("/resource-requirements", json=content)).status_code == 400
    assert fakes.dispatcher.requirements == []


@pytest.mark.parametrize("path", ["/resource-requirements", "/rescales/overview", "/rescales/history"])
async def test_a_job_of_another_scheduler_has_none(http: httpx.AsyncClient, fakes: RestFakes, path: str) -> None:
    graph = replace(fakes.dispatcher.graphs[JOB], rescales=None, status=fakes.dispatcher.graphs[JOB].status)
    batch = replace(graph, job_type=type(graph.job_type).BATCH)
    fakes.dispatcher.graphs[JOB] = batch
    answer = await http.get(path)
    assert answer.status_code == 404
    assert "has not enabled the `Adaptive` scheduler" in answer.text
