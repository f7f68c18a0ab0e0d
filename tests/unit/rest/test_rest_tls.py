"""R46, R47 at REST: real sockets, real certificates. A failure is one line on each side, and no other client waits."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, cast

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa

from runtime.aio.clock import SystemClock
from runtime.aio.scope import Scope
from runtime.common import watched
from runtime.common.errors import InvalidInputError
from runtime.common.states import JobStatus
from runtime.logs.rate_limit import LogRateLimit
from runtime.rest.access.audit import AuditLog
from runtime.rest.connections import limited_connections
from runtime.rest.connections.tls import RestTls
from runtime.rest.context import LEADER_UNKNOWN
from runtime.rest.forwarding.forward_seal import FORWARDED, FORWARDED_NAME, ForwardSeal
from runtime.rest.server import _UVICORN_WARNINGS, RestServer, RestSettings
from runtime.security.certificates import Credential, Use, issue
from runtime.security.cluster_key import ClusterKey
from runtime.security.tls_files import TlsFiles, TlsMaterial
from tests.kit.host.levels import reached
from tests.kit.rest.fakes import JOB, RestFakes, shown
from tests.kit.rest.server import TOKEN, RestThread
from tests.kit.services.certificates import VALID, KeyPair, Made, fixed
from tests.kit.strangers.damaged_tls import damaging

CA = Made.new()
OTHER_CA = Made.new("another CA")
GOOD = CA.material(CA.shown())
SEAL = ForwardSeal(ClusterKey(b"k" * 32))
PATIENCE = 20.0
LONG_AGO = datetime.now(UTC) - timedelta(days=10)
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


def client_certificate(name: str, ca: Made = CA, now: datetime | None = None) -> Credential:
    moment = now or datetime.now(UTC)
    return issue(ca.authority, name, hosts=(), uses=(Use.CLIENT,), now=moment, valid_for=VALID)


@dataclass(frozen=True)
class Trust:
    """What a client trusts and shows, as files of its own."""

    directory: Path

    def context(self, ca: Made = CA, credential: Credential | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=ca.authority.certificate_pem.decode())
        if credential is not None:
            file = self.directory / f"{credential.certificate.serial_number}.pem"
            file.write_bytes(credential.pem)
            context.load_cert_chain(file)
        return context


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is told once a minute may have been told in another test of this process."""
    monkeypatch.setattr(_UVICORN_WARNINGS, "_limit", LogRateLimit())


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path)


@contextmanager
def rest_of(material: TlsMaterial | None, *, asks_clients: bool = False) -> Iterator[RestThread]:
    tls = None if material is None else RestTls(fixed(material), asks_clients=asks_clients)
    with RestThread(tls) as started:
        yield started


def get(rest: RestThread, context: ssl.SSLContext, **more: Any) -> httpx.Response:
    with httpx.Client(verify=context, trust_env=False) as client:
        return client.get(f"{rest.address}/overview", headers=AUTHORIZED, **more)


def raw(rest: RestThread) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(rest.address.rpartition(":")[2])), PATIENCE)


def all_of(connection: socket.socket) -> bytes:
    found = b""
    try:
        while piece := connection.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_client_that_trusts_its_ca_is_answered(trust: Trust) -> None:
    with rest_of(GOOD) as rest:
        assert get(rest, trust.context()).status_code == 200
        with raw(rest) as connection, trust.context().wrap_socket(connection, server_hostname="127.0.0.1") as tls:
            assert tls.version() in {"TLSv1.2", "TLSv1.3"}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_tls_of_yesterday_is_refused(trust: Trust) -> None:
    context = trust.context()
    context.minimum_version = ssl.TLSVersion.TLSv1_1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with rest_of(GOOD) as rest, raw(rest) as connection, pytest.raises((ssl.SSLError, ConnectionResetError)):
        context.wrap_socket(connection, server_hostname="127.0.0.1")


