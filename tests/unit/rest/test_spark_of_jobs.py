"""GET /jobs/:id/spark: what ended attempts have kept, and what TaskManagers say of those that run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from runtime.common.errors import UnavailableError
from runtime.common.ids import ExecutionAttemptId
from runtime.common.states import JobStatus
from runtime.gateways.spark_work import STAGES_KEPT_MAX, SparkQuery, SparkStage, work_of
from runtime.gateways.task_executor import AttemptSpark, AttemptSparkRequest, AttemptSparkResponse
from runtime.rest.app import create_app
from tests.kit.rest.fakes import JOB, FakeTaskExecutor, RestFakes

READ = ExecutionAttemptId.parse(f"{JOB}_{1:032x}_0_7_0")
STAGE = SparkStage(
    stage_id=3, name="count at x.py:1", state="ACTIVE", tasks_total=4, tasks_completed=1, submitted_millis=5
)
QUERY = SparkQuery(1, 5, -1, "count", "== Physical Plan ==")

pytestmark = pytest.mark.asyncio


class Asked(FakeTaskExecutor):
    """Keeps what it was asked, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[AttemptSparkRequest] = []
        self.error: Exception | None = None
        self.unanswered: tuple[ExecutionAttemptId, ...] = ()
        self.never = False

    async def request_attempt_spark(self, request: AttemptSparkRequest, /) -> AttemptSparkResponse:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        if self.never:
            await asyncio.Event().wait()
        return AttemptSparkResponse(self.spark, self.unanswered)


@pytest.fixture
def fakes() -> RestFakes:
    fakes = RestFakes()
    fakes.task_executor = Asked()
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    return fakes


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        yield client


def asked(fakes: RestFakes) -> Asked:
    assert isinstance(fakes.task_executor, Asked)
    return fakes.task_executor


async def test_running_attempts_are_asked_live(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    stranger = ExecutionAttemptId.parse(f"{JOB}_{9:032x}_0_7_0")
    work = work_of(1, 0, [STAGE], 200)
    asked(fakes).spark = (AttemptSpark(READ, work, (QUERY,)), AttemptSpark(stranger, work, ()))
    body = (await http.get(f"/jobs/{JOB}/spark?plans=true")).json()
    (one,) = body["attempts"]
    assert (one["vertex-name"], one["subtask"], one["jobs"], one["stages-total"]) == ("read", 0, 1, 1)
    assert one["stages"][0]["counts"]["tasks-completed"] == 1
    assert one["queries"][0]["plan"] == "== Physical Plan =="
    assert len(asked(fakes).requests[0].attempts) == 2
    assert asked(fakes).requests[0].has_plans


async def test_a_job_that_has_ended_shows_what_it_has_kept_and_asks_nobody_but_for_plans(
    http: httpx.AsyncClient, fakes: RestFakes
) -> None:
    fakes.dispatcher.put(JOB, JobStatus.FINISHED)
    graph = fakes.dispatcher.graphs[JOB]
    first, second = graph.vertices
    stages = [replace(STAGE, stage_id=number, run_millis=number) for number in range(40)]
    current = replace(first.subtasks[0].current, spark_work=work_of(2, 1, stages, STAGES_KEPT_MAX))
    counted = replace(first, subtasks=(replace(first.subtasks[0], current=current),))
    fakes.dispatcher.graphs[JOB] = replace(graph, vertices=(counted, second))
    (one,) = (await http.get(f"/jobs/{JOB}/spark")).json()["attempts"]
    assert (one["stages-total"], len(one["stages"]), one["total"]["tasks-total"]) == (40, STAGES_KEPT_MAX, 160)
    assert [stage["id"] for stage in one["stages"]] == list(range(40 - STAGES_KEPT_MAX, 40))
    assert asked(fakes).requests == []
    await http.get(f"/jobs/{JOB}/spark?plans=true")
    assert [len(request.attempts) for request in asked(fakes).requests] == [1]


async def test_who_does_not_answer_is_named(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    asked(fakes).error = UnavailableError("away")
    body = (await http.get(f"/jobs/{JOB}/spark")).json()
    assert body["attempts"] == []
    assert body["problems"] == ["TaskManager tm-1 does not say what its Spark does: away"]


async def test_attempts_that_are_silent_are_named_beside_those_that_answer(
    http: httpx.AsyncClient, fakes: RestFakes
) -> None:
    stranger = ExecutionAttemptId.parse(f"{JOB}_{9:032x}_0_7_0")
    asked(fakes).unanswered = (READ, READ, stranger)
    body = (await http.get(f"/jobs/{JOB}/spark")).json()
    assert body["problems"] == ["Spark of TaskManager tm-1 has not said in time what it does for read 0"]


async def test_a_task_manager_that_hangs_does_not_hold_up_the_answer(fakes: RestFakes) -> None:
    asked(fakes).never = True
    context = replace(fakes.context(), rpc_timeout=0.05)
    app = create_app(context, sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        body = (await client.get(f"/jobs/{JOB}/spark")).json()
    assert body["problems"] == ["TaskManager tm-1 does not say what its Spark does: no answer in 0.05 s"]
