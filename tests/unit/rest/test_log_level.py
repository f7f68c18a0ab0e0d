"""POST /log-level: each process that the leader knows is told, and each says what became of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from runtime.common.errors import UnavailableError
from runtime.gateways.process import LogLevelRequest
from runtime.rest.app import create_app
from runtime.rest.bodies.schema.processes import ChangedLogLevel
from tests.kit.rest.fakes import JOB_MASTER, RestFakes
from tests.kit.rest.schema import check_answer

pytestmark = pytest.mark.asyncio

BODY = {"logger": "runtime.rest", "level": "DEBUG"}


@pytest.fixture
def fakes() -> RestFakes:
    return RestFakes()


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    headers = {"x-requested-with": "test"}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
        yield client


async def test_all_processes_are_told(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    answer = await http.post("/log-level", json=BODY)
    assert answer.status_code == 200
    check_answer(ChangedLogLevel, answer.json())
    names = ["jobmanager", f"jobmaster {JOB_MASTER}", "taskmanager tm-1"]
    changed = [{"process": name, "former": "DEFAULT", "error": ""} for name in names]
    assert answer.json() == {**BODY, "processes": changed}
    for process in (fakes.own_process, *fakes.processes.values()):
        assert process.asked == [LogLevelRequest("runtime.rest", "DEBUG")]


async def test_one_that_is_away_is_named_and_the_others_are_changed(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.processes["127.0.0.1:1"].error = UnavailableError("it is away")
    told = (await http.post("/log-level", json=BODY)).json()["processes"]
    assert [one["error"] for one in told] == ["", "", "it is away"]


async def test_a_job_master_that_is_the_job_manager_is_told_once(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.processes["127.0.0.1:2"] = fakes.own_process
    told = (await http.post("/log-level", json=BODY)).json()["processes"]
    assert [one["process"] for one in told] == ["jobmanager", "taskmanager tm-1"]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"logger": "runtime.absent", "level": "DEBUG"}, 404, "no process has a logger runtime.absent"),
        ({"logger": "hpack", "level": "DEBUG"}, 400, "logger: "),
        ({"logger": "runtime", "level": "LOUD"}, 400, "level: "),
        ({"logger": "runtime" * 100, "level": "DEBUG"}, 400, "logger: "),
        ({"logger": 1, "level": "DEBUG"}, 400, "logger: "),
        ({"logger": "runtime"}, 400, "level: missing"),
        ({**BODY, "for": 5}, 400, "for: unknown field"),
        ([], 400, "JSON object"),
    ],
)
async def test_a_wrong_body_is_refused(
    http: httpx.AsyncClient, fakes: RestFakes, body: object, status: int, says: str
) -> None:
    answer = await http.post("/log-level", json=body)
    assert answer.status_code == status
    assert says in answer.json()["errors"][0]
    if status == 400:
        assert fakes.own_process.asked == []
