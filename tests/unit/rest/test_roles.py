"""R48: the role of each route; a hidden job is a 404; the submitter of a job, and the principals that may change it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import Scope

from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.rest.access.roles import TABLE, Access, role_for
from runtime.rest.access.sign_in import bearer_of, principal_of
from runtime.rest.app import create_app
from runtime.rest.openapi import DescribedApp
from runtime.security.principals import ADMIN, Principal, Role
from tests.kit.control_plane.job_graphs import lone
from tests.kit.rest.fakes import JOB_MASTER, RestFakes

MINE, THEIRS, FOREIGN = JobId("a" * 32), JobId("b" * 32), JobId("c" * 32)
UNKNOWN = JobId("d" * 32)
PEOPLE = {
    "viewer": Principal("vera", Role.VIEWER, "team-a"),
    "submitter": Principal("sam", Role.SUBMITTER, "team-a"),
    "operator": Principal("olga", Role.OPERATOR, "team-a"),
    "operator-of-all": Principal("otto", Role.OPERATOR, "*"),
    "viewer-of-all": Principal("vito", Role.VIEWER, "*"),
    "submitter-of-all": Principal("sara", Role.SUBMITTER, "*"),
    "admin": ADMIN,
}

Connect = Callable[[str], AbstractAsyncContextManager[httpx.AsyncClient]]


def three_jobs() -> RestFakes:
    """Of sam in team-a, of somebody else there, and of team-b."""
    made = RestFakes()
    for job_id, submitter, namespace in (
        (MINE, "sam", "team-a"),
        (THEIRS, "tom", "team-a"),
        (FOREIGN, "bea", "team-b"),
    ):
        made.dispatcher.put(job_id, JobStatus.RUNNING)
        shown = replace(made.dispatcher.summaries[job_id], submitter=submitter, namespace=namespace)
        made.dispatcher.summaries[job_id] = shown
    return made


def sign_in(scope: Scope) -> Principal | None:
    return PEOPLE.get(bearer_of(scope))


@pytest.fixture
def fakes() -> RestFakes:
    return three_jobs()


@pytest.fixture
def as_(fakes: RestFakes) -> Connect:
    return connecting(fakes)


@pytest.fixture(scope="module")
def as_any() -> Connect:
    """To one application for all routes, as to make one costs a tenth of a second."""
    return connecting(three_jobs())


def connecting(fakes: RestFakes) -> Connect:
    app = create_app(fakes.context(), sign_in=sign_in, content_length_max=1 << 20, hosts={"test"})

    @asynccontextmanager
    async def connect(who: str) -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        headers = {"authorization": f"Bearer {who}", "content-type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            yield client

    return connect


def _described() -> DescribedApp:
    app: object = create_app(RestFakes().context(), sign_in=None, content_length_max=1 << 20, hosts={"test"})
    while not isinstance(app, DescribedApp):
        app = app._app  # type: ignore[attr-defined]  # the middleware around it
    return app


def test_the_table_has_a_row_for_each_route_and_no_other() -> None:
    app = _described()
    described = {(method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods}
    pages = {row for row in TABLE if row[1].startswith("/ui")}
    assert described == set(TABLE) - pages
    served = {(method, route.path) for route in app.routes if isinstance(route, APIRoute) for method in route.methods}
    unversioned = {(method, path.removeprefix("/v1")) for method, path in served}
    assert unversioned - {("GET", "/openapi.json")} == set(TABLE)


SENSITIVE = {
    ("GET", "/blobs/{key}"): Access(Role.OPERATOR, is_of_all=True),
    ("PUT", "/blobs/{sha256}"): Access(Role.SUBMITTER),
    ("POST", "/blobs/missing"): Access(Role.SUBMITTER),
    ("POST", "/jars/upload"): Access(Role.SUBMITTER, action="upload-jar"),
    ("GET", "/jars/{jar_id}/plan"): Access(Role.SUBMITTER, action="plan-jar"),
    ("POST", "/jars/{jar_id}/plan"): Access(Role.SUBMITTER, action="plan-jar"),
    ("POST", "/jars/{jar_id}/run"): Access(Role.SUBMITTER, action="run-jar"),
    ("POST", "/jars/{jar_id}/run-application"): Access(Role.SUBMITTER, action="run-jar"),
    ("POST", "/applications/{job_id}/cancel"): Access(Role.SUBMITTER, is_own=True, action="cancel"),
    ("GET", "/jobs/{job_id}/jobmanager/environment"): Access(Role.OPERATOR, is_of_all=True),
    **{
        (method, f"/jobs/{{job_id}}/{what}"): Access(Role.SUBMITTER, is_own=True)
        for method, what in (
            ("GET", "yarn-stop"),
            ("PATCH", "rescaling"),
            ("POST", "coordinators/{operator_id}"),
        )
    },
    ("POST", "/jobs/{job_id}/checkpoints"): Access(Role.SUBMITTER, is_own=True, action="checkpoint"),
    ("POST", "/jobs/{job_id}/savepoints"): Access(Role.SUBMITTER, is_own=True, action="savepoint"),
    ("POST", "/jobs/{job_id}/stop"): Access(Role.SUBMITTER, is_own=True, action="stop"),
    ("PUT", "/jobs/{job_id}/resource-requirements"): Access(Role.SUBMITTER, is_own=True, action="rescale"),
    ("POST", "/savepoint-disposal"): Access(Role.SUBMITTER, action="dispose-savepoint"),
    ("DELETE", "/datasets/{dataset_id}"): Access(Role.SUBMITTER),
    ("DELETE", "/jars/{jar_id}"): Access(Role.SUBMITTER, action="delete-jar"),
    ("POST", "/jobs"): Access(Role.SUBMITTER, action="submit"),
    ("PATCH", "/jobs/{job_id}"): Access(Role.SUBMITTER, is_own=True, action="cancel"),
    ("GET", "/jobs/{job_id}/yarn-cancel"): Access(Role.SUBMITTER, is_own=True, action="cancel"),
    ("PATCH", "/jobs/{job_id}/clientHeartbeat"): Access(Role.SUBMITTER, is_own=True),
    ("POST", "/jobs/{job_id}/move"): Access(Role.OPERATOR, action="move"),
    ("POST", "/taskmanagers/{task_manager_id}/drain"): Access(Role.OPERATOR, is_of_all=True, action="drain"),
    ("POST", "/taskmanagers/{task_manager_id}/undrain"): Access(Role.OPERATOR, is_of_all=True, action="undrain"),
    ("POST", "/taskmanagers/{task_manager_id}/spark-ui"): Access(Role.VIEWER, is_of_all=True, action="open-spark-ui"),
    ("POST", "/jobmasters/{job_master_id}/drain"): Access(Role.OPERATOR, is_of_all=True, action="drain"),
    ("POST", "/jobmasters/{job_master_id}/undrain"): Access(Role.OPERATOR, is_of_all=True, action="undrain"),
    **{
        ("GET", f"{process}/{view}"): Access(Role.OPERATOR, is_of_all=True)
        for process in ("/jobmanager", "/taskmanagers/{task_manager_id}", "/jobmasters/{job_master_id}")
        for view in ("logs", "logs/{file_name}", "log", "stdout", "thread-dump")
    },
    ("GET", "/jobmanager/environment"): Access(Role.OPERATOR, is_of_all=True),
    ("GET", "/jobmasters/{job_master_id}/environment"): Access(Role.OPERATOR, is_of_all=True),
    ("GET", "/taskmanagers/{task_manager_id}/environment"): Access(Role.OPERATOR, is_of_all=True),
    ("POST", "/log-level"): Access(Role.ADMIN, is_of_all=True, action="set-log-level"),
    ("DELETE", "/cluster"): Access(Role.ADMIN, is_of_all=True, action="stop-cluster"),
    ("GET", "/metrics"): Access(Role.VIEWER, is_of_all=True),
    ("GET", "/metrics/targets"): Access(Role.VIEWER, is_of_all=True),
    ("GET", "/audit"): Access(Role.ADMIN, is_of_all=True),
    ("GET", "/jobmanager/metrics"): Access(Role.VIEWER, is_of_all=True),
    ("GET", "/jobmanager/store"): Access(Role.VIEWER, is_of_all=True),
    ("GET", "/taskmanagers/metrics"): Access(Role.VIEWER, is_of_all=True),
    ("GET", "/taskmanagers/{task_manager_id}/metrics"): Access(Role.VIEWER, is_of_all=True),
    ("GET", "/taskmanagers/{task_manager_id}/usage"): Access(Role.VIEWER, is_of_all=True),
    ("GET", "/tokens"): Access(Role.ADMIN, is_of_all=True),
    ("POST", "/tokens"): Access(Role.ADMIN, is_of_all=True, action="create-token"),
    ("POST", "/tokens/{name}/rotate"): Access(Role.ADMIN, is_of_all=True, action="rotate-token"),
    ("DELETE", "/tokens/{name}"): Access(Role.ADMIN, is_of_all=True, action="revoke-token"),
    ("POST", "/tokens/{name}/forget"): Access(Role.ADMIN, is_of_all=True, action="forget-token"),
}
"""The routes that take more than the viewer. Written a second time, so that a change of a role is made twice."""


def test_what_is_more_than_to_look_is_as_it_was_decided() -> None:
    assert {route: access for route, access in TABLE.items() if access != Access(Role.VIEWER)} == SENSITIVE


def test_a_route_without_a_row_keeps_the_application_from_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(TABLE, ("GET", "/jobs/{job_id}/plan"))
    with pytest.raises(KeyError):
        create_app(RestFakes().context(), sign_in=None, content_length_max=1, hosts=())


VALUES = {
    "job_id": MINE,
    "vertex_id": f"{1:032x}",
    "index": "0",
    "attempt": "0",
    "stream": "stdout",
    "sha256": "1" * 64,
    "key": f"{'1' * 64}-u1",
    "name": "nobody",
    "digest": "0" * 16,
    "page": "jobs/x",
    "task_manager_id": "tm-1",
    "job_master_id": JOB_MASTER,
    "jar_id": f"{'a' * 32}_etl.py",
    "trigger_id": "e" * 32,
    "dataset_id": "e" * 32,
    "checkpoint_id": "1",
    "rescale_id": "e" * 32,
    "operator_id": "e" * 32,
    "file_name": "x.log",
}


def filled(path: str) -> str:
    return path.replace(":path", "").format(**VALUES)


@pytest.mark.asyncio
@pytest.mark.parametrize(("method", "path"), sorted(TABLE), ids=str)
@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_each_role_may_do_what_its_row_says(as_any: Connect, method: str, path: str, prefix: str) -> None:
    if prefix and (path == "/" or path.startswith("/ui")):
        return
    access = TABLE[method, path]
    for who, principal in PEOPLE.items():
        async with as_any(who) as client:
            # A body of the wrong kind is refused behind the door, so that nothing is changed by who may.
            body = b"[]" if method in {"POST", "PATCH"} else None
            headers = {"x-requested-with": "test"}
            answer = await client.request(method, prefix + filled(path), content=body, headers=headers)
        may = principal.role >= access.role and (principal.is_of_all or not access.is_of_all)
        if access.is_own and principal.role is Role.SUBMITTER:
            may = principal.name == "sam"
        assert (answer.status_code == 403) is not may, (who, answer.status_code, answer.text)
        if not may:
            (sentence,) = answer.json()["errors"]
            assert "this takes the role" in sentence


@pytest.mark.asyncio
async def test_who_shows_nothing_is_refused(as_: Connect) -> None:
    async with as_("nobody") as client:
        for path in ("/overview", "/v1/jobs", "/openapi.json", "/ui", "/ui/jobmasters"):
            assert (await client.get(path)).status_code == 401


@pytest.mark.asyncio
@pytest.mark.parametrize("who", ["viewer", "submitter", "operator"])
async def test_lists_show_what_one_may_see(as_: Connect, fakes: RestFakes, who: str) -> None:
    async with as_(who) as client:
        assert {one["id"] for one in (await client.get("/jobs")).json()["jobs"]} == {MINE, THEIRS}
        overview = (await client.get("/jobs/overview")).json()["jobs"]
        assert {(one["jid"], one["submitter"], one["namespace"]) for one in overview} == {
            (MINE, "sam", "team-a"),
            (THEIRS, "tom", "team-a"),
        }
        assert (await client.get("/overview")).json()["jobs-running"] == 2
        assert len((await client.get(f"/jobmasters/{JOB_MASTER}")).json()["jobs"]) == 2
        body = {"known": {MINE: 1000, FOREIGN: 1000, UNKNOWN: 1000}, "wait": 30}
        told = (await client.post("/jobs/wait", json=body)).json()
        assert (told["jobs"], sorted(told["unknown"])) == ([], [FOREIGN, UNKNOWN]), "at once"
    fakes.dispatcher.summaries[MINE] = replace(fakes.dispatcher.summaries[MINE], namespace="team-b")
    async with as_(who) as client:
        slots = (await client.get("/taskmanagers/tm-1")).json()["allocatedSlots"]
        assert [one["jobId"] for one in slots] == [""], "whose slot it is, is not told"


@pytest.mark.asyncio
async def test_what_one_may_not_see_is_told_like_what_is_not_there(as_: Connect) -> None:
    async with as_("operator") as client:
        for path in [
            path
            for method, path in TABLE
            if method == "GET" and "{job_id}" in path and not TABLE[method, path].is_of_all
        ]:
            headers = {"x-requested-with": "test"}
            foreign = await client.get(path.format(**{**VALUES, "job_id": FOREIGN}), headers=headers)
            unknown = await client.get(path.format(**{**VALUES, "job_id": UNKNOWN}), headers=headers)
            assert (foreign.status_code, foreign.text) == (404, unknown.text.replace(UNKNOWN, FOREIGN)), path
            assert unknown.status_code == 404
        assert (await client.patch(f"/jobs/{FOREIGN}")).status_code == 404


@pytest.mark.asyncio
async def test_a_submitter_cancels_its_own_jobs(as_: Connect, fakes: RestFakes) -> None:
    async with as_("submitter") as client:
        assert (await client.patch(f"/jobs/{MINE}")).status_code == 202
        refused = await client.patch(f"/jobs/{THEIRS}")
    assert (refused.status_code, "takes the role operator" in refused.text) == (403, True)
    async with as_("operator") as client:
        assert (await client.patch(f"/jobs/{THEIRS}")).status_code == 202
    assert fakes.dispatcher.cancelled == [MINE, THEIRS]


@pytest.mark.asyncio
async def test_a_job_carries_its_submitter_and_namespace(as_: Connect, fakes: RestFakes) -> None:
    graph = lone().model_dump(mode="json")

    async def submit(who: str, namespace: str | None) -> int:
        options = {} if namespace is None else {"options": {"namespace": namespace}}
        async with as_(who) as client:
            answer = await client.post("/jobs", content=json.dumps({"job_id": UNKNOWN, "job_graph": graph, **options}))
            return answer.status_code

    assert await submit("viewer", None) == 403
    assert await submit("submitter", "team-b") == 403
    assert await submit("submitter", "Not One") == 400
    assert not fakes.dispatcher.submitted
    for who, namespace in (("submitter", None), ("submitter", "team-a"), ("admin", None), ("admin", "team-b")):
        assert await submit(who, namespace) == 202
    carried = [(one.submitter, one.namespace) for one in fakes.dispatcher.submitted]
    assert carried == [("sam", "team-a"), ("sam", "team-a"), ("", "default"), ("", "team-b")]


@pytest.mark.asyncio
async def test_polls_of_others_are_not_ended_by_their_name(as_: Connect, fakes: RestFakes) -> None:
    body = {"known": {MINE: 0}, "name": "n"}
    for who in ("submitter", "operator", "admin"):
        async with as_(who) as client:
            assert (await client.post("/jobs/wait", json=body)).status_code == 200
    assert [name for _, name in fakes.dispatcher.polled] == ["sam/n", "olga/n", "n"]


@pytest.mark.asyncio
async def test_one_may_ask_who_one_is(as_: Connect) -> None:
    async with as_("submitter") as client:
        told = (await client.get("/principal")).json()
    assert told == {"name": "sam", "role": "submitter", "namespace": "team-a", "via": "token"}


@pytest.mark.asyncio
async def test_refusals_say_which_credential_and_role_would_do(as_: Connect) -> None:
    async with as_("nobody") as client:
        for method, path, role in (
            ("GET", "/v1/jobs", "viewer"),
            ("POST", "/jobs", "submitter"),
            ("GET", "/tokens", "admin"),
        ):
            (sentence,) = (await client.request(method, path, content=b"{}")).json()["errors"]
            assert "`flinklike tokens`" in sentence
            assert f"This request takes the role {role}, or a higher one." in sentence
        (sentence,) = (await client.get("/nonsense")).json()["errors"]
        assert "takes the role" not in sentence
    async with as_("viewer") as client:
        (sentence,) = (await client.get("/tokens")).json()["errors"]
        assert sentence == "this takes the role admin: vera, signed in by token, has the role viewer"


def test_every_route_is_found_by_its_path() -> None:
    for (method, path), access in TABLE.items():
        assert role_for(method, filled(path)) == access.role.text, path


def test_a_request_without_sign_in_is_nobodys() -> None:
    """A route or mount beside the middleware is open to no one, also where nobody is asked who he is."""
    with pytest.raises(AssertionError):
        principal_of(Request({"type": "http", "method": "GET", "path": "/jobs", "headers": []}))
