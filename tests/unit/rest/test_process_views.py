"""The routes that look into processes: whom they ask, what of it is believed, and who may."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from runtime.common.errors import InvalidInputError, PermanentError, UnavailableError
from runtime.gateways.process import (
    LOG_BYTES_MAX,
    LogFileRequest,
    LogFileResponse,
    ProcessFile,
)
from runtime.rest.access.roles import TABLE, Access
from runtime.rest.app import create_app
from runtime.rest.bodies.schema.processes import LogList, ProcessEnvironment, ThreadDump
from runtime.rest.routes.process_views import WHOLE_BYTES_MAX
from runtime.security.principals import Principal, Role
from tests.kit.rest.fakes import JOB_MASTER, FakeProcess, RestFakes
from tests.kit.rest.schema import check_answer

pytestmark = pytest.mark.asyncio

PATHS = {"/jobmanager": "", "/taskmanagers/tm-1": "127.0.0.1:1", f"/jobmasters/{JOB_MASTER}": "127.0.0.1:2"}
VIEWS = ("logs", "logs/x.log", "log", "stdout", "thread-dump")


@pytest.fixture
def fakes() -> RestFakes:
    return RestFakes()


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


def process_of(fakes: RestFakes, path: str) -> FakeProcess:
    return fakes.processes[PATHS[path]] if PATHS[path] else fakes.own_process


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_each_route_asks_its_process_and_no_other(
    http: httpx.AsyncClient, fakes: RestFakes, path: str, prefix: str
) -> None:
    logs = await http.get(f"{prefix}{path}/logs")
    check_answer(LogList, logs.json())
    assert logs.json() == {"logs": [{"name": "flinklike.log", "size": 18, "mtime": 1_700_000_000_000}]}
    dump = await http.get(f"{prefix}{path}/thread-dump")
    check_answer(ThreadDump, dump.json())
    texts = [await http.get(f"{prefix}{path}/{view}?offset=2&limit=5") for view in ("log", "stdout", "logs/x.log")]
    for one in texts:
        assert (one.status_code, one.text) == (200, "line ")
        assert one.headers["content-type"] == "text/plain; charset=utf-8"
        assert (one.headers["x-next-offset"], one.headers["x-size"]) == ("7", "18")
        assert one.headers["x-restarted"] == "false"
    asked = [one for one in process_of(fakes, path).asked if isinstance(one, LogFileRequest)]
    assert asked == [
        LogFileRequest(ProcessFile.LOG, "", 2, 5),
        LogFileRequest(ProcessFile.STDOUT, "", 2, 5),
        LogFileRequest(ProcessFile.NAMED, "x.log", 2, 5),
    ]
    others = [one for other, one in {"": fakes.own_process, **fakes.processes}.items() if other != PATHS[path]]
    assert not any(one.asked for one in others)


@pytest.mark.parametrize("path", ["/jobmanager", f"/jobmasters/{JOB_MASTER}", "/taskmanagers/tm-1"])
async def test_the_environment_is_as_flinks_clients_want_it(http: httpx.AsyncClient, path: str) -> None:
    body = (await http.get(f"{path}/environment")).json()
    check_answer(ProcessEnvironment, body)
    assert body == {
        "jvm": {"version": "Python 3.11.0", "arch": "x86_64", "options": ["python", "-m", "x"]},
        "classpath": ["/lib"],
    }


async def test_a_task_manager_is_found_by_its_incarnation_too(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    assert (await http.get(f"/taskmanagers/{'c' * 32}/logs")).status_code == 200
    assert fakes.processes["127.0.0.1:1"].asked


@pytest.mark.parametrize("path", ["/taskmanagers/tm-2", f"/jobmasters/{'0' * 32}", f"/taskmanagers/{'x' * 3000}"])
@pytest.mark.parametrize("view", VIEWS)
async def test_an_unknown_process_is_not_found(http: httpx.AsyncClient, path: str, view: str) -> None:
    answer = await http.get(f"{path}/{view}")
    assert answer.status_code == 404
    assert "not found" in answer.json()["errors"][0]
    assert len(answer.text) < 300


async def test_an_absent_file_names_the_process(http: httpx.AsyncClient) -> None:
    answer = await http.get("/taskmanagers/tm-1/logs/absent.log")
    assert answer.status_code == 404
    assert answer.json()["errors"] == ["TaskManager tm-1: this process has no log file 'absent.log'"]


@pytest.mark.parametrize(
    "name", ["..%2Ftoken", "%2e%2e%2ftoken", "../token", "a/b", "%2Fetc%2Fpasswd", "attempts%2Fx", ""]
)
async def test_a_name_with_separators_reaches_no_process(http: httpx.AsyncClient, fakes: RestFakes, name: str) -> None:
    answer = await http.get(f"/jobmanager/logs/{name}")
    assert answer.status_code == 404
    assert fakes.own_process.asked == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("limit=5", "limit: it goes with offset"),
        ("offset=0&limit=0", "limit"),
        (f"offset=0&limit={LOG_BYTES_MAX + 1}", "limit"),
        (f"offset={1 << 63}", "offset"),
        (f"offset=-{1 << 63}", "offset"),
        ("offset=x", "offset"),
    ],
)
async def test_bad_numbers_are_refused_with_their_names(
    http: httpx.AsyncClient, fakes: RestFakes, query: str, says: str
) -> None:
    answer = await http.get(f"/jobmanager/log?{query}")
    assert answer.status_code == 400
    assert says in answer.json()["errors"][0]
    assert fakes.own_process.asked == []


async def test_without_offset_it_is_the_whole_file(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.own_process.text = bytes(range(256)) * 8192  # two pieces
    answer = await http.get("/jobmanager/log")
    assert answer.content == fakes.own_process.text
    assert answer.headers["x-truncated"] == "false"
    assert (answer.headers["x-offset"], answer.headers["x-size"]) == ("0", str(256 * 8192))


async def test_of_a_large_file_it_is_the_end_and_the_head_says_so(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.own_process.text = b"x" * 100 + b"y" * WHOLE_BYTES_MAX
    answer = await http.get("/jobmanager/log")
    assert answer.content == b"y" * WHOLE_BYTES_MAX
    assert answer.headers["x-truncated"] == "true"
    assert answer.headers["x-offset"] == "100"


async def test_an_empty_file_is_an_empty_answer(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.own_process.text = b""
    answer = await http.get("/jobmanager/stdout")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_a_file_that_is_moved_aside_while_it_is_read_breaks_the_answer(fakes: RestFakes) -> None:
    class Rotating(FakeProcess):
        async def request_log_file(self, request: LogFileRequest, /) -> LogFileResponse:
            if request.offset > 0:
                return LogFileResponse(b"new", 3, 3, is_restarted=True)
            return LogFileResponse(b"x" * LOG_BYTES_MAX, LOG_BYTES_MAX, 3 * LOG_BYTES_MAX)

    fakes.own_process = Rotating()
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        with pytest.raises(RuntimeError, match="already started"):
            await client.get("/jobmanager/log")


async def test_a_restart_is_told(http: httpx.AsyncClient) -> None:
    answer = await http.get("/jobmanager/log?offset=999")
    assert (answer.text, answer.headers["x-restarted"]) == ("a line of the log\n", "true")


@pytest.mark.parametrize(
    "piece",
    [
        LogFileResponse(b"too much", 8, 8),
        LogFileResponse(b"x", 0, 1),
        LogFileResponse(b"", -1, 0),
        LogFileResponse(b"", 0, -1),
        LogFileResponse(b"", 1 << 63, 0),
    ],
)
async def test_what_cannot_be_is_not_believed(
    fakes: RestFakes, http: httpx.AsyncClient, piece: LogFileResponse
) -> None:
    class Lying(FakeProcess):
        async def request_log_file(self, request: LogFileRequest, /) -> LogFileResponse:
            return piece

    fakes.processes["127.0.0.1:1"] = Lying()
    answer = await http.get("/taskmanagers/tm-1/log?offset=0&limit=4")
    assert answer.status_code == 503
    assert "cannot be" in answer.json()["errors"][0]


@pytest.mark.parametrize(
    ("error", "status", "says"),
    [
        (UnavailableError("it is away"), 503, "it is away"),
        (PermanentError("there is no call X"), 503, "TaskManager tm-1 does not show this: there is no call X"),
        (InvalidInputError("a bad wish"), 400, "a bad wish"),
    ],
)
@pytest.mark.parametrize("view", VIEWS)
async def test_a_process_that_cannot_answer(
    http: httpx.AsyncClient, fakes: RestFakes, view: str, error: Exception, status: int, says: str
) -> None:
    fakes.processes["127.0.0.1:1"].error = error
    answer = await http.get(f"/taskmanagers/tm-1/{view}")
    assert (answer.status_code, answer.json()["errors"]) == (status, [says])


async def test_without_a_leader_there_is_no_answer(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.is_leading = False
    for path in PATHS:
        assert (await http.get(f"{path}/logs")).status_code == 503
    assert fakes.own_process.asked == []


async def test_they_take_the_operator_of_all_namespaces(fakes: RestFakes) -> None:
    """R48: what a process logs is about the jobs of all."""
    rows = [
        row for row in TABLE if row[1].rpartition("/")[2] in {"logs", "log", "stdout", "thread-dump", "environment"}
    ]
    rows += [row for row in TABLE if row[1].endswith("/logs/{file_name}")]
    of_processes = [row for row in rows if not row[1].startswith("/jobs/")]
    assert len(of_processes) == 18
    assert {TABLE[row] for row in of_processes} == {Access(Role.OPERATOR, is_of_all=True)}

    people = [
        Principal("o", Role.OPERATOR, "team-a"),
        Principal("v", Role.VIEWER, "*"),
        Principal("w", Role.OPERATOR, "*"),
    ]
    for who, status in zip(people, (403, 403, 200), strict=True):
        app = create_app(fakes.context(), sign_in=lambda _, who=who: who, content_length_max=1, hosts={"test"})  # type: ignore[misc]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
            for path in PATHS:
                for view in VIEWS:
                    assert (await client.get(f"{path}/{view}")).status_code == status, (who, path, view)
