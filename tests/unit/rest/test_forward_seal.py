"""R48: the leader believes what a stand-by says of a client by its seal, which no client can make."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common.states import JobStatus
from runtime.rest.access.audit import REFUSALS_OF_ONE, AuditLog
from runtime.rest.forwarding.forward_seal import FORWARDED, FORWARDED_NAME, SEAL, ForwardSeal
from runtime.rest.server import RestServer, RestSettings
from runtime.security.cluster_key import ClusterKey
from tests.kit.rest.fakes import JOB, RestFakes, shown

pytestmark = pytest.mark.asyncio

TOKEN = "the-token"
OURS, OTHER = ClusterKey(b"k" * 32), ClusterKey(b"o" * 32)
SIGNED_IN = {"authorization": f"Bearer {TOKEN}"}


@dataclass
class Pair:
    leader: httpx.AsyncClient
    standby: httpx.AsyncClient
    other: httpx.AsyncClient
    """A stand-by whose host has another cluster's key."""
    audit: Path

    def lines(self) -> list[dict[str, Any]]:
        """What the leader has told of it."""
        if not self.audit.exists():
            return []
        return [json.loads(line) for line in self.audit.read_text(encoding="ascii").splitlines()]


@pytest_asyncio.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """A leader, a stand-by of its cluster, and one that has the key of another one."""
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path, SystemClock(), files_max=2)
    servers, clients = [], []
    async with Scope("test") as scope:
        for number, key in enumerate((OURS, OURS, OTHER)):
            fakes = RestFakes()
            fakes.is_leading = number == 0
            fakes.dispatcher.put(JOB, JobStatus.RUNNING)
            context = replace(fakes.context(), forward_seal=ForwardSeal(key))
            if number == 0:
                context = replace(context, audit=audit)
            server = RestServer(context, RestSettings("127.0.0.1", 0, 1 << 20), sign_in=shown(TOKEN))
            server.bind()
            await server.start(scope)
            servers.append(server)
            if number:
                fakes.other_leader.set(f"127.0.0.1:{servers[0].port}")
            clients.append(httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", headers=SIGNED_IN))
        yield Pair(clients[0], clients[1], clients[2], path)
        for client in clients:
            await client.aclose()
        for server in servers:
            server.stop()
    audit.close()


async def test_what_a_stand_by_says_is_told(pair: Pair) -> None:
    for body in ({"job": 1}, {"job": 2}):
        assert (await pair.standby.patch(f"/jobs/{JOB}?mode=cancel", json=body)).status_code == 202
    cancels = [one for one in pair.lines() if one["action"] == "cancel"]
    assert [one["forwarded_for"] for one in cancels] == ["127.0.0.1"] * 2


async def test_sign_ins_and_refusals_are_of_whom_the_stand_by_has_seen(pair: Pair) -> None:
    """And so is the number of refusals that are told: who floods one stand-by hides nobody else behind it."""

    async def status(address: str, token: str) -> int:
        scope = {"method": "GET", "raw_path": b"/overview", "query_string": b""}
        headers = {"authorization": f"Bearer {token}", FORWARDED.decode(): address}
        seal = ForwardSeal(OURS).of(scope, [(name.encode(), value.encode()) for name, value in headers.items()])
        answer = await pair.leader.get("/overview", headers={**headers, SEAL.decode(): seal.decode()})
        return answer.status_code

    for _ in range(REFUSALS_OF_ONE + 1):
        assert await status("10.9.9.8", "wrong") == 401
    for address in ("10.9.9.9", "10.9.9.10"):
        assert await status(address, "wrong") == 401
        assert await status(address, TOKEN) == 200
    told = [(one["outcome"], one["address"], one.get("forwarded_for")) for one in pair.lines()]
    assert told == [("refused", "127.0.0.1", "10.9.9.8")] * REFUSALS_OF_ONE + [
        (outcome, "127.0.0.1", address) for address in ("10.9.9.9", "10.9.9.10") for outcome in ("refused", "done")
    ]


async def test_what_a_client_says_of_another_address_is_not(pair: Pair) -> None:
    claim = {FORWARDED.decode(): "10.9.9.9", FORWARDED_NAME.decode(): "alice"}
    assert (await pair.leader.patch(f"/jobs/{JOB}", headers=claim)).status_code == 202
    (cancel,) = [one for one in pair.lines() if one["action"] == "cancel"]
    assert "forwarded_for" not in cancel


async def test_a_stand_by_seals_nothing_that_a_client_says(pair: Pair) -> None:
    said = {FORWARDED_NAME.decode(): "alice", SEAL.decode(): "0" * 64}
    assert (await pair.standby.get("/overview", headers=said)).status_code == 403, "a seal that is none"
    said.popitem()
    answer = await pair.standby.get("/overview", headers=said)
    assert answer.status_code == 200, "its name was left out, or the leader would have refused a seal without it"


async def test_a_seal_is_for_one_request(pair: Pair) -> None:
    scope = {"method": "GET", "raw_path": b"/overview", "query_string": b""}
    sent = [(b"authorization", SIGNED_IN["authorization"].encode()), (FORWARDED, b"10.9.9.9")]
    seal = ForwardSeal(OURS).of(scope, sent).decode()
    headers = {FORWARDED.decode(): "10.9.9.9", SEAL.decode(): seal}

    async def status(method: str, path: str, **more: str) -> int:
        return (await pair.leader.request(method, path, headers={**headers, **more})).status_code

    assert await status("GET", "/overview") == 200
    assert await status("GET", "/overview?a=1") == 403
    assert await status("GET", "/v1/overview") == 403
    assert await status("PATCH", f"/jobs/{JOB}") == 403
    assert await status("DELETE", "/overview") == 403
    assert await status("GET", "/overview", **{FORWARDED.decode(): "10.9.9.8"}) == 403
    assert await status("GET", "/overview", **{FORWARDED_NAME.decode(): "alice"}) == 403
    assert await status("GET", "/overview", authorization="Bearer of another") == 403
    assert [one["reason"] for one in pair.lines() if one["outcome"] == "refused"] == ["forged seal"] * 7


@pytest.mark.parametrize(
    "target",
    [
        '/jobs?x="a"',
        "/jobs?x={}|^`<>",
        "/jobs?x=%zz&y=%41",
        "/./jobs",
        "/x/../jobs",
        "//jobs",
        "/jobs?",
        "/jobs;x=1",
        "*",
        "/jobs/\xe9",
        "/jobs?x=\xe9",
    ],
)
async def test_each_path_is_answered_as_by_the_leader(pair: Pair, target: str) -> None:
    there, here = [await _said(client, target) for client in (pair.leader, pair.standby)]
    assert here == there
    assert b" 403 " not in there[0]
    assert not any(one["outcome"] == "refused" for one in pair.lines())


async def test_what_is_no_path_is_refused_in_a_sentence(pair: Pair) -> None:
    for client in (pair.leader, pair.standby):
        head, body = await _said(client, "*")
        assert (head.split()[1], json.loads(body)["errors"][0][:20]) == (b"400", "A request names a pa")


async def test_a_stand_bys_answer_says_all_once(pair: Pair) -> None:
    names = [name.lower() for name, _ in (await pair.standby.get("/overview")).headers.raw]
    assert {b"date", b"x-content-type-options"} <= set(names)
    assert sorted(set(names)) == sorted(names)


async def _said(client: httpx.AsyncClient, target: str) -> tuple[bytes, bytes]:
    """The first line and the body of the answer to a target that httpx would write in another way."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
    head = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode("latin-1"))
    answer = await reader.read()
    writer.close()
    start, _, body = answer.partition(b"\r\n\r\n")
    return start.partition(b"\r\n")[0], body


async def test_another_key_is_told_so(pair: Pair) -> None:
    refused = await pair.other.get("/overview")
    assert (refused.status_code, "security.cluster-key-file" in refused.text) == (403, True)
