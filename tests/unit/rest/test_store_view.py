"""What REST tells of the store: its size on the overview, each endpoint when somebody asks."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from starlette.types import Scope

from runtime.rest.access.sign_in import bearer_of
from runtime.rest.app import create_app
from runtime.security.principals import ADMIN, Principal, Role
from tests.kit.rest.fakes import RestFakes

pytestmark = pytest.mark.asyncio
FIGURES = {
    "version": "3.5.21",
    "size-bytes": 12 << 20,
    "used-bytes": 4 << 20,
    "quota-bytes": 2 << 30,
    "looked-at": 1_700_000_000_000,
}
PEOPLE = {"admin": ADMIN, "all": Principal("a", Role.VIEWER, "*"), "one": Principal("o", Role.VIEWER, "team-a")}


def _who(scope: Scope) -> Principal | None:
    return PEOPLE.get(bearer_of(scope))


@pytest.fixture
def connect() -> Callable[[str], httpx.AsyncClient]:
    fakes = RestFakes()

    def connect(who: str) -> httpx.AsyncClient:
        app = create_app(fakes.context(), sign_in=_who, content_length_max=1 << 20, hosts={"test"})
        headers = {"authorization": f"Bearer {who}"}
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test", headers=headers)

    connect.fakes = fakes  # type: ignore[attr-defined]
    return connect


@pytest.mark.parametrize("who", ["admin", "all"])
async def test_its_size_and_its_endpoints(connect: Callable[[str], httpx.AsyncClient], who: str) -> None:
    async with connect(who) as http:
        assert (await http.get("/overview")).json()["store"] == FIGURES
        body = (await http.get("/jobmanager/store")).json()
    assert (body["kind"], body["figures"]) == ("etcd", FIGURES)
    first, second = body["members"]
    assert (first["leader"], first["answer-millis"], first["problem"]) == (True, 1.3, "")
    assert second["problem"].endswith("etcd does not answer")


async def test_what_it_holds_is_of_all_namespaces(connect: Callable[[str], httpx.AsyncClient]) -> None:  # R48
    async with connect("one") as http:
        assert (await http.get("/overview")).json()["store"] is None
        assert (await http.get("/jobmanager/store")).status_code == 403


async def test_before_its_first_answer(connect: Callable[[str], httpx.AsyncClient]) -> None:
    connect.fakes.store.status = None  # type: ignore[attr-defined]
    async with connect("admin") as http:
        assert (await http.get("/overview")).json()["store"] is None
        assert (await http.get("/jobmanager/store")).json()["figures"] is None
