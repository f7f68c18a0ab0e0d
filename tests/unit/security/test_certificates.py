"""Certificates that two sides of a connection accept, and those that they refuse, by handshakes in memory."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runtime.security.certificates import Credential, Use, issue, new_authority, read_credential

NOW = datetime.now(UTC)
YEAR = timedelta(days=365)


def authority(name: str = "CA", *, valid_for: timedelta = YEAR) -> Credential:
    return new_authority(name, now=NOW, valid_for=valid_for)


def server(of: Credential, *hosts: str, now: datetime = NOW, uses: tuple[Use, ...] = (Use.SERVER,)) -> Credential:
    return issue(of, "server", hosts=hosts or ("127.0.0.1", "localhost"), uses=uses, now=now, valid_for=YEAR)


def client(of: Credential, *, uses: tuple[Use, ...] = (Use.CLIENT,)) -> Credential:
    return issue(of, "client", hosts=(), uses=uses, now=NOW, valid_for=YEAR)


def shake_hands(
    folder: Path, trusted: Credential, shown: Credential, *, host: str = "127.0.0.1", by: Credential | None = None
) -> None:
    """A client that trusts that CA, and shows `by` to a server of that CA. Raises ssl.SSLError."""
    ca, server_file, client_file = folder / "ca.pem", folder / "server.pem", folder / "client.pem"
    ca.write_bytes(trusted.certificate_pem)
    server_file.write_bytes(shown.pem)
    if by is not None:
        client_file.write_bytes(by.pem)
    shake_hands_by_files(ca, server_file, client_file if by is not None else None, host=host)


def shake_hands_by_files(ca: Path, server_file: Path, client_file: Path | None, *, host: str) -> None:
    """Both trust that CA. Raises ssl.SSLError."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(server_file)
    theirs.load_verify_locations(ca)
    ours = ssl.create_default_context(cafile=str(ca))
    if client_file is not None:
        theirs.verify_mode = ssl.CERT_REQUIRED
        ours.load_cert_chain(client_file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        ours.wrap_bio(to_client, to_server, server_hostname=host),
        theirs.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for side in list(sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            sides.remove(side)
    assert not sides, "both have ended"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_both_sides_accept_each_other(tmp_path: Path, host: str) -> None:
    ca = authority()
    shake_hands(tmp_path, ca, server(ca), host=host, by=client(ca))


def test_another_ca_of_the_same_name_is_refused_on_each_side(tmp_path: Path) -> None:
    ca, stranger = authority(), authority()
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, ca, server(stranger))
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, ca, server(ca), by=client(stranger))
    assert server(ca).is_issued_by(ca)
    assert not server(ca).is_issued_by(stranger)


def test_a_host_that_is_not_named_is_refused(tmp_path: Path) -> None:
    ca = authority()
    with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
        shake_hands(tmp_path, ca, server(ca, "10.0.0.1"))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(tmp_path, ca, server(ca), host="example.org")


def test_one_that_has_ended_is_refused(tmp_path: Path) -> None:
    ca = new_authority("CA", now=NOW - 2 * YEAR, valid_for=3 * YEAR)
    ended = server(ca, now=NOW - 2 * YEAR)
    assert ended.ends == (NOW - YEAR).replace(microsecond=0)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        shake_hands(tmp_path, ca, ended)


def test_a_certificate_is_for_its_side_only(tmp_path: Path) -> None:
    ca = authority()
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shake_hands(tmp_path, ca, server(ca, uses=(Use.CLIENT,)))
    with pytest.raises(ssl.SSLError):
        shake_hands(tmp_path, ca, server(ca), by=client(ca, uses=(Use.SERVER,)))


def test_nobody_but_the_ca_issues(tmp_path: Path) -> None:
    ca = authority()
    forged = issue(server(ca), "server", hosts=("127.0.0.1",), uses=(Use.SERVER,), now=NOW, valid_for=YEAR)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path, ca, forged)


def test_no_certificate_outlives_its_ca() -> None:
    ca = authority(valid_for=timedelta(days=2))
    assert server(ca).ends == ca.ends


def test_what_was_written_is_read_back() -> None:
    made = server(authority())
    assert read_credential(made.pem).pem == made.pem
    other = server(authority()).pem
    mixed = made.certificate_pem + other[other.index(b"-----BEGIN PRIVATE KEY") :]
    for damaged in (b"", b"text", made.certificate_pem, made.pem[:-40], mixed):
        with pytest.raises(ValueError):  # noqa: PT011 - the library's words
            read_credential(damaged)


def test_no_key_shows() -> None:
    assert repr(authority()) == "Credential(CN=CA)"
