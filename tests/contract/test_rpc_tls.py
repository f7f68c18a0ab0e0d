"""R46 on real sockets: links between processes are encrypted, both ends are asked, and what is wrong is one line."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from runtime.aio.clock import LoopClock, SystemClock
from runtime.common import watched
from runtime.common.errors import UnauthenticatedError, UnavailableError
from runtime.common.ids import Incarnation
from runtime.rpc.grpc_service import GrpcRpcService
from runtime.rpc.service import NobodyListensError
from runtime.rpc.settings import RpcSettings
from runtime.security.certificates import Use
from runtime.security.tls_files import TlsFiles, TlsMaterial, watch_tls
from runtime.security.tokens import ClusterToken
from tests.kit.control_plane.rpc_wire import DIALER, KIND, LISTENER, accept_all, drain, hello
from tests.kit.host.tcp_proxy import TcpProxy
from tests.kit.services.certificates import Made, fixed

pytestmark = pytest.mark.asyncio

TOKEN = ClusterToken("the-token-of-this-cluster")
CA = Made.new()
OTHER_CA = Made.new("another CA")
GOOD = CA.material(CA.shown())
LONG_AGO = datetime.now(UTC) - timedelta(days=10)
IN_A_WHILE = datetime.now(UTC) + timedelta(days=1, hours=1)
HANDSHAKE_LINE = "ended before they had shown the cluster's token"


def settings(material: TlsMaterial | None, *, client: bool = False) -> RpcSettings:
    tls = None if material is None else fixed(material)
    return RpcSettings(DIALER if client else LISTENER, TOKEN, tls=tls)


@asynccontextmanager
async def running(given: RpcSettings) -> AsyncIterator[GrpcRpcService]:
    service = GrpcRpcService(given, LoopClock())
    await service.start()
    try:
        yield service
    finally:
        await service.stop(grace=0)


def port_of(service: GrpcRpcService) -> int:
    return int(service.server.address.rpartition(":")[2])


async def chunks_of(key: str) -> AsyncIterator[bytes]:
    yield b"the content of " + key.encode()


async def test_all_traffic_is_encrypted() -> None:
    async with running(settings(GOOD)) as server, running(settings(GOOD, client=True)) as client:
        server.server.add_stream_handler(KIND, drain, check=accept_all)
        server.server.add_chunk_source("blobs", chunks_of)
        proxy = TcpProxy(port_of(server), records=True)
        address = await proxy.start()
        assert await client.identify(address, timeout=10) == LISTENER
        assert [chunk async for chunk in client.fetch_chunks(address, "blobs", "k", timeout=10)] == [
            b"the content of k"
        ]
        stream = await client.open_stream(address, hello(), timeout=10)
        await stream.close()
        said = [one for one in proxy.said if one]
        await proxy.kill()
    assert len(said) >= 4, "both directions of two connections, and the knock"
    for one in said:
        assert one[:2] == b"\x16\x03", "a record of TLS"
    everything = b"".join(said)
    for plain in (TOKEN.reveal().encode(), b"the content of", b"PRI * HTTP/2.0", b"flinklike.Transport"):
        assert plain not in everything


async def test_without_tls_the_proxy_sees_the_token() -> None:
    async with running(settings(None)) as server, running(settings(None, client=True)) as client:
        proxy = TcpProxy(port_of(server), records=True)
        assert await client.identify(await proxy.start(), timeout=10) == LISTENER
        assert TOKEN.reveal().encode() in b"".join(proxy.said)
        await proxy.kill()


async def test_the_token_is_still_asked_for() -> None:
    other = replace(settings(GOOD, client=True), credential=ClusterToken("the-token-of-another-cluster"))
    async with running(settings(GOOD)) as server, running(other) as client:
        with pytest.raises(UnauthenticatedError):
            await client.identify(server.server.address, timeout=10)


_ONLY_CLIENT = (Use.CLIENT,)
_OUR_CERTIFICATE = "it does not accept our certificate"
_WRONG = {
    "client of another CA": (GOOD, CA.material(OTHER_CA.shown()), _OUR_CERTIFICATE),
    "server of another CA": (OTHER_CA.material(OTHER_CA.shown(), CA), GOOD, "is of no CA in security.ssl.internal.ca"),
    "client expired": (GOOD, CA.material(CA.shown(now=LONG_AGO)), _OUR_CERTIFICATE),
    "server expired": (CA.material(CA.shown(now=LONG_AGO)), GOOD, "its certificate has expired"),
    "client not yet valid": (GOOD, CA.material(CA.shown(now=IN_A_WHILE)), _OUR_CERTIFICATE),
    "server not yet valid": (CA.material(CA.shown(now=IN_A_WHILE)), GOOD, "is not valid yet: do the clocks differ?"),
    "server of another host": (CA.material(CA.shown("10.0.0.9")), GOOD, "does not name this address"),
    "plain client": (GOOD, None, "the two differ in security.ssl.internal.enabled"),
    "plain server": (None, GOOD, "it speaks no TLS"),
    "no server's certificate": (CA.material(CA.shown(uses=_ONLY_CLIENT)), GOOD, "is of no CA"),
}


@pytest.mark.parametrize("wrong", _WRONG)
async def test_what_is_wrong_is_one_line_on_each_side_and_both_go_on(
    wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    theirs, ours, words = _WRONG[wrong]
    caplog.set_level(logging.INFO, "runtime.rpc.strangers")
    async with (
        running(settings(theirs)) as server,
        running(settings(ours, client=True)) as client,
        running(settings(theirs, client=True)) as friend,
    ):
        address = server.server.address
        server.server.add_stream_handler(KIND, drain, check=accept_all)
        async with asyncio.timeout(60):
            while HANDSHAKE_LINE not in caplog.text:
                with pytest.raises(UnavailableError) as refused:
                    await client.open_stream(address, hello(), timeout=10)
                assert words in str(refused.value)
                assert "\n" not in str(refused.value)
                with pytest.raises(UnavailableError) as unproved:
                    await client.identify(address, timeout=10)
                assert not isinstance(unproved.value, NobodyListensError), "a handshake that fails proves nothing (R13)"
        lines = [record for record in caplog.records if HANDSHAKE_LINE in record.getMessage()]
        assert len(lines) == 1
        assert lines[0].levelno == (logging.INFO if theirs is None else logging.WARNING)
        assert "127.0.0.1" in lines[0].getMessage()
        if wrong in {"client of another CA", "client expired", "client not yet valid", "plain client", "plain server"}:
            assert await friend.identify(address, timeout=10) == LISTENER


async def test_who_shows_no_certificate_is_let_in_nowhere() -> None:
    async with running(settings(GOOD)) as server:
        context = ssl.create_default_context(cadata=CA.authority.certificate_pem.decode())
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server), ssl=context)
        said = b""
        with suppress(OSError):
            said = await asyncio.wait_for(reader.read(100), 30)
        assert said == b"", "not the settings of HTTP/2"
        writer.transport.abort()


async def test_certificates_and_cas_are_renewed_while_a_stream_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of docs/security.md: both CAs everywhere, then certificates of the new one, then the new CA only."""
    monkeypatch.setattr(watched, "LOOK_SECONDS", 0.0)
    files = TlsFiles("security.ssl.internal", tmp_path / "c.pem", tmp_path / "c.pem", tmp_path / "ca.pem")

    def put(material: TlsMaterial) -> None:
        files.ca.write_bytes(material.ca)
        files.cert.write_bytes(material.certificates)
        files.cert.chmod(0o600)

    put(GOOD)
    here = replace(settings(None), tls=watch_tls(files, SystemClock()))
    there = replace(settings(None, client=True), tls=watch_tls(files, SystemClock()))
    async with running(there) as client:
        async with running(here) as server:
            server.server.add_stream_handler(KIND, drain, check=accept_all)
            address = server.server.address
            stream = await client.open_stream(address, hello(), timeout=10)
            numbers = {await serial_of(server)}
            renewed = OTHER_CA.shown()
            for material in (
                CA.material(CA.shown(), OTHER_CA),
                OTHER_CA.material(renewed, CA),
                OTHER_CA.material(renewed),
            ):
                put(material)
                assert await client.identify(address, timeout=10) == LISTENER
                dialer = Incarnation(str(2 + len(numbers)) * 32)
                again = await client.open_stream(address, hello(dialer=dialer), timeout=10)
                await again.close()
                numbers.add(await serial_of(server))
            assert len(numbers) == 3
            assert renewed.certificate.serial_number in numbers
            # What was open all the time.
            assert not stream.is_ended
            files.cert.write_text("nothing")
            assert await client.identify(address, timeout=10) == LISTENER
        # Another process there, which knows the new CA only: no connection of before goes on.
        put(OTHER_CA.material(renewed))
        async with running(replace(here, port=int(address.rpartition(":")[2]))) as server:
            server.server.add_stream_handler(KIND, drain, check=accept_all)
            async with asyncio.timeout(30):
                while not await opens_a_stream(client, address):
                    await asyncio.sleep(0.05)


async def opens_a_stream(client: GrpcRpcService, address: str) -> bool:
    try:
        stream = await client.open_stream(address, hello(), timeout=10)
    except UnavailableError:
        return False
    await stream.close()
    return True


async def serial_of(server: GrpcRpcService) -> int:
    """Of the certificate that it shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(server), ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(shown).serial_number
