"""Certificates as values: from names, validity and keys to PEM. The callers decide about files and validity."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CLOCK_SKEW = timedelta(days=1)
"""Valid from a day ago: clocks of several hosts differ."""


NAME_BYTES_MAX = 64
"""Limit of a subject's name (X.520)."""


class Use(Enum):
    """The ends of a connection at which a certificate may be shown."""

    SERVER = "SERVER"
    CLIENT = "CLIENT"


_OIDS = {Use.SERVER: ExtendedKeyUsageOID.SERVER_AUTH, Use.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH}


@dataclass(frozen=True, slots=True)
class Credential:
    """A certificate and its private key (EC P-256), which no repr shows."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def __repr__(self) -> str:
        return f"Credential({self.certificate.subject.rfc4514_string()})"

    @property
    def certificate_pem(self) -> bytes:
        """The certificate without its key."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pem(self) -> bytes:
        """Certificate and key together, so that a file never has one of them without the other."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self.certificate_pem + key

    @property
    def ends(self) -> datetime:
        """The end of its validity."""
        return self.certificate.not_valid_after_utc

    def is_issued_by(self, authority: Credential) -> bool:
        """True when that authority's key has signed it. The issuer's name is not enough."""
        try:
            self.certificate.verify_directly_issued_by(authority.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True


def read_credential(pem: bytes) -> Credential:
    """The inverse of `Credential.pem`. Raises ValueError for other content, or a key of another certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        key = serialization.load_pem_private_key(pem[pem.find(b"-----BEGIN PRIVATE KEY") :], password=None)
        is_of_certificate = key.public_key() == certificate.public_key()
    except UnsupportedAlgorithm as error:
        message = "the key is of a kind that is not known here"
        raise ValueError(message) from error
    except x509.InvalidVersion as error:
        message = "the certificate is of a version that there is not"
        raise ValueError(message) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not is_of_certificate:
        message = "the key is not that of the certificate"
        raise ValueError(message)
    return Credential(certificate, key)


def new_authority(name: str, *, now: datetime, valid_for: timedelta) -> Credential:
    """A self-signed CA, which may sign certificates, but no further CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _named(name)
    usage = _key_usage(signs_certificates=True)
    builder = (
        _builder(subject, subject, key.public_key(), now, valid_for)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Credential(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: Credential, name: str, *, hosts: Sequence[str], uses: Sequence[Use], now: datetime, valid_for: timedelta
) -> Credential:
    """A certificate of that CA. `hosts`: the addresses and names under which a server is dialled.

    It ends with its CA at the latest. With `hosts`, a `name` that is too long for a subject is cut.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    valid_for = min(valid_for, authority.ends - now)
    authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(
            _named(name[:NAME_BYTES_MAX] if hosts else name),
            authority.certificate.subject,
            key.public_key(),
            now,
            valid_for,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_OIDS[use] for use in uses]), critical=False)
        .add_extension(authority_key, critical=False)
    )
    if hosts:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return Credential(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    valid_for: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + valid_for)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
