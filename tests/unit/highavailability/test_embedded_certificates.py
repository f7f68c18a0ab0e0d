"""The certificates of the embedded etcd over the years: kept, renewed in time, made anew when damaged (R37)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runtime.entrypoint.control.embedded_certificates import (
    AUTHORITY_VALID,
    RENEWED_BEFORE_END,
    VALID,
    ensure_certificates,
)
from runtime.entrypoint.control.embedded_tls import EmbeddedTls
from runtime.security.certificates import read_credential

NOW = datetime(2026, 11, 23, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def tls(tmp_path: Path) -> EmbeddedTls:
    made = EmbeddedTls.beside(tmp_path / "run" / "etcd")
    ensure_certificates(made, NOW)
    return made


def content(tls: EmbeddedTls) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in tls.directory.iterdir()}


def changed(tls: EmbeddedTls, before: dict[str, bytes]) -> set[str]:
    after = content(tls)
    assert set(after) == {"ca.pem", "authority.pem", "server.pem", "client.pem"}
    return {name for name in after if after[name] != before.get(name)}


def check(tls: EmbeddedTls, now: datetime) -> None:
    """Everything belongs together, and is private."""
    authority = read_credential(tls.authority.read_bytes())
    assert tls.ca.read_bytes() == authority.certificate_pem
    for path in (tls.server, tls.client):
        found = read_credential(path.read_bytes())
        assert found.is_issued_by(authority)
        assert found.ends >= now + RENEWED_BEFORE_END
    assert tls.directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in tls.directory.iterdir()} == {0o600}


def test_a_start_within_the_first_year_changes_nothing(tls: EmbeddedTls) -> None:
    before = content(tls)
    check(tls, NOW)
    for later in (timedelta(0), DAY, VALID - RENEWED_BEFORE_END - DAY):
        ensure_certificates(tls, NOW + later)
    assert changed(tls, before) == set()


def test_what_ends_within_a_year_is_renewed_by_the_same_ca(tls: EmbeddedTls) -> None:
    """So a running etcd accepts it, and processes of this one have a year at least."""
    before, later, ca = content(tls), NOW + VALID - RENEWED_BEFORE_END + DAY, tls.ca_digest()
    ensure_certificates(tls, later)
    assert changed(tls, before) == {"server.pem", "client.pem"}
    assert tls.ca_digest() == ca
    check(tls, later)


def test_a_ca_is_replaced_long_before_it_ends(tls: EmbeddedTls) -> None:
    before, later, ca = content(tls), NOW + AUTHORITY_VALID / 2 + DAY, tls.ca_digest()
    ensure_certificates(tls, later)
    assert tls.ca_digest() != ca, "etcd has to learn of it"
    assert changed(tls, before) == set(before)
    check(tls, later)


@pytest.mark.parametrize("damage", ["gone", "empty", "cut"])
@pytest.mark.parametrize(
    ("name", "mended"),
    [
        ("authority.pem", {"ca.pem", "authority.pem", "server.pem", "client.pem"}),
        ("ca.pem", set()),
        ("server.pem", {"server.pem"}),
        ("client.pem", {"client.pem"}),
    ],
)
def test_what_is_damaged_is_made_anew_with_all_that_rests_on_it(
    tls: EmbeddedTls, damage: str, name: str, mended: set[str]
) -> None:
    before, path = content(tls), tls.directory / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "empty" else before[name][:-60])
    ensure_certificates(tls, NOW)
    assert changed(tls, before) == mended
    check(tls, NOW)


def test_a_start_that_was_killed_half_way_is_mended_by_the_next(tls: EmbeddedTls) -> None:
    """The CA is new, the rest is still of the old one."""
    other = EmbeddedTls.beside(tls.directory.with_name("other"))
    ensure_certificates(other, NOW)
    tls.authority.write_bytes(other.authority.read_bytes())
    ensure_certificates(tls, NOW)
    check(tls, NOW)


def test_a_directory_that_was_opened_to_others_is_closed(tls: EmbeddedTls) -> None:
    tls.directory.chmod(0o755)
    ensure_certificates(tls, NOW)
    check(tls, NOW)
