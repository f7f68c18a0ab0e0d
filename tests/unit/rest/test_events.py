"""GET /events and /audit: who sees what, in pages, with an ETag, and as a change of /changes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from runtime.aio.clock import LoopClock
from runtime.aio.entropy import SeededEntropy
from runtime.common.errors import UnavailableError
from runtime.common.ids import JobId
from runtime.common.namespaces import ALL_NAMESPACES
from runtime.dispatcher.cluster_events import ClusterEventLog
from runtime.gateways.cluster_events import EventKind
from runtime.highavailability.cluster_events import ClusterEventStore
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.conditions import LeaderTerm
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.rest.access.audit import AuditLog
from runtime.rest.app import create_app
from runtime.rest.bodies.schema import events as schema
from runtime.security.principals import ADMIN, Principal, Role
from tests.kit.rest.fakes import RestFakes
from tests.kit.rest.schema import check_answer

pytestmark = pytest.mark.asyncio

JOB = JobId("a" * 32)
VERA = Principal("vera", Role.VIEWER, "team-a")
OPERA = Principal("opera", Role.OPERATOR, ALL_NAMESPACES)


def events() -> ClusterEventLog:
    """Of a term that stores nothing."""
    store, entropy = MemoryKeyValueStore(LoopClock()), SeededEntropy(1)
    history = ClusterEventStore(store, Keys.of_cluster("test"), LeaderTerm("k", 1), entropy, timeout=1)
    return ClusterEventLog(history, 1, LoopClock(), entropy)


@pytest.fixture
def fakes() -> RestFakes:
    made = RestFakes()
    made.events = events()
    return made


@asynccontextmanager
async def http_of(fakes: RestFakes, principal: Principal = ADMIN) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(fakes.context(), sign_in=lambda _: principal, content_length_max=1, hosts={"test"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        yield client


def tell(fakes: RestFakes, *numbers: int) -> None:
    for number in numbers:
        fakes.events.tell(EventKind.TASKMANAGER_REGISTERED, f"event {number}", subject=str(number))


async def test_pages(fakes: RestFakes) -> None:
    tell(fakes, *range(5))
    async with http_of(fakes) as http:
        first = (await http.get("/v1/events", params={"limit": 2})).json()
        check_answer(schema.Events, first)
        assert [one["message"] for one in first["events"]] == ["event 3", "event 4"]
        assert (await http.get("/events", params={"after": first["next"]})).json() == {
            "events": [],
            "next": first["next"],
            "gap": False,
        }
        tell(fakes, 5, 6)
        later = (await http.get("/events", params={"after": first["next"], "limit": 1})).json()
        assert [one["message"] for one in later["events"]] == ["event 5"]
        gone = (await http.get("/events", params={"after": "of another cluster"})).json()
        assert (len(gone["events"]), gone["gap"]) == (7, True)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", f"after={'x' * 65}"])
async def test_a_wrong_query_is_refused_by_name(fakes: RestFakes, query: str) -> None:
    async with http_of(fakes) as http:
        answer = await http.get(f"/events?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.json()["errors"][0]


async def test_what_has_not_changed_is_not_sent_again(fakes: RestFakes) -> None:
    tell(fakes, 1)
    async with http_of(fakes) as http:
        etag = (await http.get("/events")).headers["etag"]
        known = {"if-none-match": etag}
        again = await http.get("/events", headers=known)
        assert (again.status_code, again.content) == (304, b"")
        assert (await http.get("/events?limit=7", headers=known)).status_code == 200, "another question"
        tell(fakes, 2)
        assert (await http.get("/events", headers=known)).status_code == 200


async def test_an_event_ends_the_long_poll_for_changes(fakes: RestFakes) -> None:
    async with http_of(fakes) as http:
        known = (await http.get("/changes")).json()["revision"]
        tell(fakes, 1)
        assert (await http.get("/changes", params={"since": known, "wait": 5})).json()["revision"] != known


async def test_events_of_a_job_are_for_who_sees_it(fakes: RestFakes) -> None:
    tell(fakes, 1)
    for namespace in ("team-a", "team-b"):
        fakes.events.tell_of_job(EventKind.JOB_TAKEN_OVER, namespace, JOB, namespace)
    async with http_of(fakes, VERA) as http:
        assert [one["message"] for one in (await http.get("/events")).json()["events"]] == ["event 1", "team-a"]
    async with http_of(fakes, OPERA) as http:
        assert len((await http.get("/events")).json()["events"]) == 3


async def test_the_audit_log_is_for_admins_of_all_namespaces(fakes: RestFakes, tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", LoopClock(), files_max=2)
    fakes.audit = log
    for number in range(5):
        log.tell("cancel", "done", principal="ann", address="h", object_=str(number))
    answers: list[httpx.Response] = []
    for principal, status in ((VERA, 403), (OPERA, 403), (Principal("al", Role.ADMIN, "team-a"), 403), (ADMIN, 200)):
        async with http_of(fakes, principal) as http:
            answer = await http.get("/audit", params={"limit": 20})
        assert answer.status_code == status, principal
        answers.append(answer)
    lines = answers[-1].json()["lines"]
    log.close()
    assert [one["object"] for one in lines if one["action"] == "cancel"] == [str(number) for number in range(5)]
    assert [one["principal"] for one in lines if one["action"] == "GET /audit"] == ["vera", "opera", "al"], "refusals"


async def test_lines_of_the_file_before_and_broken_ones(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, LoopClock(), files_max=2)
    assert await log.latest(10) == []
    path.with_name("audit.jsonl.1").write_text(json.dumps({"a": 1}) + "\n" + json.dumps({"a": 2}) + "\n")
    path.write_text('half a li\n[1]\n{"a": 3}\n{"a":')
    assert [one["a"] for one in await log.latest(10)] == [1, 2, 3]
    assert [one["a"] for one in await log.latest(2)] == [2, 3]
    path.write_bytes(b'{"a": 3}\n' * 500_000)
    assert len(await log.latest(1000)) == 1000, "the end of a large file is read"
    path.unlink()
    path.symlink_to(tmp_path / "audit.jsonl.1")
    with pytest.raises(UnavailableError, match="cannot be read: it is a link"):
        await log.latest(1)


@pytest.mark.parametrize("what", ["a link", "no file"])
async def test_a_log_that_cannot_be_read_is_not_an_empty_one(fakes: RestFakes, tmp_path: Path, what: str) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, LoopClock(), files_max=2)
    fakes.audit = log
    if what == "a link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.mkdir()
    async with http_of(fakes, ADMIN) as http:
        answer = await http.get("/audit")
    log.close()
    assert answer.status_code == 503
    assert f"the audit log {path} cannot be read: it is {what}. Mend that" in answer.json()["errors"][0]


async def test_the_overview_has_the_stand_bys(fakes: RestFakes) -> None:
    async with http_of(fakes) as http:
        body = (await http.get("/overview")).json()
    assert (body["stand-bys"], body["high-availability"]) == (["jm-2:8081"], "none")
