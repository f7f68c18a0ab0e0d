"""The certificates of the embedded etcd: a CA, one for etcd, one for its clients (R37).

They are made at the first start and checked at each start, under the start's lock, so no other process writes them. An
unusable one is made anew, in the order CA, server, client: after a crash in between, the next start goes on. The CA's
key stays, as private as the client's key, which gives the same access, so that a running etcd trusts new client
certificates.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from runtime.entrypoint.control.embedded_tls import EmbeddedTls
from runtime.security.certificates import Credential, Use, issue, new_authority, read_credential
from runtime.security.private_files import replace_private

AUTHORITY_VALID = timedelta(days=3650)
VALID = timedelta(days=730)
"""Validity of the certificates of etcd and of its clients. Clients take a new one while they run, etcd at its start."""
RENEWED_BEFORE_END = timedelta(days=365)
"""A start makes a new certificate when less time than this is left: so it is valid for a year at least."""

_HOSTS = ("127.0.0.1", "localhost")


def ensure_certificates(tls: EmbeddedTls, now: datetime) -> None:
    """Make missing certificates and those that end soon. A running etcd trusts the CA of its own start."""
    tls.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    tls.directory.chmod(0o700)
    authority = _usable(tls.authority, now + AUTHORITY_VALID / 2)
    if authority is None:
        authority = new_authority("embedded etcd CA", now=now, valid_for=AUTHORITY_VALID)
        replace_private(tls.authority, authority.pem)
    if not tls.ca.exists() or tls.ca.read_bytes() != authority.certificate_pem:
        replace_private(tls.ca, authority.certificate_pem)
    # etcd dials itself, as peer and for its HTTP port: its certificate is for server and client.
    _ensure(tls.server, authority, "embedded etcd", (Use.SERVER, Use.CLIENT), now)
    _ensure(tls.client, authority, "flinklike", (Use.CLIENT,), now)


def _ensure(path: Path, authority: Credential, name: str, uses: tuple[Use, ...], now: datetime) -> None:
    found = _usable(path, now + RENEWED_BEFORE_END)
    if found is None or not found.is_issued_by(authority):
        hosts = _HOSTS if Use.SERVER in uses else ()
        replace_private(path, issue(authority, name, hosts=hosts, uses=uses, now=now, valid_for=VALID).pem)


def _usable(path: Path, at_least_until: datetime) -> Credential | None:
    """The certificate; None when it is missing, damaged, or ends too soon."""
    try:
        found = read_credential(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found if found.ends >= at_least_until else None
