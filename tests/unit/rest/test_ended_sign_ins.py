"""R48: the sign-in by the head of a request is checked again when its body is there, and after a wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from starlette.types import Scope as AsgiScope

from runtime.aio.clock import LoopClock, SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.aio.scope import Scope
from runtime.common.states import JobStatus
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.principals import PrincipalStore
from runtime.rest.access.audit import AuditLog
from runtime.rest.access.key_sets import FileKeys
from runtime.rest.access.principals import Principals
from runtime.rest.access.sign_in import TokenSignIn
from runtime.rest.server import RestServer, RestSettings
from runtime.security.json_web_tokens import JwtSettings, JwtVerifier
from runtime.security.principals import Principal, Role
from runtime.security.tokens import ClusterToken, new_cluster_token
from tests.kit.control_plane.job_graphs import lone
from tests.kit.control_plane.plane import eventually
from tests.kit.rest.fakes import JOB, RestFakes
from tests.kit.services.identity_provider import AUDIENCE, ISSUER, claims, public_pem, rsa_key, signed

pytestmark = pytest.mark.asyncio

OTHER = "e" * 32
DIGEST = "1" * 64
JWT_SETTINGS = JwtSettings(ISSUER, (AUDIENCE,), 30, "sub", "role", "namespace", {})
BODIES = {
    ("POST", "/tokens"): {"name": "back", "role": "admin"},
    ("POST", "/jobs"): {"job_id": OTHER, "job_graph": lone().model_dump(mode="json")},
    ("PUT", f"/blobs/{DIGEST}"): {"of": "a file"},
    ("PATCH", f"/jobs/{JOB}/clientHeartbeat"): {"expiredTimestamp": 1},
}
POLLS: tuple[tuple[str, str, dict[str, Any] | None], ...] = (
    ("GET", f"/jobs/{JOB}?wait=60&since=1000", None),
    ("GET", f"/jobs/{JOB}/status?wait=60&since=1000", None),
    ("GET", f"/jobs/{JOB}/execution-result?wait=60", None),
    ("POST", f"/jobs/{JOB}/logs", {"wait": 60, "since": 1000}),
    ("POST", "/jobs/wait", {"wait": 60, "known": {JOB: 1000}}),
)


class Later(SystemClock):
    """Moved by hand."""

    ahead = 0

    def epoch_millis(self) -> int:
        return super().epoch_millis() + self.ahead


class Signs:
    """Counts how often it is asked. `token` takes the place of the cluster's when it is set."""

    def __init__(self, principals: Principals, jwts: JwtVerifier) -> None:
        self.asked = 0
        self.token: ClusterToken = new_cluster_token()
        self._principals, self._jwts = principals, jwts

    def __call__(self, scope: AsgiScope) -> Principal | None:
        self.asked += 1
        return TokenSignIn(self.token, self._principals, self._jwts)(scope)


@dataclass
class Pair:
    """A leader and a stand-by."""

    addresses: dict[str, str]
    principals: Principals
    fakes: RestFakes
    signs: Signs
    clock: Later
    path: Path

    async def ends_of(self, kind: str) -> tuple[str, Callable[[], Awaitable[None]]]:
        """An admin's token of that kind, and what ends it."""
        if kind == "token":
            made = await self.principals.create("eve", Role.ADMIN, "*", expires_millis=0)
            return made.token, lambda: self.principals.revoke("eve")
        if kind == "jwt":
            now = self.clock.epoch_millis() // 1000
            text = signed(claims(now, exp=now + 600, role="admin", namespace="*"), rsa_key(), "RS256", kid="k1")

            async def expire() -> None:
                self.clock.ahead = 3_600_000

            return text, expire

        async def replace_token() -> None:
            self.signs.token = new_cluster_token()

        return self.signs.token.reveal(), replace_token

    def refused(self) -> list[str]:
        lines = [json.loads(line) for line in self.path.read_text(encoding="ascii").splitlines()]
        return [one["object"] for one in lines if one["outcome"] != "done"]