def test_plain_text_on_its_port_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    with rest_of(GOOD) as rest:
        for _ in range(3):
            with raw(rest) as connection:
                connection.sendall(f"GET /overview HTTP/1.1\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode())
                said = all_of(connection)
            assert said.startswith(b"HTTP/1.1 400 ")
            assert b"This port speaks TLS: ask it by https://" in said
    assert lines(caplog) == ["REST and 127.0.0.1 come to no TLS: it speaks none, and security.ssl.rest.enabled is true"]


def test_tls_on_a_plain_port_is_told_so(trust: Trust, caplog: pytest.LogCaptureFixture) -> None:
    with rest_of(None) as rest:
        for _ in range(3):
            with raw(rest) as connection, pytest.raises(ssl.SSLError, match=r"(?i)wrong.version|record.layer"):
                trust.context().wrap_socket(connection, server_hostname="127.0.0.1")
        assert httpx.get(f"{rest.address}/overview", headers=AUTHORIZED, trust_env=False).status_code == 200
    assert lines(caplog) == ["A client of REST speaks TLS, and security.ssl.rest.enabled is false here."]


def test_who_trusts_another_ca_or_asks_another_host_says_so_here_too(
    trust: Trust, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = CA.material(CA.shown("10.0.0.9"))
    for material, context, line in (
        (GOOD, trust.context(OTHER_CA), "it does not accept our certificate: it trusts another CA"),
        (elsewhere, trust.context(), "it does not accept our certificate: does it name the address"),
        (CA.material(CA.shown(now=LONG_AGO)), trust.context(), "it does not accept our certificate: it has expired"),
    ):
        caplog.clear()
        with rest_of(material) as rest:
            with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
                get(rest, context)
            reached(lambda: len(lines(caplog)) == 1, "one line")
            assert line in lines(caplog)[0]


def test_clients_have_to_show_a_certificate_of_the_ca_where_asked(
    trust: Trust, caplog: pytest.LogCaptureFixture
) -> None:
    with rest_of(GOOD, asks_clients=True) as rest:
        assert get(rest, trust.context(credential=client_certificate("alice"))).status_code == 200
        for credential, line, alert in (
            (
                None,
                "it shows no certificate, and security.ssl.rest.authentication-enabled is true",
                "certificate required",
            ),
            (client_certificate("eve", OTHER_CA), "its certificate is not accepted: ", "unknown ca"),
            (
                client_certificate("old", now=LONG_AGO),
                "its certificate is not accepted: certificate has expired",
                "certificate expired",
            ),
        ):
            caplog.clear()
            with pytest.raises(httpx.NetworkError, match=alert):
                get(rest, trust.context(credential=credential))
            reached(lambda: len(lines(caplog)) == 1, "one line")
            assert line in lines(caplog)[0]


def test_a_token_is_asked_for_behind_the_certificate(trust: Trust) -> None:
    with rest_of(GOOD, asks_clients=True) as rest:
        context = trust.context(credential=client_certificate("alice"))
        with httpx.Client(verify=context, trust_env=False) as client:
            assert client.get(f"{rest.address}/overview").status_code == 401


def test_handshakes_that_do_not_come_to_an_end_are_closed(monkeypatch: pytest.MonkeyPatch, trust: Trust) -> None:
    """Silent, begun, and one of which a byte comes now and then."""
    monkeypatch.setattr(limited_connections, "HEAD_SECONDS", 0.3)
    with rest_of(GOOD) as rest, raw(rest) as silent, raw(rest) as begun, raw(rest) as dripping:
        begun.sendall(b"\x16\x03\x01\x02\x00")
        assert (all_of(silent), all_of(begun)) == (b"", b"")
        dripping.settimeout(0.02)
        hello = iter(b"\x16\x03\x01\x02\x00" + bytes(10_000))
        is_open = True
        while is_open:
            try:
                dripping.sendall(bytes([next(hello)]))
                is_open = dripping.recv(100) != b""
            except TimeoutError:
                continue
            except OSError:
                is_open = False
        reached(lambda: rest.do(lambda: len(rest.server.connections)) == 0, "none of them has a place")
        monkeypatch.undo()
        assert get(rest, trust.context()).status_code == 200


def test_a_flood_of_handshakes_leaves_room_for_who_asks(trust: Trust, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.rest.server.connections_max", lambda: 40)
    with rest_of(GOOD) as rest:
        flood = [raw(rest) for _ in range(100)]
        for one in flood[::2]:
            one.sendall(b"\x16\x03\x01\x02\x00")
        assert get(rest, trust.context()).status_code == 200
        assert all_of(flood[0]) == b"", "the oldest has given its place"
        assert rest.do(lambda: len(rest.server.connections)) <= 40
        for one in flood:
            one.close()


@dataclass
class Files:
    """The files of one JobManager."""

    directory: Path

    @classmethod
    def of(cls, directory: Path) -> Self:
        made = cls(directory)
        made.write(CA.shown(), CA)
        return made

    def write(self, credential: Credential, *trusted: Made) -> None:
        for name, data in (("rest.pem", credential.pem), ("ca.pem", b"".join(_pem(one) for one in trusted))):
            draft = self.directory / f"{name}.new"
            draft.write_bytes(data)
            draft.chmod(0o600)
            draft.replace(self.directory / name)

    def tls(self) -> RestTls:
        files = TlsFiles("security.ssl.rest", *(self.directory / one for one in ("rest.pem", "rest.pem", "ca.pem")))
        return RestTls.of_files(files, SystemClock(), asks_clients=True)


def _pem(ca: Made) -> bytes:
    return ca.authority.certificate_pem


def test_certificate_and_ca_are_renewed_while_a_poll_waits(
    trust: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First both CAs are trusted, then a certificate of the new one is shown, then the old one is forgotten."""
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    files = Files.of(tmp_path)
    old, new = (
        trust.context(credential=client_certificate("a")),
        trust.context(OTHER_CA, client_certificate("a", OTHER_CA)),
    )
    with RestThread(files.tls()) as rest, httpx.Client(verify=old, trust_env=False, headers=AUTHORIZED) as polling:
        assert polling.get(f"{rest.address}/overview").status_code == 200
        files.write(CA.shown(), CA, OTHER_CA)
        mixed = trust.context(credential=client_certificate("a", OTHER_CA))
        assert get(rest, mixed).status_code == 200
        assert get(rest, old).status_code == 200
        files.write(OTHER_CA.shown(), OTHER_CA)
        assert get(rest, new).status_code == 200
        with pytest.raises(httpx.ConnectError):
            get(rest, old)
        assert polling.get(f"{rest.address}/overview").status_code == 200, "what runs goes on"


def weak() -> Credential:
    """Good in all but its key, which OpenSSL takes from nobody: RSA of 1024 bits."""
    model, key = CA.shown().certificate, rsa.generate_private_key(65537, 1024)
    builder = x509.CertificateBuilder(model.issuer, model.subject, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(model.not_valid_before_utc).not_valid_after(model.not_valid_after_utc)
    for one in model.extensions:
        builder = builder.add_extension(one.value, one.critical)
    return Credential(builder.sign(CA.authority.key, hashes.SHA256()), cast("Any", key))


def test_a_certificate_that_openssl_refuses_leaves_the_one_before(
    trust: Trust, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was read and is a certificate with its key: what loads it for a handshake is who finds it too weak."""
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    files = Files.of(tmp_path)
    with RestThread(files.tls()) as rest:
        files.write(weak(), CA)
        shows = trust.context(credential=client_certificate("a"))
        for _ in range(3):
            assert get(rest, shows).status_code == 200
        (told,) = [one for one in lines(caplog) if "stays in use" in one]
        assert "security.ssl.rest.cert" in told
        assert "key too small" in told
        files.write(CA.shown(), CA, OTHER_CA)
        assert get(rest, trust.context(credential=client_certificate("a", OTHER_CA))).status_code == 200
    files.write(weak(), CA)
    with pytest.raises(InvalidInputError, match=r"security\.ssl\.rest\.cert: .*key too small"):
        files.tls()


@asynccontextmanager
async def pair(leader_tls: RestTls, standby_tls: RestTls, audit: AuditLog) -> AsyncIterator[tuple[RestFakes, str, str]]:
    """A leader, its address, and that of a stand-by."""
    leader, standby = RestFakes(), RestFakes()
    standby.is_leading = False
    async with Scope("test") as scope:
        servers = []
        for fakes, tls in ((leader, leader_tls), (standby, standby_tls)):
            context = replace(fakes.context(), tls=tls, audit=audit, forward_seal=SEAL)
            server = RestServer(context, RestSettings("127.0.0.1", 0, 1 << 20), sign_in=shown(TOKEN))
            server.bind()
            await server.start(scope)
            servers.append(server)
        standby.other_leader.set(f"127.0.0.1:{servers[0].port}")
        yield leader, f"https://127.0.0.1:{servers[0].port}", f"https://127.0.0.1:{servers[1].port}"
        for server in servers:
            server.stop()


@pytest.mark.asyncio
async def test_a_standby_asks_the_leader_with_tls_and_tells_who_asks(trust: Trust, tmp_path: Path) -> None:
    tls = RestTls(fixed(GOOD), asks_clients=True)
    audit = AuditLog(tmp_path / "audit.jsonl", SystemClock(), files_max=2)
    context = trust.context(credential=client_certificate("alice of sales"))
    async with (
        pair(tls, tls, audit) as (leader, _first, address),
        httpx.AsyncClient(verify=context, trust_env=False, headers=AUTHORIZED) as client,
    ):
        leader.dispatcher.put(JOB, JobStatus.RUNNING)
        pretended = {FORWARDED_NAME.decode(): "mallory"}
        assert (await client.patch(f"{address}/jobs/{JOB}", headers=pretended)).status_code == 202
    audit.close()
    cancels = [line for line in (tmp_path / "audit.jsonl").read_text().splitlines() if '"cancel"' in line]
    assert len(cancels) == 1
    assert '"client_name": "alice of sales"' in cancels[0]
    assert "mallory" not in cancels[0]


@pytest.mark.asyncio
async def test_a_name_that_a_client_tells_is_not_believed(trust: Trust, tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl", SystemClock(), files_max=2)
    context = trust.context(credential=client_certificate("mallory"))
    tls = RestTls(fixed(GOOD), asks_clients=True)
    async with (
        pair(tls, tls, audit) as (leader, first, address),
        httpx.AsyncClient(verify=context, trust_env=False, headers=AUTHORIZED) as client,
    ):
        leader.dispatcher.put(JOB, JobStatus.RUNNING)
        told = {FORWARDED_NAME.decode(): "alice"}
        assert (await client.patch(f"{first}/jobs/{JOB}", headers=told)).status_code == 202
        assert (await client.patch(f"{address}/jobs/{JOB}", headers=told)).status_code == 202
        told[FORWARDED.decode()] = "1"
        assert (await client.patch(f"{first}/jobs/{JOB}", headers=told)).status_code == 202
    audit.close()
    said = (tmp_path / "audit.jsonl").read_text()
    assert said.count('"client_name": "mallory"') == 5, (
        "a sign-in each, by itself and by the stand-by, and three cancels"
    )
    assert "alice" not in said


@pytest.mark.asyncio
async def test_a_leader_of_another_ca_is_not_asked(
    trust: Trust, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "runtime.rest.forwarding.leader_forwarding")
    audit = AuditLog(tmp_path / "audit.jsonl", SystemClock(), files_max=2)
    stranger = RestTls(fixed(OTHER_CA.material(OTHER_CA.shown(), CA)), asks_clients=False)
    async with (
        pair(stranger, RestTls(fixed(GOOD), asks_clients=False), audit) as (_, _first, address),
        httpx.AsyncClient(verify=trust.context(), trust_env=False, headers=AUTHORIZED) as client,
    ):
        assert (await client.get(f"{address}/overview")).status_code == 503
        async with asyncio.timeout(PATIENCE):
            while "certificate verify failed" not in caplog.text:
                await asyncio.sleep(0)
    audit.close()


@pytest.mark.asyncio
async def test_a_damaged_answer_of_the_leader_is_503(trust: Trust) -> None:
    """The ssl module's own error comes through httpx as it is: it is one of the network like others."""
    shown_by_leader = trust.directory / "leader.pem"
    shown_by_leader.write_bytes(GOOD.certificates)
    fakes = RestFakes()
    fakes.is_leading = False
    tls = RestTls(fixed(GOOD), asks_clients=False)
    with damaging(KeyPair(shown_by_leader, shown_by_leader)) as port:
        async with Scope("test") as scope:
            server = RestServer(
                replace(fakes.context(), tls=tls), RestSettings("127.0.0.1", 0, 1 << 20), sign_in=shown(TOKEN)
            )
            server.bind()
            await server.start(scope)
            fakes.other_leader.set(f"127.0.0.1:{port}")
            async with httpx.AsyncClient(verify=trust.context(), trust_env=False, headers=AUTHORIZED) as client:
                answer = await client.get(f"https://127.0.0.1:{server.port}/overview")
            server.stop()
    assert (answer.status_code, answer.json()) == (503, {"errors": [LEADER_UNKNOWN]})
