"""R48: JSON Web Tokens at REST: the principal of each, the refusals and their log lines, and the sources of keys."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from runtime.aio.clock import LoopClock, SystemClock
from runtime.aio.entropy import SystemEntropy
from runtime.common.errors import InvalidInputError, UnavailableError
from runtime.highavailability.keys import Keys
from runtime.highavailability.kv.key_value_store import Put, Txn
from runtime.highavailability.kv.memory import MemoryKeyValueStore
from runtime.highavailability.principals import PrincipalStore
from runtime.rest.access.audit import AuditLog
from runtime.rest.access.key_sets import FetchedKeys, FileKeys, KeySetAddress
from runtime.rest.access.principals import Principals
from runtime.rest.access.sign_in import TokenSignIn
from runtime.rest.app import create_app
from runtime.security.json_web_tokens import JwtKeySource, JwtSettings, JwtVerifier
from runtime.security.jwt_keys import KEY_SET_BYTES_MAX
from runtime.security.principals import Role
from runtime.security.tokens import new_cluster_token
from tests.kit.rest.fakes import RestFakes
from tests.kit.services.certificates import CertificateAuthority
from tests.kit.services.identity_provider import (
    AUDIENCE,
    ISSUER,
    KeySetServer,
    by_hand,
    claims,
    jwk,
    key_set,
    public_pem,
    rsa_key,
    serving,
    signed,
)
from tests.kit.strangers.damaged_tls import damaging

pytestmark = pytest.mark.asyncio

SETTINGS = JwtSettings(ISSUER, (AUDIENCE,), 30, "sub", "role", "namespace", {})


def token(**more: Any) -> str:
    return signed(claims(SystemClock().epoch_millis() // 1000, **more), rsa_key(), "RS256", kid="k1")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


class Box:
    """An application that people sign in to by tokens of both kinds."""

    def __init__(self, path: Path, source: JwtKeySource, principals: Principals, store: MemoryKeyValueStore) -> None:
        self.store = store
        self.path = path / "audit.jsonl"
        self.principals = principals
        self.audit = AuditLog(self.path, SystemClock(), files_max=2)
        self.cluster = new_cluster_token()
        sign_in = TokenSignIn(self.cluster, principals, JwtVerifier(SETTINGS, source, SystemClock()))
        context = replace(RestFakes().context(), audit=self.audit, principals=principals)
        self.app = create_app(context, sign_in=sign_in, content_length_max=1 << 20, hosts={"test"})

    async def ask(self, presented: str, path: str = "/principal") -> httpx.Response:
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False, client=("10.1.2.3", 5))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(path, headers={"authorization": f"Bearer {presented}"})

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text(encoding="ascii").splitlines()]


@asynccontextmanager
async def box(path: Path, source: JwtKeySource) -> AsyncIterator[Box]:
    store = MemoryKeyValueStore(LoopClock())
    principals = Principals(PrincipalStore(store, Keys.of_cluster("test"), SystemEntropy(), timeout=5), LoopClock())
    running = asyncio.create_task(principals.run())
    made = Box(path, source, principals, store)
    try:
        await until(lambda: principals._is_loaded)
        yield made
    finally:
        made.audit.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "issuer.pem"
    path.write_bytes(public_pem(rsa_key()))
    return path


async def test_who_shows_one_is_who_it_says(tmp_path: Path, key_file: Path) -> None:
    async with box(tmp_path, FileKeys(key_file, SystemClock(), is_set=False)) as made:
        told = (await made.ask(token())).json()
        assert told == {"name": "sam", "role": "submitter", "namespace": "team-a", "via": "jwt"}
        assert (await made.ask(token(role="viewer"), "/tokens")).status_code == 403
        assert (await made.ask(made.cluster.reveal())).json()["name"] == "admin"
        assert (await made.ask(f"a.b.{made.cluster.reveal()}")).status_code == 401
    first = made.lines()[0]
    assert (first["action"], first["principal"], first["via"]) == ("sign-in", "sam", "jwt")


async def test_who_is_refused_is_told_why_and_so_is_the_audit_log(tmp_path: Path, key_file: Path) -> None:
    wrong = {
        token(exp=1): "the JWT has expired",
        token(iss="https://evil.example.com"): "another issuer",
        by_hand(b'{"alg":"none"}', b"{}"): "algorithm 'none'",
        by_hand(b'{"alg":"HS256"}', json.dumps(claims(time.time())).encode(), public_pem(rsa_key())): "'HS256'",
        by_hand(b"[" * 3000, b"{}", b"s"): "no JWT",
        by_hand(b'{"alg":"\x1b[2J\xe2\x80\xae"}'.replace(b"\x1b", b"\\u001b"), b"{}", b"s"): "algorithm",
        "x" * 9000: "at most 8192 characters",
    }
    async with box(tmp_path, FileKeys(key_file, SystemClock(), is_set=False)) as made:
        for presented, said in wrong.items():
            refused = await made.ask(presented)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Bearer error="invalid_token"')
            (sentence,) = refused.json()["errors"]
            assert sentence.startswith("Not signed in: ")
            assert said in sentence
        lines = made.lines()
        assert [(one["action"], one["outcome"], one["address"]) for one in lines] == [
            ("sign-in", "refused", "10.1.2.3")
        ] * len(wrong)
        assert all(said in line["reason"] for line, said in zip(lines, wrong.values(), strict=True))
        assert not any(presented[:80] in made.path.read_text() for presented in wrong)
        assert "\x1b" not in "".join(line["reason"] for line in lines)


async def test_no_jwt_speaks_for_a_principal_of_the_cluster(tmp_path: Path, key_file: Path) -> None:
    async with box(tmp_path, FileKeys(key_file, SystemClock(), is_set=False)) as made:
        presented = token()
        assert (await made.ask(presented)).status_code == 200
        await made.principals.create("sam", Role.VIEWER, "team-b", expires_millis=0)
        refused = await made.ask(presented)
        assert (refused.status_code, "one of `flinklike tokens`" in refused.text) == (401, True)
        await made.store.txn(Txn((), (Put(Keys.of_cluster("test").principal("sam"), b"junk"),)), timeout=5)
        await until(lambda: made.principals.problems().keys() == {"sam"})
        assert (await made.ask(presented)).status_code == 401, "junk in its place lets nobody in"
        (listed,) = (await made.ask(made.cluster.reveal(), "/tokens")).json()["principals"]
        assert (listed["name"], listed["problem"]) == ("sam", "4 bytes that are no JSON")
        await made.principals.revoke("sam")
        assert (await made.ask(presented)).status_code == 401, "so an admin can shut out whom the issuer has not yet"
        assert (await made.ask(token(sub="sue"))).status_code == 200


async def test_a_file_of_keys_may_be_replaced(tmp_path: Path) -> None:
    clock, path = SteppedClock(), tmp_path / "keys.json"
    path.write_bytes(key_set(jwk(rsa_key(1), "k0")))
    source = FileKeys(path, clock, is_set=True)
    async with box(tmp_path, source) as made:
        assert "there is no key 'k1'" in (await made.ask(token())).text
        path.write_bytes(key_set(jwk(rsa_key(1), "k0"), jwk(rsa_key(), "k1")))
        clock.ahead += 3
        assert (await made.ask(token())).status_code == 200
        path.write_text("no keys")
        clock.ahead += 3
        assert (await made.ask(token())).status_code == 200, "what was read before stays"
    with pytest.raises(InvalidInputError, match=r"security.jwt.jwks: .*keys.json: it is no JSON"):
        FileKeys(path, clock, is_set=True)


# --- keys that are fetched --------------------------------------------------------------------------------


class SteppedClock(SystemClock):
    """Real, and moved by hand."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@asynccontextmanager
