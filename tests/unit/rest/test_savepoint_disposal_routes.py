"""Flink's `savepoint-disposal`: what is asked for, by whom, and what REST refuses before anybody looks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import pytest
from starlette.types import Scope

from runtime.gateways.operations import OperationState
from runtime.rest.access.sign_in import bearer_of
from runtime.rest.app import create_app
from runtime.security.principals import ADMIN, Principal, Role
from tests.kit.rest.disposals import FakeDisposals
from tests.kit.rest.fakes import RestFakes

pytestmark = pytest.mark.asyncio
ID = "b" * 32
PEOPLE = {
    "sam": Principal("sam", Role.SUBMITTER, "team-a"),
    "olga": Principal("olga", Role.OPERATOR, "team-a"),
    "vera": Principal("vera", Role.VIEWER, "team-b"),
    "admin": ADMIN,
}


@pytest.fixture
def disposals() -> FakeDisposals:
    return FakeDisposals()


def sign_in(scope: Scope) -> Principal | None:
    return PEOPLE.get(bearer_of(scope))


@asynccontextmanager
async def signed_in(who: str, disposals: FakeDisposals | None, below: str = "") -> AsyncIterator[httpx.AsyncClient]:
    fakes = RestFakes()
    leading = fakes.context().components
    context = replace(fakes.context(), leader=lambda: replace(leading, disposals=disposals), savepoint_directory=below)
    app = create_app(context, sign_in=sign_in, content_length_max=1 << 20, hosts={"test"})
    headers = {"authorization": f"Bearer {who}", "content-type": "application/json"}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test/v1", headers=headers) as client:
        yield client


async def test_a_disposal_is_asked_for_and_asked_about(disposals: FakeDisposals) -> None:
    async with signed_in("admin", disposals) as http:
        answer = await http.post("/savepoint-disposal", json={"savepoint-path": "file:/s/savepoint-1"})
        assert answer.status_code == 200, answer.text
        trigger_id = answer.json()["request-id"]
        wish = disposals.stored[trigger_id]
        assert (wish.path, wish.below, wish.submitter, wish.namespace) == ("/s/savepoint-1", "", "", "")
        path = f"/savepoint-disposal/{trigger_id}"
        assert (await http.get(path)).json() == {"status": {"id": "IN_PROGRESS"}, "operation": None}
        disposals.stored[trigger_id] = replace(wish, state=OperationState.COMPLETED)
        assert (await http.get(path)).json() == {"status": {"id": "COMPLETED"}, "operation": {}}
        disposals.stored[trigger_id] = replace(wish, state=OperationState.FAILED, cause="in use")
        failed = (await http.get(path)).json()["operation"]["failure-cause"]
        assert failed["class"] == "org.apache.flink.util.FlinkException"
        assert failed["stack-trace"].endswith("Could not dispose savepoint /s/savepoint-1: in use")
        missing = await http.get(f"/savepoint-disposal/{ID}")
        assert (missing.status_code, "no savepoint disposal operation" in missing.text) == (404, True)


async def test_whose_savepoints_may_go(disposals: FakeDisposals) -> None:
    for who, submitter, namespace in (("sam", "sam", "team-a"), ("olga", "", "team-a")):
        async with signed_in(who, disposals) as http:
            body = {"savepoint-path": "/s/savepoint-1", "triggerId": ID}
            assert (await http.post("/savepoint-disposal", json=body)).json() == {"request-id": ID}
            wish = disposals.stored[ID]
            assert (wish.submitter, wish.namespace) == (submitter, namespace)
            assert (await http.get(f"/savepoint-disposal/{ID}")).status_code == 200
            other = await http.post("/savepoint-disposal", json={**body, "savepoint-path": "/s/savepoint-2"})
            assert (other.status_code, "is taken" in other.text) == (400, True)
        async with signed_in("vera", disposals) as http:
            assert (await http.post("/savepoint-disposal", json=body)).status_code == 403
            assert (await http.get(f"/savepoint-disposal/{ID}")).status_code == 404, "of another namespace"
        disposals.stored.clear()


async def test_paths_that_nobody_looks_at(disposals: FakeDisposals) -> None:
    async with signed_in("admin", disposals, below="file:///s") as http:
        for path, says in (
            ("", "is no savepoint"),
            ("relative/savepoint-1", "is no savepoint"),
            ("s3://bucket/savepoint-1", "is no savepoint"),
            ("/s/../etc/savepoint-1", "is no savepoint"),
            ("/s\0/savepoint-1", "is no savepoint"),
            ("/etc/savepoint-1", "does not lie below execution.checkpointing.savepoint-dir, /s"),
            ("/s", "does not lie below"),
            ("/s" * 1000, "savepoint-path"),
        ):
            answer = await http.post("/savepoint-disposal", json={"savepoint-path": path})
            assert (answer.status_code, says in answer.text) == (400, True), (path, answer.text)
        assert (await http.post("/savepoint-disposal", json={})).status_code == 400
        assert not disposals.stored
        assert (await http.post("/savepoint-disposal", json={"savepoint-path": "/s/a/savepoint-1"})).status_code == 200
    async with signed_in("admin", None) as http:
        assert (await http.post("/savepoint-disposal", json={"savepoint-path": "/s/savepoint-1"})).status_code == 503
