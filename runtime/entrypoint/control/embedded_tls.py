"""EmbeddedTls: the files with the certificates of the embedded etcd (R37)."""

from __future__ import annotations

import hashlib
import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class EmbeddedTls:
    """Files below a directory of mode 0700. `server`, `client` and `authority` hold a certificate with its key."""

    directory: Path

    @classmethod
    def beside(cls, data_dir: Path) -> EmbeddedTls:
        """The certificates of the etcd with that data directory."""
        return cls(data_dir.with_name(f"{data_dir.name}-tls"))

    @property
    def ca(self) -> Path:
        """The CA's certificate alone."""
        return self.directory / "ca.pem"

    def ca_digest(self) -> str:
        """Digest of the CA's certificate: another CA has another one."""
        return hashlib.sha256(self.ca.read_bytes()).hexdigest()

    @property
    def authority(self) -> Path:
        """The CA's certificate and key."""
        return self.directory / "authority.pem"

    @property
    def server(self) -> Path:
        """etcd's certificate and key, for clients and peers."""
        return self.directory / "server.pem"

    @property
    def client(self) -> Path:
        """The certificate and key of all clients of etcd."""
        return self.directory / "client.pem"

    def server_arguments(self) -> tuple[str, ...]:
        """etcd's flags: clients and peers without a certificate of the CA are refused."""
        return (
            f"--cert-file={self.server}",
            f"--key-file={self.server}",
            f"--trusted-ca-file={self.ca}",
            "--client-cert-auth",
            f"--peer-cert-file={self.server}",
            f"--peer-key-file={self.server}",
            f"--peer-trusted-ca-file={self.ca}",
            "--peer-client-cert-auth",
        )

    def etcdctl_variables(self, endpoint: str) -> dict[str, str]:
        """Environment variables with which etcdctl reaches etcd."""
        return {
            "ETCDCTL_API": "3",
            "ETCDCTL_ENDPOINTS": f"https://{endpoint}",
            "ETCDCTL_CACERT": str(self.ca),
            "ETCDCTL_CERT": str(self.client),
            "ETCDCTL_KEY": str(self.client),
        }

    def client_context(self) -> ssl.SSLContext:
        """TLS for etcd's HTTP port. Raises OSError (ssl.SSLError is one) when a file cannot be used."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(str(self.client))
        return context