async def fetched(
    path: Path, body: bytes, *, trusts: bool = True
) -> AsyncIterator[tuple[FetchedKeys, KeySetServer, SteppedClock]]:
    """Keys of a server, in time that nobody waits for: a fetch needs an hour, or somebody who asks for one."""
    authority = CertificateAuthority(path, "id CA")
    other = CertificateAuthority(path, "other CA")
    clock = SteppedClock()
    with serving(authority.issue("id"), body) as server:
        address = KeySetAddress(server.url, (authority if trusts else other).cert, 3600, 600)
        keys = FetchedKeys(address, clock)
        with pytest.raises(UnavailableError, match="could not be fetched yet"):
            keys.keys()
        running = asyncio.create_task(keys.run())
        try:
            await until(lambda: not keys._is_fetching)
            yield keys, server, clock
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_keys_are_fetched_anew_for_a_key_that_is_not_known(tmp_path: Path) -> None:
    body = key_set(jwk(rsa_key(1), "k0"))
    async with fetched(tmp_path, body) as (source, server, clock), box(tmp_path, source) as made:
        assert (await made.ask(token())).status_code == 401, "they were fetched a moment ago"
        server.body = key_set(jwk(rsa_key(), "k1"))
        clock.ahead = 601
        waits = await made.ask(token())
        assert (waits.status_code, waits.headers["retry-after"]) == (503, "1")
        await until(lambda: server.asked == 2 and not source._is_fetching)
        assert (await made.ask(token())).status_code == 200
        for number in range(50):
            presented = signed(claims(1), rsa_key(), "RS256", kid=str(number))
            assert (await made.ask(presented)).status_code == 401
        assert server.asked == 2, "whoever makes up keys has nobody asked"


