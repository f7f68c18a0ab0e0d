"""R46: a process does not start with a certificate that its peers would refuse."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from runtime.common.errors import InvalidInputError
from runtime.security.certificate_folder import CertificateFolder
from runtime.security.own_certificate import _names, check_own_certificate
from runtime.security.tls_files import TlsFiles


def folder(directory: Path, *hosts: str) -> CertificateFolder:
    made = CertificateFolder(directory, datetime.now(UTC))
    made.init("test")
    made.issue("internal", hosts)
    made.issue("rest", hosts)
    made.issue("client", ["alice"])
    return made


def files(shown: Path, ca: Path) -> TlsFiles:
    return TlsFiles("security.ssl.internal", shown, shown, ca)


@pytest.mark.parametrize("host", ["node1", "127.0.0.1", "::1"])
@pytest.mark.parametrize("is_mutual", [False, True])
def test_what_others_accept_is_accepted(tmp_path: Path, host: str, is_mutual: bool) -> None:
    folder(tmp_path, "node1", "127.0.0.1", "::1")
    shown = files(tmp_path / "internal-node1.pem", tmp_path / "internal-ca.pem")
    check_own_certificate(shown, host, "jobmaster.rpc.address", is_mutual=is_mutual)


@pytest.mark.parametrize("host", ["node2", "127.0.0.2"])
def test_a_name_that_is_not_in_it_is_told(tmp_path: Path, host: str) -> None:
    folder(tmp_path, "node1", "127.0.0.1")
    shown = files(tmp_path / "internal-node1.pem", tmp_path / "internal-ca.pem")
    with pytest.raises(InvalidInputError, match=rf"would not accept the certificate in .* at {host} \(jobmaster\.rpc"):
        check_own_certificate(shown, host, "jobmaster.rpc.address", is_mutual=True)


def test_another_ca_is_told(tmp_path: Path) -> None:
    folder(tmp_path / "one", "node1")
    folder(tmp_path / "two", "node1")
    shown = files(tmp_path / "one" / "internal-node1.pem", tmp_path / "two" / "internal-ca.pem")
    with pytest.raises(InvalidInputError, match="unable to get local issuer certificate"):
        check_own_certificate(shown, "node1", "jobmaster.rpc.address", is_mutual=True)


@pytest.mark.parametrize(
    ("name", "host", "is_right"),
    [
        ("*.internal", "tm1.internal", True),
        ("*.internal", "a.tm1.internal", False),
        ("*.internal", "internal", False),
        ("NODE1.", "node1", True),
        ("localhost", "localhost.", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("node1", "node10", False),
        ("", "node1", False),
    ],
)
def test_a_name_is_compared_as_grpc_does(name: str, host: str, is_right: bool) -> None:
    assert _names(name, host) is is_right


def test_an_intermediate_ca_may_be_the_end(tmp_path: Path) -> None:
    """As a company's issuing CA is named, without its root."""
    folder(tmp_path, "node1")
    pem = (tmp_path / "internal-node1.pem").read_bytes()
    leaf = tmp_path / "leaf.pem"  # trusted by itself, as an end that is no root
    leaf.write_bytes(pem[: pem.index(b"-----BEGIN PRIVATE KEY")])
    check_own_certificate(files(tmp_path / "internal-node1.pem", leaf), "node1", "x", is_mutual=True)


def test_a_certificate_that_serves_nobody_is_told(tmp_path: Path) -> None:
    folder(tmp_path, "node1")
    shown = files(tmp_path / "client-alice.pem", tmp_path / "rest-ca.pem")
    with pytest.raises(InvalidInputError, match="would not accept"):
        check_own_certificate(shown, "alice", "rest.address", is_mutual=False)


def test_a_ca_before_the_newest_is_one_too(tmp_path: Path) -> None:
    made = folder(tmp_path, "node1")
    made.renew_authorities()
    shown = files(tmp_path / "internal-node1.pem", tmp_path / "internal-ca.pem")
    check_own_certificate(shown, "node1", "jobmaster.rpc.address", is_mutual=True)