@pytest_asyncio.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    store, clock = MemoryKeyValueStore(LoopClock()), Later()
    principals = Principals(PrincipalStore(store, Keys.of_cluster("test"), SystemEntropy(), timeout=5), LoopClock())
    (tmp_path / "issuer.pem").write_bytes(public_pem(rsa_key()))
    keys = FileKeys(tmp_path / "issuer.pem", SystemClock(), is_set=False)
    signs = Signs(principals, JwtVerifier(JWT_SETTINGS, keys, clock))
    audit = AuditLog(tmp_path / "audit.jsonl", SystemClock(), files_max=2)
    leader, standby = RestFakes(), RestFakes()
    standby.is_leading = False
    leader.dispatcher.put(JOB, JobStatus.RUNNING)
    servers = []
    async with Scope("test") as scope:
        following = scope.start("follow", principals.run())
        await eventually(lambda: principals._is_loaded)
        for fakes in (leader, standby):
            context = replace(fakes.context(), principals=principals, long_poll_max=60.0)
            context = replace(context, audit=audit) if fakes is leader else context
            server = RestServer(context, RestSettings("127.0.0.1", 0, 1 << 20), sign_in=signs)
            server.bind()
            await server.start(scope)
            servers.append(server)
        standby.other_leader.set(f"127.0.0.1:{servers[0].port}")
        ports = dict(zip(("leader", "stand-by"), (f"127.0.0.1:{one.port}" for one in servers), strict=True))
        yield Pair(ports, principals, leader, signs, clock, tmp_path / "audit.jsonl")
        for server in servers:
            server.stop()
        following.cancel()
    audit.close()
    await store.close()


async def _sent_in_two(address: str, head: str, body: bytes, between: Callable[[], Awaitable[None]]) -> bytes:
    """The answer to a request, of whose body the last bytes come later."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        more = f"Host: {address}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write((head + more).encode() + body[:-2])
        await writer.drain()
        await between()
        writer.write(body[-2:])
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("where", ["leader", "stand-by"])
@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        *(("token", one) for one in BODIES),
        ("jwt", ("POST", "/tokens")),
        ("cluster's token", ("POST", "/tokens")),
    ],
    ids=str,
)
async def test_a_body_that_comes_after_its_end_does_nothing(
    pair: Pair, kind: str, where: str, asked: tuple[str, str]
) -> None:
    token, end = await pair.ends_of(kind)
    method, path = asked
    head = f"{method} {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"

    async def between() -> None:
        heard = 1 if where == "leader" else 2
        await eventually(lambda: pair.signs.asked > heard)  # by the head, and with the first piece, at the leader
        await end()

    answer = await _sent_in_two(pair.addresses[where], head, json.dumps(BODIES[asked]).encode(), between)
    assert answer.startswith(b"HTTP/1.1 401"), answer
    assert b"Not signed in any more" in answer
    assert [one.name for one in pair.principals.records()] == (["eve"] if kind == "token" else [])
    assert [*pair.fakes.dispatcher.submitted, *pair.fakes.blobs.stored, *pair.fakes.dispatcher.heartbeats] == []
    assert pair.refused() == [path], "told once"


@pytest.mark.parametrize("where", ["leader", "stand-by"])
@pytest.mark.parametrize(
    ("kind", "asked"),
    [*(("token", one) for one in POLLS), ("jwt", POLLS[0]), ("cluster's token", POLLS[0])],
    ids=str,
)
async def test_a_long_poll_is_not_answered_after_its_end(
    pair: Pair, kind: str, where: str, asked: tuple[str, str, dict[str, Any] | None]
) -> None:
    token, end = await pair.ends_of(kind)
    method, path, body = asked
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=f"http://{pair.addresses[where]}", headers=headers, timeout=30) as client:
        poll = asyncio.create_task(client.request(method, path, json=body))
        await eventually(lambda: pair.fakes.dispatcher.polls > 0)
        await end()
        pair.fakes.dispatcher.put(JOB, JobStatus.FINISHED, 5000)
        answer = await poll
    assert answer.status_code == 401, answer.text
    assert pair.refused() == [path.partition("?")[0]]


async def test_who_may_still_is_answered(pair: Pair) -> None:
    token, _ = await pair.ends_of("token")
    head = f"POST /tokens HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    body = json.dumps(BODIES["POST", "/tokens"]).encode()

    async def between() -> None:
        await eventually(lambda: pair.signs.asked > 2)
        await pair.principals.rotate("eve", expires_millis=0)  # the one before goes on

    answer = await _sent_in_two(pair.addresses["stand-by"], head, body, between)
    assert answer.startswith(b"HTTP/1.1 201"), answer
