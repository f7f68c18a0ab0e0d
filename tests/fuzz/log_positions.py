"""POST /jobs/:id/logs from end to end: what readers say of how far they are, and what TaskManagers say of the logs.

A reader sends any body, and the TaskManager that is asked is the product's, over the messages that it gets. Or the
reader is right, and the TaskManager says anything; or anything comes to a TaskManager.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import httpx

from runtime.common.errors import InvalidInputError, NotFoundError
from runtime.common.ids import ExecutionAttemptId
from runtime.common.log_position import LogPosition
from runtime.common.states import JobStatus
from runtime.gateways.task_executor import (
    AttemptLogPiece,
    AttemptLogRequest,
    AttemptLogResponse,
    AttemptLogsRequest,
    AttemptLogsResponse,
    LogStream,
    TaskExecutorGateway,
)
from runtime.rest.app import create_app
from runtime.rest.context import RestContext
from runtime.rpc import codec
from runtime.taskexecutor.attempt_logs.log_files import attempt_directory, read_log, read_logs
from tests.fuzz.surface import Surface
from tests.kit.rest.fakes import JOB, FakeTaskExecutor, RestFakes, archived, shown

_TOKEN = "the-token"
_ATTEMPTS = [ExecutionAttemptId.parse(f"{JOB}_{number:032x}_0_7_0") for number in (1, 2)]
_REFUSALS = (400, 404, 413, 422)


class _TaskManager(FakeTaskExecutor):
    """The product's reader, over the product's messages."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def request_attempt_logs(self, request: AttemptLogsRequest, /) -> AttemptLogsResponse:
        """As the endpoint does."""
        answer = read_logs(self._root, codec.decode(AttemptLogsRequest, codec.encode(request)))
        return codec.decode(AttemptLogsResponse, codec.encode(answer))

    async def request_attempt_log(self, request: AttemptLogRequest, /) -> AttemptLogResponse:
        """As the endpoint does."""
        answer = read_log(self._root, codec.decode(AttemptLogRequest, codec.encode(request)))
        return codec.decode(AttemptLogResponse, codec.encode(answer))


class _FalseTaskManager(FakeTaskExecutor):
    """Whoever has its credentials."""

    said = b""

    async def request_attempt_logs(self, request: AttemptLogsRequest, /) -> AttemptLogsResponse:
        """What the input says."""
        return codec.decode(AttemptLogsResponse, self.said)

    async def request_attempt_log(self, request: AttemptLogRequest, /) -> AttemptLogResponse:
        """The first of it."""
        pieces = codec.decode(AttemptLogsResponse, self.said).pieces
        return (
            pieces[0].piece or AttemptLogResponse(b"", 0, 0, False)
            if pieces
            else await super().request_attempt_log(request)
        )


class _Rest:
    """The application of a JobManager that knows one job, beside a TaskManager."""

    def __init__(self, manager: TaskExecutorGateway) -> None:
        self._runner = asyncio.Runner()
        fakes = RestFakes()
        fakes.dispatcher.graphs[JOB] = archived(JOB, JobStatus.RUNNING)
        fakes.dispatcher.put(JOB, JobStatus.RUNNING)
        context: RestContext = replace(fakes.context(), task_executor=lambda _: manager, long_poll_max=0.0)
        app = create_app(context, sign_in=shown(_TOKEN), content_length_max=1 << 22, hosts={"test"})
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app),
            base_url="http://test",
            headers={"authorization": f"Bearer {_TOKEN}", "content-type": "application/json"},
        )

    def ask(self, method: str, path: str, body: bytes = b"") -> httpx.Response:
        """The answer; what it fails with, fails here."""
        answer: httpx.Response = self._runner.run(self._client.request(method, path, content=body))
        return answer


def _begin() -> Callable[[bytes], object]:
    root = Path(tempfile.mkdtemp(prefix="fuzz-logs."))
    for one in _ATTEMPTS:
        attempt_directory(root, one).mkdir()
        (attempt_directory(root, one) / "stdout").write_bytes(b"a line\n" * 100)
    false = _FalseTaskManager()
    rest, rest_of_false = _Rest(_TaskManager(root)), _Rest(false)

    def feed(data: bytes) -> object:
        rest_of_data = data[1:]
        match data[:1]:
            case b"p":
                position = LogPosition.from_json(_document(rest_of_data))
                again = LogPosition.from_json(json.loads(json.dumps(position.to_json())))
                assert again.to_json() == position.to_json()
                return "a position"
            case b"r":
                return len(read_logs(root, codec.decode(AttemptLogsRequest, rest_of_data)).pieces)
            case b"a":
                false.said = rest_of_data
                one = rest_of_false.ask("GET", f"/jobs/{JOB}/vertices/{1:032x}/subtasks/0/attempts/0/log?limit=4096")
                assert one.status_code in {200, 400, 503}, one.text
                return _looked(rest_of_false.ask("POST", f"/jobs/{JOB}/logs", b"{}"))
            case _:
                return _looked(rest.ask("POST", f"/jobs/{JOB}/logs", rest_of_data))

    return feed


def _document(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        message = "no JSON"
        raise InvalidInputError(message) from error


def _looked(answer: httpx.Response) -> str:
    if answer.status_code in _REFUSALS:
        return f"{answer.status_code} {answer.json()['errors'][0]}"
    assert answer.status_code == 200, answer.text
    found = answer.json()
    for attempt in found["attempts"]:
        for piece in attempt["logs"].values():
            assert min(piece["next-offset"], piece["size"], piece["dropped"]) >= 0
            assert len(piece["data"]) <= 4 * (piece["next-offset"] + 2) // 3 + 4
    return f"{len(found['attempts'])} attempts, {found['more']}, {[one['missing'][:40] for one in found['attempts']]}"


def _seeds() -> Sequence[bytes]:
    vertex = f"{1:032x}"
    position = {"live": [[vertex, 0, 0, 7, 0, 0]], "drained": [[f"{2:032x}", 0, "0-2,5"], [vertex, 1, "7"]]}
    body = {"position": position, "streams": ["stdout", "log"], "limit": 4096, "wait": 0.0, "since": 3}
    read = AttemptLogRequest(_ATTEMPTS[0], LogStream.STDOUT, 7, 100)
    asked = AttemptLogsRequest((read, replace(read, attempt_id=_ATTEMPTS[1], offset=-5)), 4096)
    piece = AttemptLogResponse(b"a line\n", 14, 700, is_truncated=True, dropped_bytes=7)
    answer = AttemptLogsResponse((AttemptLogPiece(0, piece), AttemptLogPiece(1, None), AttemptLogPiece(3, piece)))
    return [
        b"p" + json.dumps(position).encode(),
        b"b" + json.dumps(body).encode(),
        b"b" + json.dumps({**body, "vertex": vertex, "subtask": 0, "attempt": 0}).encode(),
        b"r" + codec.encode(asked),
        b"a" + codec.encode(answer),
    ]


SURFACES = (
    Surface(
        "log-positions",
        _begin,
        _seeds,
        (InvalidInputError, NotFoundError),
        prefix=1,
        tokens=(b'"0-65535"', b",0-65535" * 50, b'"0-99999"', b"1e999", b"9223372036854775808", b"-1", b"NaN", b"true"),
    ),
)
