"""R46, R47 for clients: one sentence about wrong TLS, without retries; long-lived clients use renewed files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from airflow_flinklike.client import AsyncFlinklikeClient, ClientTls, FlinklikeClient, find_credential, find_tls
from airflow_flinklike.client import token as token_module
from airflow_flinklike.client.renewed_transports import RenewedAsyncTransport, RenewedTransport
from airflow_flinklike.client.tls import watched_context
from airflow_flinklike.exceptions import AuthenticationError, ClusterUnavailableError, JobRefusedError
from runtime.common import watched
from runtime.rest.connections.tls import RestTls
from runtime.security.certificates import Credential, Use, issue
from runtime.security.tls_files import TlsMaterial
from tests.kit.cluster.script_cluster import free_port
from tests.kit.host.descriptors import no_descriptors
from tests.kit.host.levels import reached
from tests.kit.rest.server import TOKEN, RestThread
from tests.kit.services.certificates import VALID, Made, fixed

AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}
CA = Made.new()
OTHER_CA = Made.new("another CA")
GOOD = CA.material(CA.shown())
LONG_AGO = datetime.now(UTC) - timedelta(days=10)
IN_A_WHILE = datetime.now(UTC) + timedelta(days=1, hours=1)


@dataclass(frozen=True)
class Files:
    """The files of a client."""

    directory: Path

    def write(self, name: str, data: bytes) -> str:
        draft = self.directory / f"{name}.new"
        draft.write_bytes(data)
        draft.replace(self.directory / name)
        return str(self.directory / name)

    def tls(self, ca: Made = CA, shown: Credential | None = None) -> ClientTls:
        cert = "" if shown is None else self.write("client.pem", shown.pem)
        return ClientTls(self.write("ca.pem", ca.authority.certificate_pem), cert)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def of_client(ca: Made = CA, *, now: datetime | None = None) -> Credential:
    moment = now or datetime.now(UTC)
    return issue(ca.authority, "alice", hosts=(), uses=(Use.CLIENT,), now=moment, valid_for=VALID)


@contextmanager
def rest_of(material: TlsMaterial | None, *, asks_clients: bool = False) -> Iterator[RestThread]:
    made = None if material is None else RestTls(fixed(material), asks_clients=asks_clients)
    with RestThread(made) as started:
        yield started


def ask(address: str, given: ClientTls, *, retry_for: float = 0.0) -> None:
    with FlinklikeClient(address.split(","), TOKEN, retry_for=retry_for, tls=given) as client:
        client.get("/overview")


def ask_async(address: str, given: ClientTls, *, retry_for: float = 0.0) -> None:
    async def asked() -> None:
        async with AsyncFlinklikeClient(address.split(","), TOKEN, retry_for=retry_for, tls=given) as client:
            await client.get("/overview")

    asyncio.run(asked())


Ask = Callable[..., None]
BOTH = pytest.mark.parametrize("asking", [ask, ask_async])


@BOTH
def test_the_right_ca_is_enough_or_a_certificate_where_asked(asking: Ask, files: Files) -> None:
    with rest_of(GOOD) as rest:
        asking(rest.address, files.tls())
    with rest_of(GOOD, asks_clients=True) as rest:
        asking(rest.address, files.tls(shown=of_client()))


_OTHER = OTHER_CA.material(OTHER_CA.shown())
_WRONG = {
    "another CA": (_OTHER, None, "its certificate is of no CA that is trusted here: name its CA by `flinklike --ca`"),
    "another host": (CA.material(CA.shown("10.0.0.9")), None, "its certificate does not name this address"),
    "expired": (CA.material(CA.shown(now=LONG_AGO)), None, "its certificate has expired"),
    "not yet valid": (CA.material(CA.shown(now=IN_A_WHILE)), None, "its certificate is not valid yet: do the clocks"),
    "no certificate": (GOOD, None, "it asks for a client certificate: name its file by `flinklike --cert`"),
    "certificate of another CA": (GOOD, of_client(OTHER_CA), "it does not accept our certificate: it is of no CA in"),
    "expired certificate": (GOOD, of_client(now=LONG_AGO), "it does not accept our certificate: it has expired"),
    "plain server": (None, None, "it speaks no TLS: ask it by http://"),
}


@BOTH
@pytest.mark.parametrize("wrong", _WRONG)
def test_what_is_wrong_is_one_sentence_at_once(asking: Ask, wrong: str, files: Files) -> None:
    """The error comes at once, although `retry_for` would allow retries."""
    material, shown, words = _WRONG[wrong]
    with rest_of(material, asks_clients="certificate" in wrong) as rest:
        address = rest.address.replace("http://", "https://")
        with pytest.raises(ClusterUnavailableError) as refused:
            asking(address, files.tls(shown=shown), retry_for=10.0)
    assert str(refused.value).startswith(f"no JobManager can be asked: {address}: {words}")
    assert "\n" not in str(refused.value)


@BOTH
def test_plain_text_to_a_server_with_tls_is_one_sentence(asking: Ask, files: Files) -> None:
    with rest_of(GOOD) as rest, pytest.raises(JobRefusedError, match="This port speaks TLS: ask it by https://"):
        asking(rest.address.replace("https://", "http://"), files.tls())


@BOTH
def test_another_address_is_asked_where_one_cannot_be(asking: Ask, files: Files) -> None:
    with rest_of(GOOD) as good, rest_of(_OTHER) as bad:
        asking(f"{bad.address},{good.address}", files.tls())
        with pytest.raises(ClusterUnavailableError) as refused:
            asking(f"{bad.address},https://127.0.0.1:{free_port()}", files.tls())
    assert "no JobManager answers at" in str(refused.value), "the other may come back"


def test_files_that_cannot_be_used_are_named(files: Files, tmp_path: Path) -> None:
    good = files.tls(shown=of_client())
    missing, broken = str(tmp_path / "missing.pem"), files.write("broken.pem", b"no PEM")
    for given, words in (
        (ClientTls(missing), f"the CA file {missing} cannot be read: No such file"),
        (ClientTls(broken), f"the CA file {broken} holds no certificate"),
        (ClientTls(good.ca, missing), f"the certificate in {missing} cannot be read"),
        (ClientTls(good.ca, broken), f"{broken}: no certificate with its key"),
        (ClientTls(good.ca, "", good.cert), "is of no use without its certificate"),
    ):
        with pytest.raises(AuthenticationError, match=words):
            FlinklikeClient(["https://127.0.0.1:1"], TOKEN, tls=given)


def test_a_client_takes_renewed_certificates(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    given = files.tls(shown=of_client())
    with (
        rest_of(GOOD, asks_clients=True) as old,
        rest_of(_OTHER, asks_clients=True) as new,
        FlinklikeClient([old.address], TOKEN, retry_for=0.0, tls=given) as client,
    ):
        client.get("/overview")
        files.tls(OTHER_CA, of_client(OTHER_CA))
        client.addresses = (new.address,)
        client.get("/overview")
        files.write("ca.pem", b"half of a")
        client.get("/overview")


def test_what_could_not_be_read_for_a_moment_is_taken_later(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    context = watched_context(files.tls())
    before = context.value
    files.tls(OTHER_CA)
    with no_descriptors():
        assert [context.value is before for _ in range(3)] == [True] * 3
    assert len(caplog.records) == 1
    assert context.value is not before
    assert context.value is context.value


def renewed_by_threads(rest: RestThread, files: Files) -> Iterator[str]:
    given = files.tls(shown=of_client())
    with httpx.Client(transport=RenewedTransport(given), base_url=rest.address, headers=AUTHORIZED) as client:
        with client.stream("GET", "/overview") as running:
            files.tls(shown=of_client())
            assert client.get("/overview").status_code == 200
            yield "one runs on the transport before"
            assert running.read()
        yield "it has ended"
        files.tls(shown=of_client())
        assert client.get("/overview").status_code == 200
        yield "none runs"


async def renewed_on_a_loop(rest: RestThread, files: Files) -> AsyncIterator[str]:
    transport = RenewedAsyncTransport(files.tls(shown=of_client()))
    async with httpx.AsyncClient(transport=transport, base_url=rest.address, headers=AUTHORIZED) as client:
        async with client.stream("GET", "/overview") as running:
            files.tls(shown=of_client())
            assert (await client.get("/overview")).status_code == 200
            yield "one runs on the transport before"
            assert await running.aread()
        yield "it has ended"
        files.tls(shown=of_client())
        assert (await client.get("/overview")).status_code == 200
        yield "none runs"


_CONNECTIONS = {"one runs on the transport before": 2, "it has ended": 1, "none runs": 1, "the client is closed": 0}


def until_connections(rest: RestThread, what: str) -> None:
    """Wait for the number of connections that `what` stands for."""
    reached(lambda: rest.do(lambda: len(rest.server.connections)) == _CONNECTIONS[what], what, timeout=20)


def test_a_renewal_leaves_nothing_of_the_one_before(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """R47: requests go on over the old connections, which are closed after the last one."""
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    with rest_of(GOOD, asks_clients=True) as rest:
        for what in renewed_by_threads(rest, files):
            until_connections(rest, what)
        until_connections(rest, "the client is closed")


@pytest.mark.asyncio
async def test_a_renewal_leaves_nothing_of_the_one_before_on_a_loop(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    with rest_of(GOOD, asks_clients=True) as rest:
        async for what in renewed_on_a_loop(rest, files):
            until_connections(rest, what)
        until_connections(rest, "the client is closed")


def test_a_client_takes_a_renewed_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_module, "LOOK_SECONDS", 0.0)
    file = tmp_path / "token"
    file.write_text("the-token-before\n")
    with rest_of(None) as rest:
        found = find_credential({}, token_file=str(file))
        with FlinklikeClient([rest.address], found, retry_for=0.0) as client:
            with pytest.raises(AuthenticationError):
                client.get("/overview")
            file.write_text(f"{TOKEN}\nthe-token-before\n")
            client.get("/overview")
            file.write_text("\n")
            client.get("/overview")  # a writer has just truncated the file
            file.unlink()
            client.get("/overview")


def test_the_environment_says_what_is_trusted_and_shown() -> None:
    assert find_tls({}) == ClientTls()
    assert find_tls({}, local_ca="/of-this-host") == ClientTls("/of-this-host")
    said = {"FLINKLIKE_CA": "/a", "FLINKLIKE_CERT": "/b", "FLINKLIKE_KEY": "/c"}
    assert find_tls(said, local_ca="/of-this-host") == ClientTls("/a", "/b", "/c")
