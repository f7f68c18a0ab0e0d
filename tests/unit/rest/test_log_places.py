"""The TaskManager that is asked for the log of an attempt: its own, the latest of its name, or one of its host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from runtime.common.errors import NotFoundError
from runtime.common.ids import Incarnation
from runtime.common.states import JobStatus
from runtime.gateways.resource_manager import TaskManagerInfo
from runtime.gateways.task_executor import AttemptLogRequest, AttemptLogResponse, TaskExecutorGateway
from runtime.rest.app import create_app
from tests.kit.rest.fakes import JOB, FakeTaskExecutor, RestFakes

pytestmark = pytest.mark.asyncio
LOG = f"/jobs/{JOB}/vertices/{1:032x}/subtasks/0/attempts/0/log"


class Asked(FakeTaskExecutor):
    def __init__(self, address: str, asked: list[str]) -> None:
        self.address, self.asked = address, asked

    async def request_attempt_log(self, request: AttemptLogRequest, /) -> AttemptLogResponse:
        self.asked.append(self.address)
        if self.address == "127.0.0.1:404":
            raise NotFoundError("no logs")
        return await super().request_attempt_log(request)


@pytest.fixture
def fakes() -> RestFakes:
    made = RestFakes()
    made.dispatcher.put(JOB, JobStatus.FINISHED)
    return made


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest_asyncio.fixture
async def http(fakes: RestFakes, asked: list[str]) -> AsyncIterator[httpx.AsyncClient]:
    def connect(address: str) -> TaskExecutorGateway:
        return Asked(address, asked)

    context = replace(fakes.context(), task_executor=connect)
    app = create_app(context, sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        yield client


def register(fakes: RestFakes, *found: tuple[str, str]) -> None:
    """These are registered, by name and address, the oldest first."""
    (one,) = fakes.resource_manager.task_managers()

    def info(number: int, name: str, address: str) -> TaskManagerInfo:
        incarnation = Incarnation(f"{number:032x}")
        changed = replace(one.registration, incarnation=incarnation, task_manager_id=name, address=address)
        return replace(one, registration=changed)

    infos = [info(number, *each) for number, each in enumerate(found)]
    fakes.resource_manager.task_managers = lambda: infos  # type: ignore[method-assign]  # a test's answer


@pytest.mark.parametrize(
    ("registered", "address"),
    [
        pytest.param([("tm-1", "127.0.0.1:1"), ("tm-2", "127.0.0.1:2")], "127.0.0.1:1", id="its own"),
        pytest.param([("tm-1", "127.0.0.1:1"), ("tm-1", "127.0.0.1:7")], "127.0.0.1:7", id="came back"),
        pytest.param([("tm-2", "10.0.0.2:2"), ("tm-3", "127.0.0.1:3")], "127.0.0.1:3", id="another of its host"),
    ],
)
async def test_who_is_asked(
    fakes: RestFakes, http: httpx.AsyncClient, asked: list[str], registered: list[tuple[str, str]], address: str
) -> None:
    register(fakes, *registered)
    assert (await http.get(LOG)).text == "hello from the task\n"
    assert asked == [address]
    looked = (await http.post(f"/jobs/{JOB}/logs", json={})).json()
    assert [one["missing"] for one in looked["attempts"]] == ["", ""]


@pytest.mark.parametrize("registered", [[], [("tm-2", "10.0.0.2:2")]])
async def test_where_nobody_is_left_the_answer_says_where_it_is(
    fakes: RestFakes, http: httpx.AsyncClient, registered: list[tuple[str, str]]
) -> None:
    register(fakes, *registered)
    answer = await http.get(LOG)
    assert answer.status_code == 404
    where = "It is on host 127.0.0.1 in log/attempts/tm-1/"
    assert where in answer.json()["errors"][0]
    looked = (await http.post(f"/jobs/{JOB}/logs", json={})).json()
    assert all(where in one["missing"] for one in looked["attempts"])


async def test_what_was_deleted_is_said_to_be(fakes: RestFakes, http: httpx.AsyncClient) -> None:
    register(fakes, ("tm-1", "127.0.0.1:404"))
    answer = await http.get(LOG)
    assert answer.status_code == 404
    assert "TaskManager tm-1 does not have it any more" in answer.json()["errors"][0]
