"""PEM files of one end of TLS: certificate, key and trusted CAs, read together and checked."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError
from runtime.common.watched import Watched
from runtime.security.private_files import read_private

logger = logging.getLogger(__name__)

_SIZE_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files; `prefix` is the common part of the options that name them."""

    prefix: str
    cert: Path
    key: Path
    ca: Path


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """The content of the files: PEM. `ca` may hold several CAs, all of which are trusted (R47)."""

    certificates: bytes
    key: bytes = field(repr=False)
    ca: bytes


def watch_tls(files: TlsFiles, clock: Clock) -> Watched[TlsMaterial]:
    """The content, read again when the files change. Raises InvalidInputError."""
    paths = (files.cert, files.key, files.ca)
    return Watched(
        f"certificate of {files.prefix}", paths, lambda: read_tls(files, clock), now=clock.monotonic, log=logger
    )


def read_tls(files: TlsFiles, clock: Clock) -> TlsMaterial:
    """The content. Raises InvalidInputError, with the option, when the files cannot be used now."""
    key_pem = _bounded(files, "key", files.key, read_private(files.key, f"{files.prefix}.key", size_max=_SIZE_MAX))
    cert_pem = key_pem if files.cert == files.key else _read(files, "cert", files.cert)
    ca_pem = _read(files, "ca", files.ca)
    certificate = _certificates(files, "cert", files.cert, cert_pem)[0]
    _ = _certificates(files, "ca", files.ca, ca_pem)
    try:
        key = serialization.load_pem_private_key(key_pem[max(0, _begin_of_key(key_pem)) :], password=None)
        is_of_certificate = key.public_key() == certificate.public_key()
    except (ValueError, TypeError) as error:
        message = f"{files.prefix}.key: {files.key} holds no private key in PEM form without a password"
        raise InvalidInputError(message) from error
    except UnsupportedAlgorithm as error:
        message = f"{files.prefix}.key: {files.key}, or the certificate, holds a key of a kind that is not known here"
        raise InvalidInputError(message) from error
    if not is_of_certificate:
        message = f"{files.prefix}.key: {files.key} is not the key of the certificate in {files.cert}"
        raise InvalidInputError(message)
    now = datetime.fromtimestamp(clock.epoch_millis() / 1000, UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not begins <= now < ends:
        said = f"is not valid before {begins:%Y-%m-%d %H:%M}" if now < begins else f"has expired on {ends:%Y-%m-%d}"
        message = f"{files.prefix}.cert: the certificate in {files.cert} {said} UTC: renew it (flinklike certs renew)"
        raise InvalidInputError(message)
    return TlsMaterial(cert_pem, key_pem, ca_pem)


def _begin_of_key(pem: bytes) -> int:
    """The offset of the line that begins the key: PRIVATE KEY, EC PRIVATE KEY or RSA PRIVATE KEY."""
    return pem.rfind(b"-----BEGIN", 0, max(0, pem.find(b"PRIVATE KEY-----")))


def _read(files: TlsFiles, name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            pem = file.read(_SIZE_MAX + 1)
    except OSError as error:
        message = f"{files.prefix}.{name}: {path} cannot be read ({error.strerror})"
        raise InvalidInputError(message) from error
    return _bounded(files, name, path, pem)


def _bounded(files: TlsFiles, name: str, path: Path, pem: bytes) -> bytes:
    """The content as it is. Raises InvalidInputError when the file is too large: a part of it would lack CAs."""
    if len(pem) > _SIZE_MAX:
        message = f"{files.prefix}.{name}: {path} has more than {_SIZE_MAX} bytes"
        raise InvalidInputError(message)
    return pem


def _certificates(files: TlsFiles, name: str, path: Path, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion) as error:
        message = f"{files.prefix}.{name}: {path} holds no certificate in PEM form"
        raise InvalidInputError(message) from error
