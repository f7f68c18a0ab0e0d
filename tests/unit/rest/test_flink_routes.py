"""docs/rest.md has each route of Flink 2.3, and each is answered or refused as its row says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from runtime.common.ids import JobId
from runtime.gateways.operations import OperationKind, OperationState, SavepointDisposal, StreamOperation
from runtime.gateways.task_executor import SampledStack
from tests.kit.rest.fakes import FakeTaskExecutor
from tests.kit.rest.rescaled_jobs import RESCALES, VERTEX
from tests.kit.rest.server import TOKEN, RestThread
from tests.kit.rest.streaming_graphs import CHECKPOINTS, put_checkpoints

ROOT = Path(__file__).resolve().parents[3]
ROUTES = Path(__file__).with_name("flink_routes.txt").read_text().splitlines()
"""As `RestHandlerSpecification`s of flink-dist 2.3.0 name them."""
_ROW = re.compile(r"^\| `((?:GET|POST|PUT|PATCH|DELETE) /\S+)` \| (same|differs|refused) \| (.*) \|$", re.MULTILINE)
ROWS = {route: (verdict, text) for route, verdict, text in _ROW.findall((ROOT / "docs" / "rest.md").read_text())}
JOB = JobId("a" * 32)
VALUES = {
    ":applicationid": JOB,
    ":jobid": JOB,
    ":vertexid": f"{1:032x}",
    ":taskmanagerid": "tm-1",
    ":subtaskindex": "0",
    ":attempt": "0",
    ":checkpointid": "7",
    ":filename": "flinklike.log",
}
"""Any other part is an id that nothing has."""
BODIES: dict[str, dict[str, Any]] = {
    "POST /jars/upload": {"files": {"jarfile": ("etl.py", b"print(1)")}},
    "PATCH /jobs/:jobid/clientHeartbeat": {"json": {"expiredTimestamp": 0}},
    "POST /jobs/:jobid/savepoints": {"json": {"target-directory": "/s"}},
    "POST /savepoint-disposal": {"json": {"savepoint-path": "/s/savepoint-1"}},
    "POST /jobs/:jobid/stop": {"json": {"targetDirectory": "/s"}},
    "PUT /jobs/:jobid/resource-requirements": {
        "json": {VERTEX: {"parallelism": {"lowerBound": 1, "upperBound": 2}}},
    },
}


def filled(route: str, jar: str) -> tuple[str, str]:
    method, path = route.split(" ")
    values = {**VALUES, ":jarid": jar}
    parts = [values.get(part, "e" * 32) if part.startswith(":") else part for part in path.split("/")]
    return method, "/".join(parts)


def test_the_table_has_each_route_of_flink_once() -> None:
    assert [*ROWS] == ROUTES
    assert len(ROUTES) == 95


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("route", ROUTES)
def test_a_route_is_answered_as_its_row_says(route: str, prefix: str, rest: tuple[RestThread, str]) -> None:
    thread, jar = rest
    verdict, text = ROWS[route]
    method, path = filled(route, jar)
    more = BODIES.get(route, {"json": {}} if method in {"POST", "PUT"} else {})
    if route == "POST /jobs":
        more = {"files": {"request": b"{}"}}
    headers = {"authorization": f"Bearer {TOKEN}"}
    answer = httpx.request(method, f"{thread.address}{prefix}{path}", headers=headers, timeout=30, **more)
    if route == "POST /jobs":
        assert (answer.status_code, "Java job graphs" in answer.text) == (400, True)
    elif verdict == "refused":
        status, _, sentence = text.partition(": ")
        assert answer.status_code == int(status), answer.text
        (error,) = answer.json()["errors"]
        assert error.startswith(sentence.replace("<id>", JOB)), error
    else:
        assert answer.status_code in {200, 202}, answer.text
        assert method == "GET" or "errors" not in answer.json()


@pytest.fixture
def rest(shared: RestThread, request: pytest.FixtureRequest) -> tuple[RestThread, str]:
    """With a streaming job that runs, an operation of it, and a program."""
    shared.do(lambda: put_checkpoints(shared.dispatcher, JOB, CHECKPOINTS))
    rescaled = replace(shared.dispatcher.graphs[JOB], rescales=RESCALES)
    shared.do(lambda: shared.dispatcher.graphs.update({JOB: rescaled}))
    kind = OperationKind.CHECKPOINT if "checkpoints" in request.node.name else OperationKind.SAVEPOINT
    asked = StreamOperation("e" * 32, kind, OperationState.IN_PROGRESS, 1, 1000, "/s/savepoint-1")
    shared.do(lambda: shared.dispatcher.operations.update({(JOB, asked.trigger_id): asked}))
    disposed = SavepointDisposal("e" * 32, "/s/savepoint-1", OperationState.IN_PROGRESS, 1000)
    shared.do(lambda: shared.fakes.disposals.stored.update({disposed.trigger_id: disposed}))
    headers = {"authorization": f"Bearer {TOKEN}"}
    stored = httpx.post(f"{shared.address}/jars/upload", headers=headers, **BODIES["POST /jars/upload"])
    return shared, stored.json()["filename"].rpartition("/")[2]


@pytest.fixture(scope="module")
def shared() -> Any:
    """One endpoint for all routes."""
    with RestThread() as made:
        made.fakes.stand_bys = []
        executor = made.fakes.task_executor
        assert isinstance(executor, FakeTaskExecutor)
        executor.stacks = (SampledStack(("main", "total"), 1, True),)
        yield made
