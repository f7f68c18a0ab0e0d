"""R48: a client certificate signs in the principal that an admin has given it to, also behind a stand-by."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from runtime.aio.clock import LoopClock, SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.aio.scope import Scope
from runtime.common.states import JobStatus
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.principals import PrincipalStore
from runtime.rest.access.audit import AuditLog
from runtime.rest.access.principals import Principals
from runtime.rest.access.sign_in import TokenSignIn
from runtime.rest.connections.tls import RestTls
from runtime.rest.forwarding.forward_seal import FORWARDED, FORWARDED_NAME, ForwardSeal
from runtime.rest.server import RestServer, RestSettings
from runtime.security.certificates import Use, issue
from runtime.security.cluster_key import ClusterKey
from runtime.security.principals import Role
from runtime.security.tokens import ClusterToken, new_cluster_token
from tests.kit.rest.fakes import JOB, RestFakes
from tests.kit.services.certificates import VALID, Made, fixed

pytestmark = pytest.mark.asyncio

CA = Made.new()
SEAL = ForwardSeal(ClusterKey(b"k" * 32))


@dataclass
class Pair:
    """A leader and a stand-by that let in only who shows a certificate."""

    leader: str
    standby: str
    principals: Principals
    token: ClusterToken
    fakes: RestFakes
    directory: Path
    stack: AsyncExitStack

    async def client(self, address: str, name: str, **headers: str) -> httpx.AsyncClient:
        """Of somebody with a certificate of that name."""
        made = issue(CA.authority, name, hosts=(), uses=(Use.CLIENT,), now=datetime.now(UTC), valid_for=VALID)
        file = self.directory / "client.pem"
        file.write_bytes(made.pem)
        context = ssl.create_default_context(cadata=CA.authority.certificate_pem.decode())
        context.load_cert_chain(file)
        client = httpx.AsyncClient(base_url=address, verify=context, trust_env=False, headers=headers)
        return await self.stack.enter_async_context(client)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.directory / "audit.jsonl").read_text().splitlines()]


@pytest_asyncio.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    store = MemoryKeyValueStore(LoopClock())
    principals = Principals(PrincipalStore(store, Keys.of_cluster("test"), SystemEntropy(), timeout=5), LoopClock())
    audit, token = AuditLog(tmp_path / "audit.jsonl", SystemClock(), files_max=2), new_cluster_token()
    tls = RestTls(fixed(CA.material(CA.shown())), asks_clients=True)
    leader, standby = RestFakes(), RestFakes()
    standby.is_leading = False
    async with AsyncExitStack() as stack, Scope("test") as scope:
        following = scope.start("follow", principals.run())
        async with asyncio.timeout(20):
            while not principals._is_loaded:
                await asyncio.sleep(0.01)
        servers = []
        for fakes in (leader, standby):
            context = replace(fakes.context(), tls=tls, forward_seal=SEAL, principals=principals)
            if fakes is leader:
                context = replace(context, audit=audit)
            server = RestServer(context, RestSettings("127.0.0.1", 0, 1 << 20), sign_in=TokenSignIn(token, principals))
            server.bind()
            await server.start(scope)
            servers.append(server)
        standby.other_leader.set(f"127.0.0.1:{servers[0].port}")
        addresses = [f"https://127.0.0.1:{one.port}" for one in servers]
        yield Pair(addresses[0], addresses[1], principals, token, leader, tmp_path, stack)
        await stack.aclose()
        for server in servers:
            server.stop()
        following.cancel()
    audit.close()
    await store.close()


async def test_who_shows_it_is_that_principal_at_each_address(pair: Pair) -> None:
    await pair.principals.admit("sam", Role.SUBMITTER, "team-a", certificate="alice of sales")
    pair.fakes.dispatcher.put(JOB, JobStatus.RUNNING)
    shown = pair.fakes.dispatcher.summaries[JOB]
    pair.fakes.dispatcher.summaries[JOB] = replace(shown, submitter="sam", namespace="team-a")
    for address in (pair.leader, pair.standby):
        client = await pair.client(address, "alice of sales")
        told = (await client.get("/principal")).json()
        assert told == {"name": "sam", "role": "submitter", "namespace": "team-a", "via": "certificate"}
        assert (await client.patch(f"/jobs/{JOB}")).status_code == 202
        refused = await client.get("/tokens")
        assert (refused.status_code, "sam, signed in by certificate, has the role" in refused.text) == (403, True)
    cancels = [one for one in pair.lines() if one["action"] == "cancel"]
    assert [(one["principal"], one["client_name"]) for one in cancels] == [("sam", "alice of sales")] * 2
    sign_ins = [one for one in pair.lines() if one["action"] == "sign-in"]
    assert {(one["via"], one["client_name"]) for one in sign_ins} == {("certificate", "alice of sales")}


async def test_who_shows_no_certificate_that_is_asked_for_is_told(pair: Pair) -> None:
    for made, reason in (
        (None, "it shows no certificate, and security.ssl.rest.authentication-enabled is true"),
        (Made.new("another CA"), "its certificate is not accepted: "),
    ):
        context = ssl.create_default_context(cadata=CA.authority.certificate_pem.decode())
        if made is not None:
            shown = issue(made.authority, "eve", hosts=(), uses=(Use.CLIENT,), now=datetime.now(UTC), valid_for=VALID)
            (pair.directory / "eve.pem").write_bytes(shown.pem)
            context.load_cert_chain(pair.directory / "eve.pem")
        async with httpx.AsyncClient(base_url=pair.leader, verify=context, trust_env=False) as client:
            with pytest.raises((httpx.NetworkError, ssl.SSLError)):  # what is read is passed on as it is
                await client.get("/overview")
        async with asyncio.timeout(20):
            while not (pair.directory / "audit.jsonl").exists() or reason not in pair.lines()[-1]["reason"]:
                await asyncio.sleep(0.01)
    told = {(one["action"], one["outcome"], one["principal"], one["address"]) for one in pair.lines()}
    assert told == {("sign-in", "refused", "", "127.0.0.1")}


async def test_a_certificate_of_nobody_is_told_what_would_do(pair: Pair) -> None:
    await pair.principals.admit("sam", Role.ADMIN, "*", certificate="alice")
    for address in (pair.leader, pair.standby):
        client = await pair.client(address, "mallory")
        claims = {FORWARDED_NAME.decode(): "alice", FORWARDED.decode(): "10.0.0.1"}
        for headers in ({}, {FORWARDED_NAME.decode(): "alice"}, claims):
            refused = await client.get("/tokens", headers=headers)
            assert refused.status_code == 401
            assert "no principal signs in by the certificate of 'mallory'" in refused.text
            assert "--certificate" in refused.text
    assert {one["client_name"] for one in pair.lines() if one["outcome"] == "refused"} == {"mallory"}


async def test_a_token_counts_for_more_than_the_certificate(pair: Pair) -> None:
    await pair.principals.admit("sam", Role.VIEWER, "team-a", certificate="alice")
    for address in (pair.leader, pair.standby):
        client = await pair.client(address, "alice", authorization=f"Bearer {pair.token.reveal()}")
        assert (await client.get("/principal")).json()["name"] == "admin"
        wrong = await pair.client(address, "alice", authorization="Bearer wrong")
        assert (await wrong.get("/principal")).status_code == 401, "whoever shows a token means it"


async def test_it_ends_when_it_is_revoked(pair: Pair) -> None:
    admin = await pair.client(pair.leader, "admin", authorization=f"Bearer {pair.token.reveal()}")
    asked = {"name": "sam", "role": "viewer", "namespace": "team-a", "certificate": "alice"}
    made = await admin.post("/tokens", json=asked)
    assert (made.status_code, made.json()["token"], made.json()["certificate"]) == (201, "", "alice")
    assert (await admin.post("/tokens", json={**asked, "name": "sue", "lifetime": 5})).status_code == 400
    client = await pair.client(pair.standby, "alice")
    assert (await client.get("/principal")).status_code == 200
    (listed,) = (await admin.get("/tokens")).json()["principals"]
    assert (listed["certificate"], listed["is-revoked"], listed["tokens"]) == ("alice", False, [])
    await admin.delete("/tokens/sam")
    assert (await client.get("/principal")).status_code == 401, "on a connection that was there before too"
    (listed,) = (await admin.get("/tokens")).json()["principals"]
    assert (listed["certificate"], listed["is-revoked"]) == ("", True)
