"""The certificates of the embedded etcd: a CA of its own, one for etcd, one for who uses it (R37).

They are made at the first start and looked at at each one, under its lock, so nobody else writes here. What cannot be
used is made anew, in the order CA, server, client: a crash in between is mended by the next start. The CA's key stays,
as private as the client's, which opens the same door: so a new client certificate is trusted by an etcd that runs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from runtime.entrypoint.control.embedded_tls import EmbeddedTls
from runtime.security.certificates import Credential, Use, issue, new_authority, read_credential
from runtime.security.private_files import replace_private

AUTHORITY_VALID = timedelta(days=3650)
VALID = timedelta(days=730)
"""Of etcd's certificate, and of its users'. A process takes a new one while it runs, etcd at its start."""
RENEWED_BEFORE_END = timedelta(days=365)
"""A start that finds less than that left makes a new one: so every process has a year at least."""

_HOSTS = ("127.0.0.1", "localhost")


def ensure_certificates(tls: EmbeddedTls, now: datetime) -> None:
    """All files are there and valid for long enough. An etcd that runs goes by the CA that there was at its start."""
    tls.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    tls.directory.chmod(0o700)
    authority = _usable(tls.authority, now + AUTHORITY_VALID / 2)
    if authority is None:
        authority = new_authority("embedded etcd CA", now=now, valid_for=AUTHORITY_VALID)
        replace_private(tls.authority, authority.pem)
    if not tls.ca.exists() or tls.ca.read_bytes() != authority.certificate_pem:
        replace_private(tls.ca, authority.certificate_pem)
    # Etcd dials itself, as peer and for its HTTP side: its certificate is for both ends.
    _ensure(tls.server, authority, "embedded etcd", (Use.SERVER, Use.CLIENT), now)
    _ensure(tls.client, authority, "flinklike", (Use.CLIENT,), now)


def _ensure(path: Path, authority: Credential, name: str, uses: tuple[Use, ...], now: datetime) -> None:
    found = _usable(path, now + RENEWED_BEFORE_END)
    if found is None or not found.is_issued_by(authority):
        hosts = _HOSTS if Use.SERVER in uses else ()
        replace_private(path, issue(authority, name, hosts=hosts, uses=uses, now=now, valid_for=VALID).pem)


def _usable(path: Path, at_least_until: datetime) -> Credential | None:
    """None: it is missing, damaged, or ends too soon."""
    try:
        found = read_credential(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return found if found.ends >= at_least_until else None
