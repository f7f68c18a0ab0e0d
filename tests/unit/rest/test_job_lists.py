"""GET /jobs/overview in pages and with an ETag, /changes, /overview/history and /jobs/:id/attempts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest
import pytest_asyncio

from runtime.common.ids import JobId
from runtime.common.states import JobStatus
from runtime.gateways.overview import JobActivity
from runtime.rest.app import create_app
from runtime.rest.context import RestContext
from runtime.rest.routes import changes
from runtime.rest.routes.changes import ActivitySamples
from runtime.security.principals import Principal, Role
from tests.kit.rest.fakes import JOB, RestFakes

pytestmark = pytest.mark.asyncio


@pytest.fixture
def fakes() -> RestFakes:
    return RestFakes()


@pytest_asyncio.fixture
async def http(fakes: RestFakes) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        yield client


def fill(fakes: RestFakes) -> None:
    for number in range(7):
        fakes.dispatcher.put(JobId(f"{number:032x}"), JobStatus.FAILED if number % 2 else JobStatus.RUNNING)


async def test_pages_of_a_state(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fill(fakes)
    first = (await http.get("/jobs/overview", params={"state": "FAILED", "limit": 2})).json()
    assert (len(first["jobs"]), first["total"], {one["state"] for one in first["jobs"]}) == (2, 3, {"FAILED"})
    last = (await http.get("/jobs/overview", params={"state": "FAILED", "limit": 2, "after": first["next"]})).json()
    assert (len(last["jobs"]), last["next"]) == (1, "")
    everything = (await http.get("/jobs/overview")).json()
    assert (len(everything["jobs"]), everything.keys()) == (7, {"jobs"})


@pytest.mark.parametrize("query", ["state=x", "limit=-1", "limit=10001", "limit=a", "sort=x", "after=x", "limits=5"])
async def test_a_wrong_query_is_refused_by_name(http: httpx.AsyncClient, query: str) -> None:
    answer = await http.get(f"/jobs/overview?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["errors"][0]


async def test_what_has_not_changed_is_not_sent_again(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fill(fakes)
    etag = (await http.get("/jobs/overview?limit=3")).headers["etag"]
    known = {"if-none-match": etag}
    again = await http.get("/jobs/overview?limit=3", headers=known)
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert (await http.get("/jobs/overview?limit=4", headers=known)).status_code == 200, "another question"
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    assert (await http.get("/jobs/overview?limit=3", headers=known)).status_code == 200
    etag = (await http.get("/jobs/overview?limit=3")).headers["etag"]
    fakes.dispatcher.activity = replace(fakes.dispatcher.activity, term=8)
    assert (await http.get("/jobs/overview?limit=3", headers={"if-none-match": etag})).status_code == 200


async def test_the_etag_of_one_is_not_that_of_another_who_sees_less(fakes: RestFakes) -> None:
    fill(fakes)
    people = {name: Principal("vera", Role.VIEWER, name) for name in ("team-a", "")}
    etags = []
    for principal in people.values():
        app = create_app(fakes.context(), sign_in=lambda _, one=principal: one, content_length_max=1, hosts={"test"})  # type: ignore[misc]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
            etags.append((await client.get("/jobs/overview")).headers["etag"])
    assert etags[0] != etags[1]


async def test_a_change_ends_the_poll_and_time_ends_it_too(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    known = (await http.get("/changes")).json()["revision"]
    assert (await http.get("/changes", params={"since": known})).json()["revision"] == known
    waiting = asyncio.ensure_future(http.get("/changes", params={"since": known, "wait": 60}))
    await asyncio.sleep(0)
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    changed = (await waiting).json()["revision"]
    assert changed != known
    await http.post("/taskmanagers/tm-1/drain")
    assert (await http.get("/changes", params={"since": changed})).json()["revision"] != changed


async def test_all_who_wait_share_one_look(fakes: RestFakes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each poll computed the revision twice a second: five hundred of them took a seventh of a core."""
    looks = 0
    real = changes.revision

    def counted(context: RestContext) -> str:
        nonlocal looks
        looks += 1
        return real(context)

    monkeypatch.setattr(changes, "revision", counted)
    monkeypatch.setattr(changes, "LOOK_SECONDS", 0.02)
    app = create_app(fakes.context(), sign_in=None, content_length_max=1, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as http:
        known = (await http.get("/changes")).json()["revision"]
        looks = 0
        asked = {"since": known, "wait": 60}
        waiting = [asyncio.ensure_future(http.get("/changes", params=asked)) for _ in range(50)]
        while looks < 5:
            await asyncio.sleep(0.01)
        before, looks = looks, 0
        fakes.dispatcher.put(JOB, JobStatus.RUNNING)
        told = {(await one).json()["revision"] for one in waiting}
        assert before < 50
        assert looks == 1
        assert len(told) == 1
        assert told != {known}
        looks = 0
        await asyncio.sleep(0.1)
        assert looks == 0, "nobody waits"


async def test_a_poll_for_a_revision_that_is_younger_than_the_last_look_goes_on(fakes: RestFakes) -> None:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as http:
        old = (await http.get("/changes")).json()["revision"]
        first = asyncio.ensure_future(http.get("/changes", params={"since": old, "wait": 60}))
        await asyncio.sleep(0.01)
        fakes.dispatcher.put(JOB, JobStatus.RUNNING)
        new = (await http.get("/changes")).json()["revision"]
        assert (await http.get("/changes", params={"since": new, "wait": 0.1})).json()["revision"] == new
        assert (await first).json()["revision"] == new


async def test_a_poll_ends_when_another_process_leads(fakes: RestFakes) -> None:
    app = create_app(fakes.context(), sign_in=None, content_length_max=1, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as http:
        known = (await http.get("/changes")).json()["revision"]
        waiting = asyncio.ensure_future(http.get("/changes", params={"since": known, "wait": 60}))
        await asyncio.sleep(0.01)
        fakes.is_leading = False
        assert (await waiting).status_code == 503


async def test_samples_of_activity_count_within_a_term(fakes: RestFakes) -> None:
    samples = ActivitySamples(fakes.context())
    for ended in (0, 10, 15):
        fakes.dispatcher.activity = JobActivity(7, ended, ended, 4 * ended)
        samples.sample()
    body = samples.body(has_jobs=True)
    assert (body["jobs-per-second"], body["tasks-per-second"]) == ([2.0, 1.0], [8.0, 4.0])
    assert len(body["slots-used"]) == len(body["jobs-unfinished"]) == 2
    assert samples.body(has_jobs=False)["jobs-per-second"] == []
    fakes.dispatcher.activity = JobActivity(8, 0, 0, 0)
    samples.sample()
    assert samples.body(has_jobs=True)["slots-used"] == [], "another term counts anew"
    fakes.is_leading = False
    samples.sample()
    fakes.is_leading = True
    samples.sample()
    assert samples.body(has_jobs=True)["slots-used"] == []


async def test_all_attempts_of_a_job_in_one_answer(http: httpx.AsyncClient, fakes: RestFakes) -> None:
    fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    body = (await http.get(f"/jobs/{JOB}/attempts")).json()
    assert [(one["name"], len(one["attempts"])) for one in body["vertices"]] == [("read", 1), ("write <b>", 1)]
    attempt = body["vertices"][0]["attempts"][0]
    assert attempt["timestamps"] == {"CREATED": 900, "DEPLOYING": 950, "RUNNING": 1000}
    assert (attempt["status"], attempt["taskmanager-id"], attempt["memory-bytes-peak"], attempt["slot"]) == (
        "RUNNING",
        "tm-1",
        0,
        -1,
    )
    assert (await http.get(f"/jobs/{'0' * 32}/attempts")).status_code == 404
