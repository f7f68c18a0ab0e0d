"""`flinklike certs`: TLS accepts the files; only their owner can read them; no file is overwritten silently."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from runtime.common.errors import InvalidInputError
from runtime.security.certificate_folder import CertificateFolder, Kind
from runtime.security.certificates import read_credential
from runtime.security.private_files import replace_public
from tests.kit.host.command_line import RunCommand
from tests.unit.security.test_certificates import shake_hands_by_files

NOW = datetime.now(UTC)


def folder(directory: Path, now: datetime = NOW) -> CertificateFolder:
    return CertificateFolder(directory, now)


def test_what_is_issued_is_accepted_by_who_trusts_the_ca_and_by_no_other(flinklike: RunCommand, tmp_path: Path) -> None:
    assert flinklike("certs", "init", "c").code == 0
    assert flinklike("certs", "issue", "c", "--host", "node1", "--ip", "127.0.0.1").code == 0
    assert flinklike("certs", "issue", "c", "--host", "node1", "--name", "rest").code == 0
    assert flinklike("certs", "issue", "c", "--host", "alice", "--name", "client").code == 0
    made = tmp_path / "c"
    internal, rest, client = made / "internal-node1.pem", made / "rest-node1.pem", made / "client-alice.pem"
    internal_ca, rest_ca = made / "internal-ca.pem", made / "rest-ca.pem"
    for host in ("node1", "127.0.0.1"):
        shake_hands_by_files(internal_ca, internal, internal, host=host)
    shake_hands_by_files(rest_ca, rest, client, host="node1")
    shake_hands_by_files(rest_ca, rest, rest, host="node1")
    with pytest.raises(ssl.SSLError, match="IP address mismatch"):
        shake_hands_by_files(rest_ca, rest, client, host="127.0.0.1")
    # Who may talk to REST is none of the cluster's processes.
    with pytest.raises(ssl.SSLError):
        shake_hands_by_files(internal_ca, internal, client, host="node1")


def test_addresses_of_ipv6_are_names_too(flinklike: RunCommand, tmp_path: Path) -> None:
    flinklike("certs", "init", "c")
    assert flinklike("certs", "issue", "c", "--host", "node1", "--ip", "::1").code == 0
    file = tmp_path / "c" / "internal-node1.pem"
    shake_hands_by_files(tmp_path / "c" / "internal-ca.pem", file, file, host="::1")


def test_what_is_no_address_is_refused(flinklike: RunCommand, tmp_path: Path) -> None:
    flinklike("certs", "init", "c")
    done = flinklike("certs", "issue", "c", "--host", "node1", "--ip", "300.1.1.1")
    assert (done.code, "--ip '300.1.1.1' is no address" in done.err) == (1, True)
    assert not (tmp_path / "c" / "internal-node1.pem").exists()


def test_what_was_interrupted_between_the_cas_goes_on(flinklike: RunCommand, tmp_path: Path) -> None:
    assert flinklike("certs", "init", "c").code == 0
    internal = (tmp_path / "c" / "internal-ca-key.pem").read_bytes()
    (tmp_path / "c" / "rest-ca-key.pem").unlink()
    assert flinklike("certs", "init", "c").code == 0
    assert (tmp_path / "c" / "internal-ca-key.pem").read_bytes() == internal
    assert flinklike("certs", "issue", "c", "--host", "node1", "--name", "rest").code == 0
    again = flinklike("certs", "init", "c")
    assert (again.code, "they are never overwritten" in again.err) == (1, True)
    (tmp_path / "c" / "rest-ca-key.pem").unlink()
    lost = flinklike("certs", "init", "c")
    assert (lost.code, "whose key" in lost.err) == (1, True), lost.err


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_damaged_ca_is_one_sentence(flinklike: RunCommand, tmp_path: Path, damage: bytes) -> None:
    flinklike("certs", "init", "c")
    (tmp_path / "c" / "rest-ca.pem").write_bytes(damage)
    done = flinklike("certs", "renew", "c")
    assert (done.code, len(done.err.splitlines())) == (1, 1)
    assert "rest-ca.pem cannot be read, or holds something else than certificates" in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--host", "node1:8081", "--name", "rest"), "'node1:8081' is no host name or address (without a port)"),
        (("--host", "alice@here"), "'alice@here' is no host name or address (without a port)"),
        (("--host", "alice", "--host", "bob", "--name", "client"), "a client certificate has one name"),
        (("--host", "alice", "--ip", "10.0.0.1", "--name", "client"), "a client certificate has one name"),
    ],
)
def test_names_that_nobody_would_look_at_are_refused(
    flinklike: RunCommand, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    flinklike("certs", "init", "c")
    done = flinklike("certs", "issue", "c", *arguments)
    assert (done.code, words in done.err) == (1, True), done.err
    assert len(list((tmp_path / "c").iterdir())) == 4
    assert flinklike("certs", "issue", "c", "--host", "alice@here:1", "--name", "client").code == 0


def test_keys_are_their_owners_and_cas_may_be_read(flinklike: RunCommand, tmp_path: Path) -> None:
    flinklike("certs", "init", "c")
    flinklike("certs", "issue", "c", "--host", "node1")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "c").iterdir()}
    assert modes == {
        "internal-ca.pem": 0o644,
        "rest-ca.pem": 0o644,
        "internal-ca-key.pem": 0o600,
        "rest-ca-key.pem": 0o600,
        "internal-node1.pem": 0o600,
    }
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700


def test_nothing_is_overwritten_silently(flinklike: RunCommand, tmp_path: Path) -> None:
    flinklike("certs", "init", "c")
    flinklike("certs", "issue", "c", "--host", "node1")
    before = {path: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    for arguments in (["init", "c"], ["issue", "c", "--host", "node1"]):
        done = flinklike("certs", *arguments)
        assert done.code == 1
        assert "there" in done.err
        assert done.err.count("\n") == 1
    assert {path: path.read_bytes() for path in (tmp_path / "c").iterdir()} == before


def test_what_is_printed_is_configuration(flinklike: RunCommand, tmp_path: Path) -> None:
    flinklike("certs", "init", "c")
    made, *lines = flinklike("certs", "issue", "c", "--host", "node1", "--name", "rest").out.splitlines()
    file, ca = tmp_path / "c" / "rest-node1.pem", tmp_path / "c" / "rest-ca.pem"
    assert made == "Made c/rest-node1.pem"
    assert yaml.safe_load("\n".join(lines)) == {
        "security.ssl.rest.enabled": True,
        "security.ssl.rest.cert": str(file),
        "security.ssl.rest.key": str(file),
        "security.ssl.rest.ca": str(ca),
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["issue", "c", "--host", "node1"], "there is no CA in c: make one with `flinklike certs init c`"),
        (["issue", "c", "--host", "../x"], "'../x' is no host name or address"),
        (["issue", "c", "--host", "-x"], "'-x' is no host name or address"),
        (["renew", "c", "--ca"], "there is no CA in c"),
        (["issue", "c", "--host", "x" * 65, "--name", "client"], "is longer than the 64 characters"),
        (["issue", "c", "--host", "x" * 201], "is longer than the 200 characters"),
        (["init", "c", "--cluster", "x" * 60], "is longer than the 55 characters"),
        (["issue", "c", "--host", "x", "--name", "server"], "'server' is not one of 'internal', 'rest', 'client'"),
    ],
)
def test_wrong_input_is_one_sentence(flinklike: RunCommand, arguments: list[str], sentence: str) -> None:
    done = flinklike("certs", *arguments)
    assert done.code == 1
    assert sentence in done.err
    assert done.err.count("\n") == 1


def test_only_what_ends_soon_is_renewed_with_its_names(tmp_path: Path) -> None:
    made = folder(tmp_path, NOW - timedelta(days=340))
    made.init("x")
    early, _ = made.issue("internal", ["node1", "10.0.0.1"])
    late, _ = folder(tmp_path).issue("client", ["bob"])
    kept = late.read_bytes()
    renewed = folder(tmp_path).renew(before=NOW + timedelta(days=30), everything=False)
    assert [one.path for one in renewed] == [early]
    assert renewed[0].ends > NOW + timedelta(days=300)
    assert late.read_bytes() == kept
    for host in ("node1", "10.0.0.1"):
        shake_hands_by_files(made.ca_file(Kind.INTERNAL.authority), early, early, host=host)


def test_a_new_ca_is_trusted_beside_the_old_one_until_that_has_ended(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.init("x")
    node, ca = made.issue("internal", ["node1"])
    old = tmp_path / "old.pem"
    old.write_bytes(node.read_bytes())
    made.renew_authorities()
    assert ca.read_bytes().count(b"BEGIN CERTIFICATE") == 2
    made.renew(before=NOW, everything=True)
    # Both, against each other, in both directions.
    shake_hands_by_files(ca, node, old, host="node1")
    shake_hands_by_files(ca, old, node, host="node1")
    assert made.ending(NOW + timedelta(days=30)) == []
    end = NOW + timedelta(days=3651)
    folder(tmp_path, end - timedelta(days=100)).renew_authorities()
    folder(tmp_path, end).renew(before=end, everything=True)
    assert ca.read_bytes().count(b"BEGIN CERTIFICATE") == 1


def test_the_old_ca_is_trusted_no_more_once_nothing_is_left_of_it(flinklike: RunCommand, tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.init("x")
    node, ca = made.issue("internal", ["node1"])
    old = tmp_path / "old.key"
    old.write_bytes(node.read_bytes())
    made.renew_authorities()
    with pytest.raises(InvalidInputError, match=f"{node} is of the CA that is to go: make it anew first"):
        made.drop_old_authorities()
    assert ca.read_bytes().count(b"BEGIN CERTIFICATE") == 2
    made.renew(before=NOW, everything=True)
    dropped = flinklike("certs", "renew", str(tmp_path), "--drop-old-ca")
    assert f"{ca} trusts the newest CA alone" in dropped.out
    assert ca.read_bytes().count(b"BEGIN CERTIFICATE") == 1
    shake_hands_by_files(ca, node, node, host="node1")
    with pytest.raises(ssl.SSLError):
        shake_hands_by_files(ca, node, old, host="node1")


def test_a_host_has_a_name_of_any_length(flinklike: RunCommand, tmp_path: Path) -> None:
    """Servers are verified by subject alternative names, of which there may be many, of any length."""
    host = f"node1.{'a' * 60}.example"
    flinklike("certs", "init", "c")
    for arguments in (["issue", "c", "--host", host], ["renew", "c", "--all"]):
        assert flinklike("certs", *arguments).code == 0
        file = tmp_path / "c" / f"internal-{host}.pem"
        shake_hands_by_files(tmp_path / "c" / "internal-ca.pem", file, file, host=host)


def test_cas_that_have_ended_are_not_forgotten_before_there_are_others(tmp_path: Path) -> None:
    """A file without a CA would be useless to its readers."""
    folder(tmp_path).init("x")
    ended = folder(tmp_path, NOW + timedelta(days=3651))
    ca = ended.ca_file(Kind.INTERNAL.authority)
    before = ca.read_bytes()
    with pytest.raises(InvalidInputError, match=r"internal-ca\.pem has ended: `flinklike certs renew .* --ca`"):
        ended.renew(before=NOW, everything=True)
    assert ca.read_bytes() == before
    ended.renew_authorities()
    ended.renew(before=NOW, everything=True)
    assert before not in ca.read_bytes()
    assert ca.read_bytes().count(b"BEGIN CERTIFICATE") == 1


def test_cas_may_be_read_as_soon_as_they_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill right after the creation leaves the right mode."""
    monkeypatch.setattr(Path, "chmod", lambda *_: pytest.fail("it was killed"))
    path = tmp_path / "ca.pem"
    for content in (b"one", b"another"):
        replace_public(path, content)
        assert path.read_bytes() == content
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_file_of_somebody_else_is_named(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.init("x")
    file = tmp_path / "internal-node1.pem"
    file.write_text("nothing")
    file.chmod(0o600)
    with pytest.raises(Exception, match=r"internal-node1\.pem holds no certificate with its key"):
        made.renew(before=NOW, everything=True)


def test_a_certificate_ends_no_later_than_its_ca(tmp_path: Path) -> None:
    folder(tmp_path).init("x")
    late = folder(tmp_path, NOW + timedelta(days=3600))
    path, _ = late.issue("client", ["eve"])
    assert read_credential(path.read_bytes()).ends <= NOW + timedelta(days=3650)
    assert len(late.ending(NOW + timedelta(days=3660))) == 2
