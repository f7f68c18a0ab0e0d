"""A stand-by's REST over real sockets: what comes there is answered by the leader."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio

from runtime.aio.scope import Scope
from runtime.common.states import JobStatus
from runtime.rest.context import LEADER_UNKNOWN
from runtime.rest.server import RestServer, RestSettings
from tests.kit.rest.fakes import JOB, RestFakes, shown

pytestmark = pytest.mark.asyncio

TOKEN = "the-token"


@dataclass
class Pair:
    leader: RestFakes
    standby: RestFakes
    leader_address: str
    http: httpx.AsyncClient
    """Of the stand-by."""
    servers: list[RestServer]
    """The leader's and the stand-by's."""


@pytest_asyncio.fixture
async def pair() -> AsyncIterator[Pair]:
    leader, standby = RestFakes(), RestFakes()
    standby.is_leading = False
    async with Scope("test") as scope:
        servers = []
        for fakes in (leader, standby):
            settings = RestSettings("127.0.0.1", 0, 1 << 20)
            server = RestServer(fakes.context(), settings, sign_in=shown(TOKEN))
            server.bind()
            await server.start(scope)
            servers.append(server)
        address = f"127.0.0.1:{servers[0].port}"
        standby.other_leader.set(address)
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{servers[1].port}", headers=headers) as http:
            yield Pair(leader, standby, address, http, servers)
        for server in servers:
            server.stop()


@pytest.mark.parametrize("path", [f"/jobs/{JOB}/status", f"/v1/jobs/{JOB}/status"])
async def test_a_question_is_answered_by_the_leader(pair: Pair, path: str) -> None:
    pair.leader.dispatcher.put(JOB, JobStatus.RUNNING)
    answer = await pair.http.get(path)
    assert (answer.status_code, answer.json()["status"]) == (200, "RUNNING")


async def test_a_long_poll_keeps_its_parameters(pair: Pair) -> None:
    pair.leader.dispatcher.put(JOB, JobStatus.RUNNING, modified=1000)
    answer = await pair.http.get(f"/jobs/{JOB}/status", params={"wait": "0.05", "since": "1000"})
    assert answer.status_code == 200
    assert pair.leader.dispatcher.polls == 1


async def test_bodies_travel_both_ways(pair: Pair) -> None:
    content = bytes(range(256)) * 20_000

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 100_000):
            yield content[start : start + 100_000]

    digest = hashlib.sha256(content).hexdigest()
    for body in (content, pieces()):
        answer = await pair.http.put(f"/blobs/{digest}", content=body)
        assert answer.status_code == 201, answer.text
        assert pair.leader.blobs.stored.pop(digest) == content
    pair.leader.blobs.stored[digest] = content
    assert (await pair.http.get(f"/blobs/{digest}-u1")).content == content


async def test_refusals_are_the_leaders(pair: Pair) -> None:
    assert (await pair.http.get(f"/jobs/{JOB}")).status_code == 404
    assert (await pair.http.post("/jobs", json={"nonsense": 1})).status_code == 400
    assert (
        await pair.http.post("/jobs", content=b"x" * (1 << 21), headers={"content-type": "application/json"})
    ).status_code == 413


async def test_the_token_is_asked_for_here(pair: Pair) -> None:
    answer = await pair.http.get("/overview", headers={"authorization": "Bearer wrong"})
    assert answer.status_code == 401


async def test_who_leads_answers_itself(pair: Pair) -> None:
    pair.standby.is_leading = True
    pair.standby.dispatcher.put(JOB, JobStatus.FINISHED)
    assert (await pair.http.get(f"/jobs/{JOB}/status")).json()["status"] == "FINISHED"


async def test_without_a_leader_it_says_so(pair: Pair) -> None:
    pair.standby.other_leader.set("")
    answer = await pair.http.get("/overview")
    assert (answer.status_code, answer.json()) == (503, {"errors": [LEADER_UNKNOWN]})


async def test_two_that_take_each_other_for_the_leader_end_it_at_once(pair: Pair) -> None:
    pair.leader.is_leading = False
    pair.leader.other_leader.set(pair.http.base_url.netloc.decode())
    assert (await pair.http.get("/overview")).status_code == 503


async def test_a_leader_that_is_not_there_is_503(pair: Pair) -> None:
    pair.standby.other_leader.set("127.0.0.1:1")
    answer = await pair.http.post("/jobs", json={})
    assert answer.status_code == 503, answer.text
    assert answer.json() == {"errors": [LEADER_UNKNOWN]}


async def test_who_waits_for_a_leader_that_leads_no_more_is_told_at_once(pair: Pair) -> None:
    """As when it is frozen: the answer would never come."""
    pair.leader.dispatcher.put(JOB, JobStatus.RUNNING, modified=1000)
    polling = asyncio.ensure_future(pair.http.get(f"/jobs/{JOB}/status", params={"wait": "60", "since": "1000"}))
    async with asyncio.timeout(100):
        while not pair.leader.dispatcher.polls:
            await asyncio.sleep(0.01)
        pair.standby.other_leader.set("")
        assert (await polling).status_code == 503


@pytest.mark.parametrize("is_asked_directly", [True, False])
async def test_who_waits_while_the_process_stops_is_told_to_ask_again(pair: Pair, *, is_asked_directly: bool) -> None:
    pair.leader.dispatcher.put(JOB, JobStatus.RUNNING, modified=1000)
    host = f"http://{pair.leader_address}" if is_asked_directly else ""
    polling = asyncio.ensure_future(pair.http.get(f"{host}/jobs/{JOB}/status", params={"wait": "60", "since": "1000"}))
    async with asyncio.timeout(100):
        while not pair.leader.dispatcher.polls:
            await asyncio.sleep(0.01)
        pair.servers[0 if is_asked_directly else 1].stop()
        assert (await polling).status_code == 503