async def test_what_cannot_be_fetched_leaves_what_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    body = key_set(jwk(rsa_key(), "k1"))
    async with fetched(tmp_path, body) as (source, server, clock), box(tmp_path, source) as made:
        wrong = (
            (500, b"", "answers 500"),
            (302, b"", "answers 302"),
            (200, b"<html>", "it is no JSON"),
            (200, b" " * (2 * KEY_SET_BYTES_MAX), "more than"),
            (200, key_set(), "no key in it"),
        )
        for number, (status, body, said) in enumerate(wrong, 1):
            server.status, server.body = status, body
            clock.ahead = 601 * number
            assert source.look_again()
            await until(lambda: not source._is_fetching)
            assert said in caplog.text
            assert "what was fetched before stays in use" in caplog.text
            assert (await made.ask(token())).status_code == 200
            unknown = await made.ask(signed(claims(1), rsa_key(), "RS256", kid="new"))
            assert unknown.status_code == 503, "it is open whether there is such a key"


async def test_a_server_of_another_ca_is_not_believed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with fetched(tmp_path, key_set(jwk(rsa_key(), "k1")), trusts=False) as (source, server, _):
        async with box(tmp_path, source) as made:
            assert (await made.ask(token())).status_code == 503
            assert (await made.ask(made.cluster.reveal())).status_code == 200, "other tokens need no keys"
        assert server.asked == 0
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        assert "nobody signs in by a JWT before they are" in caplog.text


async def test_no_fault_of_a_fetch_ends_the_fetching(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What runs there would end the process with it: a damaged record of TLS, or a URL that is none, is no reason."""
    authority = CertificateAuthority(tmp_path, "id CA")
    with damaging(authority.issue("id")) as port:
        for url in (f"https://127.0.0.1:{port}/keys", "https://[::1/keys"):
            caplog.clear()
            keys = FetchedKeys(KeySetAddress(url, authority.cert, 3600, 600), SystemClock())
            running = asyncio.create_task(keys.run())
            await until(lambda keys=keys, running=running: running.done() or not keys._is_fetching)  # type: ignore[misc]
            assert not running.done(), running
            assert f"cannot be fetched from {url}" in caplog.text
            assert keys.look_again()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
