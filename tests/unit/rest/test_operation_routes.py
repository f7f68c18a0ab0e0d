"""Checkpoints on request, savepoints and stops in Flink's words: triggered, repeated, asked about, refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from runtime.common.errors import ConflictError
from runtime.common.states import JobStatus
from runtime.gateways.operations import OperationKind, OperationState
from runtime.rest.app import create_app
from tests.kit.rest.fakes import JOB, RestFakes

BELOW = f"/jobs/{JOB}"
ID = "b" * 32

pytestmark = pytest.mark.asyncio


@pytest.fixture
def fakes() -> RestFakes:
    fakes = RestFakes()
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    return fakes


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    context = replace(fakes.context(), savepoint_directory="/default")
    app = create_app(context, sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test/v1") as client:
        yield client


async def test_a_savepoint_is_triggered_and_asked_about(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    body = {"target-directory": "file:///s", "cancel-job": False, "formatType": "CANONICAL", "triggerId": ID}
    answer = await http.post(f"{BELOW}/savepoints", json=body)
    assert (answer.status_code, answer.json()) == (202, {"request-id": ID})
    path = f"{BELOW}/savepoints/{ID}"
    assert (await http.get(path)).json() == {"status": {"id": "IN_PROGRESS"}, "operation": None}
    one = fakes.dispatcher.operations[JOB, ID]
    assert (one.kind, one.directory) == (OperationKind.SAVEPOINT, f"/s/savepoint-{JOB[:6]}-000000000001")
    fakes.dispatcher.operations[JOB, ID] = replace(one, state=OperationState.COMPLETED)
    location = {"location": f"file:///s/savepoint-{JOB[:6]}-000000000001"}
    assert (await http.get(path)).json() == {"status": {"id": "COMPLETED"}, "operation": location}
    fakes.dispatcher.operations[JOB, ID] = replace(one, state=OperationState.FAILED, cause="no space")
    failed = (await http.get(path)).json()["operation"]["failure-cause"]
    assert failed["class"].endswith(".CheckpointException")
    assert failed["stack-trace"].endswith(": no space")
    assert failed["serialized-throwable"]


async def test_a_trigger_without_an_id_gets_one(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    for path in ("savepoints", "stop", "checkpoints"):
        answer = await http.post(f"{BELOW}/{path}")
        assert answer.status_code == 202, answer.text
        assert (JOB, answer.json()["request-id"]) in fakes.dispatcher.operations
    kinds = {one.kind for one in fakes.dispatcher.operations.values()}
    assert kinds == set(OperationKind)
    assert all(one.directory.startswith("/default/") for one in fakes.dispatcher.operations.values() if one.directory)


async def test_a_stop(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    body = {"targetDirectory": "/s/", "drain": True, "formatType": None, "triggerId": ID}
    assert (await http.post(f"{BELOW}/stop", json=body)).status_code == 202
    one = fakes.dispatcher.operations[JOB, ID]
    assert (one.kind, one.drains, one.directory[:3]) == (OperationKind.STOP, True, "/s/")
    cancelled = await http.post(f"{BELOW}/savepoints", json={"target-directory": "/s", "cancel-job": True})
    assert fakes.dispatcher.operations[JOB, cancelled.json()["request-id"]].kind is OperationKind.STOP


async def test_a_checkpoint_on_request(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    await http.post(f"{BELOW}/checkpoints", json={"triggerId": ID, "checkpointType": "FULL"})
    path = f"{BELOW}/checkpoints/{ID}"
    one = fakes.dispatcher.operations[JOB, ID]
    fakes.dispatcher.operations[JOB, ID] = replace(one, state=OperationState.COMPLETED)
    assert (await http.get(path)).json() == {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": 7}}
    assert (await http.get(f"{BELOW}/savepoints/{ID}")).status_code == 404
    fakes.dispatcher.operations[JOB, ID] = replace(one, state=OperationState.FAILED, cause="no")
    assert "failureCause" in (await http.get(path)).json()["operation"]


async def test_what_is_refused(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    for path, body, why in (
        ("savepoints", {"target-directory": "s3://bucket/x"}, "is no absolute path and no file URL"),
        ("savepoints", {"target-directory": "file://elsewhere/s"}, "is no absolute path and no file URL"),
        ("savepoints", {"target-directory": "relative"}, "is no absolute path and no file URL"),
        ("savepoints", {"target-directory": "/s/../etc"}, "no directory for savepoints"),
        ("savepoints", {"target-directory": "/" + "x" * 2000}, "target-directory"),
        ("savepoints", {"formatType": "NATIVE"}, "formatType"),
        ("savepoints", {"triggerId": "short"}, "triggerId"),
        ("stop", {"drained": True}, "drained"),
        ("checkpoints", {"checkpointType": "INCREMENTAL"}, "checkpointType"),
    ):
        answer = await http.post(f"{BELOW}/{path}", json=body)
        assert answer.status_code == 400, (body, answer.text)
        assert why in answer.text, (body, answer.text)
    fakes.dispatcher.refusal = ConflictError("it is being stopped")
    assert (await http.post(f"{BELOW}/stop")).status_code == 409
    missing = await http.get(f"{BELOW}/savepoints/{ID}")
    assert (missing.status_code, f"triggerId={ID}" in missing.text) == (404, True)
    assert (await http.post(f"/jobs/{'e' * 32}/savepoints")).status_code == 404


async def test_without_a_directory_one_has_to_be_named(fakes: RestFakes) -> None:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test/v1") as client:
        answer = await client.post(f"{BELOW}/savepoints")
        unknown = await client.post(f"/jobs/{'e' * 32}/stop")
    assert (answer.status_code, "No savepoint directory configured" in answer.text) == (400, True)
    assert (unknown.status_code, "e" * 32 in unknown.text) == (404, True), "of an unknown job that is said first"
