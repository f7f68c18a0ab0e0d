"""Tokens and certificates that change while a process runs (R47): what is taken, refused, and how often it is told."""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runtime.aio.clock import SystemClock
from runtime.common.errors import InvalidInputError, UnauthenticatedError
from runtime.common.watched import LOOK_SECONDS, Watched
from runtime.security.private_files import replace_private
from runtime.security.tls_files import TlsFiles, TlsMaterial, read_tls, watch_tls
from runtime.security.tokens import WatchedClusterToken, read_cluster_token
from tests.kit.control_plane.virtual_time import ManualClock
from tests.kit.host.descriptors import no_descriptors
from tests.kit.services.certificates import Made

OLD, NEW = "the-old-token-of-all", "the-new-token-of-all"
CA = Made.new()


def token_file(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "token"
    replace_private(path, "".join(f"{line}\n" for line in lines).encode())
    return path


def test_all_lines_are_accepted_and_the_first_is_sent(tmp_path: Path) -> None:
    token = read_cluster_token(token_file(tmp_path, NEW, "", f" {OLD} "))
    assert token.reveal() == NEW
    assert token.matches(NEW)
    assert token.matches(OLD.encode())
    assert not token.matches(f"{NEW}\n{OLD}")
    with pytest.raises(UnauthenticatedError):
        token.require("some-other-token-here")
    assert OLD not in repr(token)


@pytest.mark.parametrize("lines", [[], ["short"], [OLD, "short"], [f"{OLD} {NEW}"]])
def test_a_file_with_a_line_that_is_no_token_is_refused(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="holds no token"):
        read_cluster_token(token_file(tmp_path, *lines))


def test_a_token_that_changes_is_taken_at_the_next_look(tmp_path: Path) -> None:
    clock = ManualClock()
    token = WatchedClusterToken(token_file(tmp_path, OLD), clock)
    token_file(tmp_path, OLD, NEW)
    assert not token.matches(NEW), "it was looked at just now"
    clock.advance(LOOK_SECONDS)
    assert token.matches(NEW)
    assert token.reveal() == OLD
    token_file(tmp_path, NEW)
    clock.advance(LOOK_SECONDS)
    assert token.reveal() == NEW
    assert not token.matches(OLD)
    assert NEW not in repr(token)


def test_what_cannot_be_used_is_told_once_and_the_one_before_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    path = token_file(tmp_path, OLD)
    token = WatchedClusterToken(path, clock)
    ways: list[Callable[[], object]] = [lambda: token_file(tmp_path, "bad"), path.unlink, path.mkdir]
    for number, break_it in enumerate(ways, 1):
        break_it()
        for _ in range(3):
            clock.advance(LOOK_SECONDS)
            assert token.reveal() == OLD
        told = [one for one in caplog.records if one.levelno >= logging.WARNING]
        assert len(told) == number
        assert "stays in use" in told[-1].getMessage()
    path.rmdir()
    token_file(tmp_path, NEW)
    clock.advance(LOOK_SECONDS)
    assert token.reveal() == NEW


def test_what_could_not_be_read_for_a_moment_is_taken_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The file is the same at the next look: what has failed is tried again, and told once."""
    clock = ManualClock()
    token = WatchedClusterToken(token_file(tmp_path, OLD), clock)
    token_file(tmp_path, NEW)
    with no_descriptors():
        for _ in range(3):
            clock.advance(LOOK_SECONDS)
            assert token.reveal() == OLD
    assert len([one for one in caplog.records if one.levelno >= logging.WARNING]) == 1
    clock.advance(LOOK_SECONDS)
    assert token.reveal() == NEW


def test_a_file_that_others_may_read_is_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    path = token_file(tmp_path, OLD)
    token = WatchedClusterToken(path, clock)
    token_file(tmp_path, NEW).chmod(0o644)
    clock.advance(LOOK_SECONDS)
    assert token.reveal() == OLD
    assert "can be read by others" in caplog.text
    path.chmod(0o600)
    clock.advance(LOOK_SECONDS)
    assert token.reveal() == NEW


def files(tmp_path: Path, *, cert: bytes, key: bytes | None = None, ca: bytes | None = None) -> TlsFiles:
    made = TlsFiles("security.ssl.internal", tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")
    made.cert.write_bytes(cert)
    replace_private(made.key, cert if key is None else key)
    made.ca.write_bytes(CA.authority.certificate_pem if ca is None else ca)
    return made


def test_certificate_and_key_may_be_one_file_or_two(tmp_path: Path) -> None:
    shown = CA.shown()
    key = shown.pem[len(shown.certificate_pem) :]
    two = files(tmp_path, cert=shown.certificate_pem, key=key)
    assert read_tls(two, SystemClock()) == TlsMaterial(shown.certificate_pem, key, CA.authority.certificate_pem)
    one = TlsFiles(two.prefix, two.key, two.key, two.ca)
    replace_private(one.cert, shown.pem)
    assert read_tls(one, SystemClock()).certificates == shown.pem


def of_an_unknown_curve(pem: bytes) -> bytes:
    """The same file with an unknown curve."""
    label, _, rest = pem.decode().removeprefix("-----BEGIN ").partition("-----\n")
    der = base64.b64decode(rest.partition("-----END")[0])
    assert _CURVE in der
    body = base64.encodebytes(der.replace(_CURVE, _CURVE[:-1] + b"\x02")).decode()
    return f"-----BEGIN {label}-----\n{body}-----END {label}-----\n".encode()


_CURVE = bytes.fromhex("06082a8648ce3d030107")
_SHOWN = CA.shown()
_KEY = _SHOWN.pem[len(_SHOWN.certificate_pem) :]
_NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"cert": b"x"}, r"internal\.cert: .*cert\.pem holds no certificate in PEM form"),
        ({"cert": _SHOWN.pem, "key": _SHOWN.certificate_pem}, r"internal\.key: .*key\.pem holds no private key"),
        ({"cert": _SHOWN.pem, "key": CA.shown().pem}, r"internal\.key: .* is not the key of the certificate"),
        ({"cert": _SHOWN.pem, "ca": b""}, r"internal\.ca: .*ca\.pem holds no certificate in PEM form"),
        (
            {"cert": _SHOWN.pem, "key": of_an_unknown_curve(_KEY)},
            r"internal\.key: .*key\.pem, or .*, holds a key of a kind",
        ),
        ({"cert": of_an_unknown_curve(_SHOWN.certificate_pem), "key": _KEY}, r"internal\.key: .* a key of a kind"),
        ({"cert": _SHOWN.pem, "ca": CA.authority.certificate_pem * 4000}, r"internal\.ca: .*ca\.pem has more than 10"),
        ({"cert": _SHOWN.pem * 2000, "key": _KEY}, r"internal\.cert: .*cert\.pem has more than 1048576 bytes"),
        ({"cert": _SHOWN.pem, "key": _SHOWN.pem * 2000}, r"internal\.key: .*key\.pem has more than 1048576 bytes"),
        ({"cert": CA.shown(now=_NOW - timedelta(days=9)).pem}, r"internal\.cert: .* has expired on 20"),
        ({"cert": CA.shown(now=_NOW + timedelta(hours=25)).pem}, r"internal\.cert: .* is not valid before 20"),
    ],
)
def test_files_that_cannot_be_used_are_one_sentence(tmp_path: Path, given: dict[str, bytes], sentence: str) -> None:
    with pytest.raises(InvalidInputError, match=sentence) as refused:
        read_tls(files(tmp_path, **given), SystemClock())
    assert "\n" not in str(refused.value)


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    made = files(tmp_path, cert=_SHOWN.pem)
    made.key.chmod(0o640)
    with pytest.raises(InvalidInputError, match="can be read by others"):
        read_tls(made, SystemClock())


def test_half_of_a_renewal_is_not_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(epoch_millis=int(_NOW.timestamp() * 1000))
    made = files(tmp_path, cert=_SHOWN.pem)
    watched = watch_tls(made, clock)
    first = watched.value
    renewed = CA.shown()
    made.cert.write_bytes(renewed.pem)
    clock.advance(LOOK_SECONDS)
    assert watched.value is first
    assert "is not the key of the certificate" in caplog.text
    replace_private(made.key, renewed.pem)
    clock.advance(LOOK_SECONDS)
    assert watched.value.certificates == renewed.pem


def test_a_certificate_is_taken_when_its_time_comes(tmp_path: Path) -> None:
    """Clocks differ: it may be of half a minute ahead."""
    clock = ManualClock(epoch_millis=int(_NOW.timestamp() * 1000))
    made = files(tmp_path, cert=_SHOWN.pem)
    watched = watch_tls(made, clock)
    renewed = CA.shown(now=_NOW + timedelta(days=1, minutes=10))
    first = watched.value
    begins = renewed.certificate.not_valid_before_utc
    assert begins > _NOW
    for path in (made.cert, made.key):
        replace_private(path, renewed.pem)
    clock.advance(LOOK_SECONDS)
    assert watched.value is first
    clock.advance((begins - _NOW).total_seconds())
    assert watched.value.certificates == renewed.pem


def of_no_version(pem: bytes) -> bytes:
    """A certificate whose field of the version has another number."""
    der = base64.b64decode(b"".join(pem.split(b"-----")[2].split()))
    assert der.count(b"\xa0\x03\x02\x01\x02") == 1
    damaged = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07")
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(damaged) + b"-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("which", ["cert", "ca"])
def test_a_certificate_of_no_version_is_told_and_the_one_before_stays(
    tmp_path: Path, which: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock, good = ManualClock(), CA.material(CA.shown())
    clock.millis = int(datetime.now(UTC).timestamp() * 1000)
    files = TlsFiles("security.ssl.rest", *(tmp_path / name for name in ("cert", "key", "ca")))
    for path, data in ((files.cert, good.certificates), (files.key, good.key), (files.ca, good.ca)):
        replace_private(path, data)
    watched = watch_tls(files, clock)
    path = getattr(files, which)
    replace_private(path, of_no_version(path.read_bytes()))
    clock.advance(LOOK_SECONDS)
    assert watched.value == good
    assert f"{path} holds no certificate in PEM form" in caplog.text


def test_what_nobody_has_thought_of_leaves_the_value_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, path = ManualClock(), token_file(tmp_path, OLD)

    def read() -> str:
        if NEW in path.read_text():
            raise RuntimeError(NEW)
        return OLD

    watched = Watched("token", [path], read, now=clock.monotonic, log=logging.getLogger(__name__))
    token_file(tmp_path, NEW)
    for _ in range(3):
        clock.advance(LOOK_SECONDS)
        assert watched.value == OLD
    assert caplog.text.count("the token cannot be renewed, what was read before stays in use") == 1
