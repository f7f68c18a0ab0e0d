"""CertificateFolder: a directory with two CAs of a cluster and their certificates, for `flinklike certs` (R47).

The CA of the internal links signs for processes of the cluster only, the CA of REST for its servers and for clients: a
client's certificate must not open the internal links. Certificate and key are one file, so that a reader never gets one
of them with the other's successor. Public files (`*-ca.pem`) may be read by all users, the others by their owner only.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from runtime.common.errors import InvalidInputError
from runtime.security.certificates import NAME_BYTES_MAX, Credential, Use, issue, new_authority, read_credential
from runtime.security.file_mask import make_private
from runtime.security.private_files import read_private, replace_private, replace_public

AUTHORITY_VALID = timedelta(days=3650)
VALID = timedelta(days=365)
_SIZE_MAX = 64 * 1024
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")
_CLIENT = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:_@-]{0,251}[A-Za-z0-9])?\Z")
_FILE_NAME_LENGTH_MAX = 200
_END = "-----END CERTIFICATE-----\n"


class Kind(Enum):
    """The purpose of a certificate."""

    INTERNAL = "internal"
    """A process of the cluster, for other processes of it."""
    REST = "rest"
    """A JobManager, for clients; also what it shows to the JobManager that leads."""
    CLIENT = "client"
    """A client of REST."""

    @property
    def uses(self) -> tuple[Use, ...]:
        """The ends of a connection that it may serve."""
        return (Use.CLIENT,) if self is Kind.CLIENT else (Use.SERVER, Use.CLIENT)

    @property
    def authority(self) -> Authority:
        """The CA that signs it."""
        return Authority.INTERNAL if self is Kind.INTERNAL else Authority.REST


class Authority(Enum):
    """The two CAs."""

    INTERNAL = "internal"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Renewed:
    """A renewed file, and the end of its validity."""

    path: Path
    ends: datetime


class CertificateFolder:
    """One directory, at the time `now`."""

    def __init__(self, directory: Path, now: datetime) -> None:
        self._directory = directory
        self._now = now

    def init(self, cluster: str) -> list[Path]:
        """Make both CAs, or the one that an interrupted `init` has not made. Returns their public files.

        Raises InvalidInputError when both exist, or when a missing one has issued certificates: they would be useless.
        """
        missing = [one for one in Authority if not self._key_file(one).exists()]
        if not missing:
            keys = " and ".join(str(self._key_file(one)) for one in Authority)
            message = (
                f"the keys are there, {keys}: issue certificates with them, or renew them with "
                f"`flinklike certs renew {self._directory} --ca`; they are never overwritten"
            )
            raise InvalidInputError(message)
        for kind in Kind:
            if kind.authority in missing and (issued := self._issued(kind)):
                message = (
                    f"{issued[0]} was issued by a CA whose key, {self._key_file(kind.authority)}, is not there: put it"
                    " back, or make the CAs in another directory"
                )
                raise InvalidInputError(message)
        _refuse_long("the name of a cluster", cluster, NAME_BYTES_MAX - max(len(f" {one.value}") for one in Authority))
        try:
            make_private(self._directory)
        except OSError as error:
            raise InvalidInputError(str(error)) from error
        return [self._new_authority(one, cluster) for one in missing]

    def issue(self, name: str, hosts: Sequence[str]) -> tuple[Path, Path]:
        """Make a certificate of the kind `name` for the names and addresses in `hosts`. Returns its file, and its CA's.

        The first of `hosts` names the file. Raises InvalidInputError.
        """
        kind = Kind(name)
        if kind is Kind.CLIENT and len(hosts) > 1:
            message = f"a client certificate has one name, and these are more: {', '.join(hosts)}"
            raise InvalidInputError(message)
        for host in hosts:
            if not (_CLIENT if kind is Kind.CLIENT else _HOST).match(host) and not _is_address(host):
                what = "name of a client" if kind is Kind.CLIENT else "host name or address (without a port)"
                message = f"{host!r} is no {what}"
                raise InvalidInputError(message)
        _refuse_long(
            f"the name of a {kind.value} certificate",
            hosts[0],
            NAME_BYTES_MAX if kind is Kind.CLIENT else _FILE_NAME_LENGTH_MAX,
        )
        path = self._directory / f"{kind.value}-{hosts[0]}.pem"
        if path.exists():
            message = (
                f"{path} is there: to make it anew with the same names, `flinklike certs renew {self._directory} "
                "--all`; with other names, remove it first"
            )
            raise InvalidInputError(message)
        self._issue(path, kind, hosts[0], hosts)
        return path, self.ca_file(kind.authority)

    def renew(self, *, before: datetime, everything: bool) -> list[Renewed]:
        """Issue certificates that end before `before` again, or all, with the same names; remove expired CAs (R47).

        Raises InvalidInputError when a CA has expired.
        """
        for authority in Authority:
            _ = self._signing(authority)
        renewed = []
        for kind in Kind:
            for path in self._issued(kind):
                old = self._read(path)
                if everything or old.ends < before:
                    name, hosts = _names_of(old.certificate)
                    renewed.append(Renewed(path, self._issue(path, kind, name, hosts).ends))
        for authority in Authority:
            self._trust(authority, self._trusted(authority))
        return renewed

    def renew_authorities(self) -> list[Path]:
        """Make new CAs beside the old ones: both are trusted, and the new ones sign from now on."""
        paths = []
        for authority in Authority:
            old = self._authority(authority)
            name = str(old.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
            paths.append(self._new_authority(authority, name.rpartition(" ")[0]))
        return paths

    def drop_old_authorities(self) -> list[Path]:
        """Trust only the newest CAs. Raises InvalidInputError when a certificate here was issued by an older one."""
        for kind in Kind:
            newest = self._authority(kind.authority)
            for path in self._issued(kind):
                if not self._read(path).is_issued_by(newest):
                    message = (
                        f"{path} is of the CA that is to go: make it anew first, `flinklike certs renew "
                        f"{self._directory} --all`, and copy it to its host"
                    )
                    raise InvalidInputError(message)
        for authority in Authority:
            self._trust(authority, [self._authority(authority).certificate_pem])
        return [self.ca_file(one) for one in Authority]

    def _issued(self, kind: Kind) -> list[Path]:
        own = {self.ca_file(kind.authority), self._key_file(kind.authority)}
        return [path for path in sorted(self._directory.glob(f"{kind.value}-*.pem")) if path not in own]

    def ending(self, before: datetime) -> list[Path]:
        """Public files of CAs that end before `before`."""
        return [self.ca_file(one) for one in Authority if self._authority(one).ends < before]

    def ca_file(self, authority: Authority) -> Path:
        """The public file of a CA, which has two certificates while a new CA replaces the old one."""
        return self._directory / f"{authority.value}-ca.pem"

    def _key_file(self, authority: Authority) -> Path:
        return self._directory / f"{authority.value}-ca-key.pem"

    def _new_authority(self, authority: Authority, cluster: str) -> Path:
        made = new_authority(f"{cluster} {authority.value}", now=self._now, valid_for=AUTHORITY_VALID)
        # Trusted first: a crash in between leaves a CA that is trusted and signs nothing.
        self._trust(authority, [made.certificate_pem, *self._trusted(authority)])
        replace_private(self._key_file(authority), made.pem)
        return self.ca_file(authority)

    def _trusted(self, authority: Authority) -> list[bytes]:
        file = self.ca_file(authority)
        if not file.exists():
            return []
        try:
            pems = [(one + _END).encode() for one in file.read_text(encoding="ascii").split(_END) if one.strip()]
            return [pem for pem in pems if x509.load_pem_x509_certificate(pem).not_valid_after_utc > self._now]
        except (OSError, ValueError, x509.InvalidVersion) as error:
            message = f"{file} cannot be read, or holds something else than certificates: {error}"
            raise InvalidInputError(message) from error

    def _trust(self, authority: Authority, pems: Sequence[bytes]) -> None:
        file, data = self.ca_file(authority), b"".join(pems)
        if not file.exists() or file.read_bytes() != data:
            replace_public(file, data)

    def _authority(self, authority: Authority) -> Credential:
        path = self._key_file(authority)
        if not path.exists():
            message = f"there is no CA in {self._directory}: make one with `flinklike certs init {self._directory}`"
            raise InvalidInputError(message)
        return self._read(path)

    def _signing(self, authority: Authority) -> Credential:
        found = self._authority(authority)
        if found.ends <= self._now:
            message = f"the CA {self.ca_file(authority)} has ended: `flinklike certs renew {self._directory} --ca`"
            raise InvalidInputError(message)
        return found

    def _issue(self, path: Path, kind: Kind, name: str, hosts: Sequence[str]) -> Credential:
        by = self._signing(kind.authority)
        names = () if kind is Kind.CLIENT else tuple(hosts)
        made = issue(by, name, hosts=names, uses=kind.uses, now=self._now, valid_for=VALID)
        replace_private(path, made.pem)
        return made

    @staticmethod
    def _read(path: Path) -> Credential:
        try:
            return read_credential(read_private(path, "key", size_max=_SIZE_MAX))
        except ValueError as error:
            message = f"{path} holds no certificate with its key that `flinklike certs` has made: {error}"
            raise InvalidInputError(message) from error


def _refuse_long(what: str, text: str, length_max: int) -> None:
    if len(text.encode(errors="replace")) > length_max:
        message = f"{what}, {text!r}, is longer than the {length_max} characters that it may have"
        raise InvalidInputError(message)


def _is_address(text: str) -> bool:
    """True for an IP address: one of IPv6 may begin and end with a colon."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text


def _names_of(certificate: x509.Certificate) -> tuple[str, list[str]]:
    name = str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return name, []
    addresses = [str(one) for one in found.get_values_for_type(x509.IPAddress)]
    return name, [*found.get_values_for_type(x509.DNSName), *addresses]
