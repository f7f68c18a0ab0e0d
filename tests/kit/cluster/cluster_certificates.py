"""Certificates of a cluster on 127.0.0.1, as `flinklike certs` makes them."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from airflow_flinklike.client import ClientTls
from runtime.security.certificate_folder import CertificateFolder

_HOSTS = ("node", "127.0.0.1", "localhost")


@dataclass(frozen=True)
class ClusterCertificates:
    """One directory, with certificates of a host and of a client."""

    directory: Path

    @classmethod
    def new(cls, directory: Path) -> ClusterCertificates:
        """Make them."""
        made = cls(directory)
        made.folder().init("test")
        for name in ("internal", "rest"):
            made.folder().issue(name, _HOSTS)
        made.folder().issue("client", ["alice"])
        return made

    def folder(self) -> CertificateFolder:
        """To issue, and to renew."""
        return CertificateFolder(self.directory, datetime.now(UTC))

    def options(self) -> dict[str, str]:
        """With which everything is encrypted, and everybody is asked for a certificate."""
        return {**self.of_link("internal"), **self.of_link("rest"), "security.ssl.rest.authentication-enabled": "true"}

    def of_link(self, name: str) -> dict[str, str]:
        """The options of `internal` or `rest`."""
        file, prefix = str(self.directory / f"{name}-node.pem"), f"security.ssl.{name}"
        ca = str(self.directory / f"{name}-ca.pem")
        return {f"{prefix}.enabled": "true", f"{prefix}.cert": file, f"{prefix}.key": file, f"{prefix}.ca": ca}

    def of_client(self) -> ClientTls:
        """What a client of REST trusts and shows."""
        return ClientTls(str(self.directory / "rest-ca.pem"), str(self.directory / "client-alice.pem"))

    def context(self) -> ssl.SSLContext:
        """The same as it is now."""
        context = ssl.create_default_context(cafile=self.directory / "rest-ca.pem")
        context.load_cert_chain(self.directory / "client-alice.pem")
        return context

    def renew(self) -> None:
        """All certificates, by the CAs of now."""
        self.folder().renew(before=datetime.now(UTC) + timedelta(days=1), everything=True)

    def renew_authorities(self) -> None:
        """Further CAs, beside those before."""
        self.folder().renew_authorities()

    def forget_old_authorities(self) -> None:
        """Trust the newest only."""
        for file in self.directory.glob("*-ca.pem"):
            newest, end, _ = file.read_bytes().partition(b"-----END CERTIFICATE-----\n")
            draft = file.with_suffix(".new")
            draft.write_bytes(newest + end)
            draft.replace(file)

    def serial(self, name: str) -> int:
        """Of the certificate of `internal` or `rest`."""
        return x509.load_pem_x509_certificate((self.directory / f"{name}-node.pem").read_bytes()).serial_number
