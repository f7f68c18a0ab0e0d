"""A throw-away CA with certificates for 127.0.0.1, as PEM files."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from runtime.aio.clock import SystemClock
from runtime.common.watched import Watched
from runtime.security.certificates import Credential, Use, issue, new_authority
from runtime.security.tls_files import TlsMaterial

VALID = timedelta(days=1)


@dataclass(frozen=True)
class KeyPair:
    """Paths of a certificate and its key: one file with both."""

    cert: Path
    key: Path


class CertificateAuthority:
    """Issues into one directory."""

    def __init__(self, directory: Path, name: str = "test CA") -> None:
        self._directory = directory
        self._authority = new_authority(name, now=datetime.now(UTC), valid_for=VALID)
        self.cert = directory / f"{name}.pem"
        self.cert.write_bytes(self._authority.certificate_pem)

    def issue(self, name: str) -> KeyPair:
        """A certificate for both sides, valid for 127.0.0.1 and localhost."""
        hosts, uses = ("localhost", "127.0.0.1"), (Use.SERVER, Use.CLIENT)
        made = issue(self._authority, name, hosts=hosts, uses=uses, now=datetime.now(UTC), valid_for=VALID)
        file = self._directory / f"{name}.pem"
        file.write_bytes(made.pem)
        return KeyPair(file, file)


@dataclass(frozen=True)
class Made:
    """A CA, and a way to have TLS material of it as a process has it."""

    authority: Credential

    @classmethod
    def new(cls, name: str = "test CA") -> Made:
        return cls(new_authority(name, now=datetime.now(UTC), valid_for=2 * VALID))

    def shown(
        self,
        host: str = "127.0.0.1",
        *,
        now: datetime | None = None,
        uses: tuple[Use, ...] = (Use.SERVER, Use.CLIENT),
    ) -> Credential:
        """A certificate for that host, issued now, or at another time."""
        return issue(self.authority, host, hosts=(host,), uses=uses, now=now or datetime.now(UTC), valid_for=VALID)

    def material(self, shown: Credential, *further: Made) -> TlsMaterial:
        """That certificate, and trust in this CA and further ones."""
        trusted = b"".join(one.authority.certificate_pem for one in (self, *further))
        return TlsMaterial(shown.pem, shown.pem, trusted)


def fixed(material: TlsMaterial) -> Watched[TlsMaterial]:
    """Of no file, and whatever a process would say of it."""
    return Watched("test", [], lambda: material, now=SystemClock().monotonic, log=logging.getLogger(__name__))
