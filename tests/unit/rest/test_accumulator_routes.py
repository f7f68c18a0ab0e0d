"""What users' code has counted, in Flink's bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from runtime.common.accumulators import AccumulatorKind, UserAccumulator
from runtime.common.states import JobStatus
from runtime.rest.app import create_app
from tests.kit.rest.fakes import JOB, RestFakes

VERTEX = f"{1:032x}"
COUNTED = (
    UserAccumulator("rows", AccumulatorKind.COUNTER, 1 << 60),
    UserAccumulator("seconds", AccumulatorKind.HISTOGRAM, 2, 1.5, 0.5, 1.0),
)
ROWS = {"name": "rows", "type": "LongCounter", "value": str(1 << 60)}
SECONDS = {"name": "seconds", "type": "Histogram", "value": '{"count": 2, "sum": 1.5, "min": 0.5, "max": 1.0}'}

pytestmark = pytest.mark.asyncio


@pytest.fixture
def fakes() -> RestFakes:
    fakes = RestFakes()
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    graph = fakes.dispatcher.graphs[JOB]
    first, second = graph.vertices
    (subtask,) = first.subtasks
    current = replace(subtask.current, accumulators=COUNTED)
    counted = replace(first, accumulators=COUNTED, subtasks=(replace(subtask, current=current),))
    second = replace(second, accumulators=(UserAccumulator("rows", AccumulatorKind.GAUGE, 1, 2.0, 2.0, 2.0),))
    fakes.dispatcher.graphs[JOB] = replace(graph, vertices=(counted, second), accumulators_left_out=3)
    return fakes


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test/v1") as client:
        yield client


async def test_of_a_job(http: httpx.AsyncClient) -> None:
    answer = (await http.get(f"/jobs/{JOB}/accumulators")).json()
    gauge = {"name": "rows", "type": "Gauge", "value": '{"count": 1, "sum": 2.0, "min": 2.0, "max": 2.0}'}
    assert answer == {
        "job-accumulators": [],
        "user-task-accumulators": [ROWS, gauge, SECONDS],
        "serialized-user-task-accumulators": {},
        "left-out": 3,
    }


async def test_of_a_vertex_its_subtasks_and_an_attempt(http: httpx.AsyncClient) -> None:
    below = f"/jobs/{JOB}/vertices/{VERTEX}"
    assert (await http.get(f"{below}/accumulators")).json() == {"id": VERTEX, "user-accumulators": [ROWS, SECONDS]}
    told = (await http.get(f"{below}/subtasks/accumulators")).json()
    subtask = {"subtask": 0, "attempt": 0, "endpoint": "127.0.0.1:1", "user-accumulators": [ROWS, SECONDS]}
    assert told == {"id": VERTEX, "parallelism": 1, "subtasks": [subtask]}
    attempt = (await http.get(f"{below}/subtasks/0/attempts/0/accumulators")).json()
    assert attempt == {
        "subtask": 0,
        "attempt": 0,
        "id": f"{JOB}_{VERTEX}_0_7_0",
        "user-accumulators": [ROWS, SECONDS],
    }
    assert (await http.get(f"{below}/subtasks/0/attempts/1/accumulators")).status_code == 404


async def test_the_result_has_them_by_name(http: httpx.AsyncClient) -> None:
    answer = (await http.get(f"/jobs/{JOB}/execution-result")).json()["job-execution-result"]
    assert answer["accumulator-results"] == {}, "Flink's clients would deserialize it as Java"
    assert answer["accumulators"] == {
        "rows": 1 << 60,
        "rows (Gauge)": {"count": 1, "sum": 2.0, "min": 2.0, "max": 2.0},
        "seconds": {"count": 2, "sum": 1.5, "min": 0.5, "max": 1.0},
    }
