"""POST /jobs/:id/logs: one look at the logs of all attempts."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import pytest_asyncio

from runtime.common.errors import UnavailableError
from runtime.common.ids import VertexId
from runtime.common.states import ExecutionState, JobStatus
from runtime.executiongraph.archived import ArchivedExecution, ArchivedExecutionGraph, ArchivedProgress, ArchivedSubtask
from runtime.gateways.task_executor import (
    AttemptLogPiece,
    AttemptLogResponse,
    AttemptLogsRequest,
    AttemptLogsResponse,
    TaskExecutorGateway,
)
from runtime.rest.app import create_app
from runtime.rest.bodies.schema.jobs import JobLogs
from runtime.rest.routes.log_reads import PIECE_BYTES_MAX
from tests.kit.rest.fakes import JOB, FakeTaskExecutor, RestFakes, archived
from tests.kit.rest.schema import check_answer

READ, WRITE = f"{1:032x}", f"{2:032x}"
TEXT = FakeTaskExecutor.text.decode()


class TestingTaskExecutor(FakeTaskExecutor):
    """Counts calls; has lost the logs of some attempts; has room for some bytes; or does not answer."""

    __test__ = False

    def __init__(self) -> None:
        self.calls: list[AttemptLogsRequest] = []
        self.lost: set[str] = set()
        self.error: Exception | None = None

    async def request_attempt_logs(self, request: AttemptLogsRequest, /) -> AttemptLogsResponse:
        """What is there."""
        self.calls.append(request)
        if self.error is not None:
            raise self.error
        pieces: list[AttemptLogPiece] = []
        room = request.size_bytes_max
        for index, read in enumerate(request.reads):
            piece: AttemptLogResponse | None = await self.request_attempt_log(read)
            assert piece is not None
            if str(read.attempt_id) in self.lost:
                piece = None
            elif len(piece.data) > room:
                break
            else:
                room -= len(piece.data)
            pieces.append(AttemptLogPiece(index, piece))
        return AttemptLogsResponse(tuple(pieces))


@pytest.fixture
def fakes() -> RestFakes:
    made = RestFakes()
    made.dispatcher.put(JOB, JobStatus.RUNNING)
    return made


@pytest.fixture
def executor() -> TestingTaskExecutor:
    return TestingTaskExecutor()


@pytest_asyncio.fixture
async def http(fakes: RestFakes, executor: TestingTaskExecutor) -> AsyncIterator[httpx.AsyncClient]:
    def connect(address: str) -> TaskExecutorGateway:
        assert address == "127.0.0.1:1"
        return executor

    context = replace(fakes.context(), task_executor=connect)
    app = create_app(context, sign_in=None, content_length_max=1 << 20, hosts={"test"})
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def look(http: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await http.post(f"/jobs/{JOB}/logs", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def text(attempt: dict[str, Any], stream: str = "stdout") -> str:
    return base64.b64decode(attempt["logs"][stream]["data"]).decode()


def wide(count: int, *, running: int) -> ArchivedExecutionGraph:
    """A job whose first vertex has `count` subtasks; the first `running` of them run, the others have ended."""
    graph = archived(JOB, JobStatus.RUNNING)
    first = graph.vertices[0].subtasks[0].current

    def attempt(number: int) -> ArchivedExecution:
        state = ExecutionState.RUNNING if number < running else ExecutionState.FINISHED
        return replace(first, state=state, attempt_id=f"{JOB}_{1:032x}_{number}_7_0")

    subtasks = tuple(ArchivedSubtask(number, attempt(number), ()) for number in range(count))
    return replace(graph, vertices=(replace(graph.vertices[0], parallelism=count, subtasks=subtasks),))


@pytest.mark.asyncio
async def test_the_first_look_finds_everything_and_the_next_nothing(http: httpx.AsyncClient) -> None:
    first = await look(http)
    check_answer(JobLogs, first)
    assert [(one["vertex"], text(one), one["ended"]) for one in first["attempts"]] == [
        (READ, TEXT, False),
        (WRITE, TEXT, False),
    ]
    assert (first["state"], first["more"]) == ("RUNNING", False)
    position = {"live": [[READ, 0, 0, 20, 0, 0], [WRITE, 0, 0, 6, 0, 0]]}
    second = await look(http, position=position)
    assert [(one["vertex"], text(one)) for one in second["attempts"]] == [(WRITE, TEXT[6:])]


@pytest.mark.asyncio
async def test_a_thousand_subtasks_are_one_call_and_those_read_to_their_end_none(
    http: httpx.AsyncClient, fakes: RestFakes, executor: TestingTaskExecutor
) -> None:
    fakes.dispatcher.graphs[JOB] = wide(1_000, running=4)
    first = await look(http)
    assert len(executor.calls) == 1
    assert len(first["attempts"]) == 1_000
    position = {"drained": [[READ, 0, "4-999"]], "live": [[READ, n, 0, 20, 0, 0] for n in range(4)]}
    second = await look(http, position=position)
    assert [len(call.reads) for call in executor.calls] == [3_000, 12]
    assert second["attempts"] == []


@pytest.mark.asyncio
async def test_attempts_above_the_bound_and_bytes_without_room_are_left_for_the_next_look(
    http: httpx.AsyncClient, fakes: RestFakes, executor: TestingTaskExecutor
) -> None:
    fakes.dispatcher.graphs[JOB] = wide(1_200, running=0)
    executor.text = b"x" * 99 + b"\n"
    found = await look(http, limit=1)
    assert executor.calls[0].size_bytes_max == PIECE_BYTES_MAX
    read = [one for one in found["attempts"] if len(one["logs"]) == 3]
    assert len(read) == PIECE_BYTES_MAX // 100
    assert found["more"]
    drained = {"drained": [[READ, 0, f"0-{len(read) - 1}"]]}
    assert (await look(http, position=drained))["attempts"][0]["subtask"] == len(read)
    last = await look(http, position={"drained": [[READ, 0, "0-1198"]]})
    assert (len(last["attempts"]), last["more"]) == (1, False)


@pytest.mark.asyncio
async def test_earlier_attempts_come_first(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    graph = wide(1, running=1)
    subtask = graph.vertices[0].subtasks[0]
    failed = replace(subtask.current, state=ExecutionState.FAILED)
    again = replace(subtask.current, attempt=1, attempt_id=f"{JOB}_{1:032x}_0_7_1")
    vertex = replace(graph.vertices[0], subtasks=(ArchivedSubtask(0, again, (failed,)),))
    fakes.dispatcher.graphs[JOB] = replace(graph, vertices=(vertex,))
    found = (await look(http))["attempts"]
    assert [(one["attempt"], one["ended"]) for one in found] == [(0, True), (1, False)]
    rest = (await look(http, position={"drained": [[READ, 0, "0"]]}))["attempts"]
    assert [one["attempt"] for one in rest] == [1]


@pytest.mark.asyncio
async def test_one_vertex_one_subtask_and_chosen_streams(
    http: httpx.AsyncClient, fakes: RestFakes, executor: TestingTaskExecutor
) -> None:
    fakes.dispatcher.graphs[JOB] = wide(5, running=5)
    [one] = (await look(http, vertex="read", subtask=3, streams=["stdout"]))["attempts"]
    assert (one["subtask"], list(one["logs"])) == (3, ["stdout"])
    assert (await look(http, streams=[]))["attempts"] == []
    assert len(executor.calls) == 1
    assert (await http.post(f"/jobs/{JOB}/logs", json={"vertex": "x"})).status_code == 404
    assert (await http.post(f"/jobs/{JOB}/logs", json={"streams": ["out"]})).status_code == 400
    assert (await http.post(f"/jobs/{JOB}/logs", json={"position": {"live": 1}})).status_code == 400


@pytest.mark.asyncio
async def test_logs_that_are_gone_are_named_when_their_attempt_has_ended(
    http: httpx.AsyncClient, fakes: RestFakes, executor: TestingTaskExecutor
) -> None:
    fakes.dispatcher.graphs[JOB] = wide(3, running=1)
    executor.lost = {f"{JOB}_{1:032x}_{number}_7_0" for number in range(2)}
    found = {one["subtask"]: one for one in (await look(http))["attempts"]}
    assert set(found) == {1, 2}
    assert found[1]["missing"] == "TaskManager tm-1 does not have it any more"
    executor.error = UnavailableError("starting")
    found = {one["subtask"]: one for one in (await look(http))["attempts"]}
    assert found[2]["missing"] == "TaskManager tm-1 does not answer: starting"


@pytest.mark.asyncio
async def test_an_attempt_that_never_ran_is_not_missed(
    http: httpx.AsyncClient, fakes: RestFakes, executor: TestingTaskExecutor
) -> None:
    graph = wide(1, running=0)
    subtask = graph.vertices[0].subtasks[0]
    times = {ExecutionState.CREATED: 900, ExecutionState.DEPLOYING: 950, ExecutionState.CANCELED: 990}
    current = replace(subtask.current, state=ExecutionState.CANCELED, timestamps=times)
    vertex = replace(graph.vertices[0], subtasks=(replace(subtask, current=current),))
    fakes.dispatcher.graphs[JOB] = replace(graph, vertices=(vertex,))
    executor.lost = {current.attempt_id}
    [one] = (await look(http))["attempts"]
    assert (one["missing"], one["ended"], one["logs"]["stdout"]["size"]) == ("", True, 0)


@pytest.mark.asyncio
async def test_progress_comes_with_the_look(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    graph = wide(4, running=3)
    subtasks = list(graph.vertices[0].subtasks)
    progress = ArchivedProgress(0.5, "half", 1, 2, 30, 40)
    subtasks[0] = replace(subtasks[0], current=replace(subtasks[0].current, progress=progress))
    vertex = replace(graph.vertices[0], subtasks=tuple(subtasks), id=VertexId(READ))
    fakes.dispatcher.graphs[JOB] = replace(graph, vertices=(vertex,))
    assert (await look(http, streams=[]))["vertices"] == [
        {
            "id": READ,
            "name": "read",
            "parallelism": 4,
            "tasks": {"RUNNING": 3, "FINISHED": 1},
            "progress": {
                "text": "half",
                "fraction": 0.5,
                "spark-stages-active": 2,
                "spark-tasks-completed": 30,
                "spark-tasks-total": 40,
            },
        }
    ]


@pytest.mark.asyncio
async def test_a_look_waits_for_a_change(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    await look(http, since=1_000, wait=0.05)
    assert fakes.dispatcher.polls == 1
    await look(http, since=999, wait=5)
    assert fakes.dispatcher.polls == 1
