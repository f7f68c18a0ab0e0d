"""Where a client finds the cluster's address and token without being told: environment, then the local installation.

A certificate that somebody has named signs in, and a token that nobody has named is not shown beside it.

Processes of a cluster on this host say in its run directory where they listen: `pid/jobmanager-<n>.json`.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from airflow_flinklike.exceptions import AuthenticationError
from runtime.common.json_text import parse_json
from runtime.common.watched import LOOK_SECONDS

logger = logging.getLogger(__name__)

NO_TOKEN = "FLINKLIKE_NO_TOKEN"  # noqa: S105 - the name of a variable
DEFAULT_ADDRESS = "http://127.0.0.1:8081"


def find_address(environment: Mapping[str, str] = os.environ) -> str:
    """FLINKLIKE_ADDRESS, else the JobManagers of this host, else the default. Several are separated by commas."""
    return environment.get("FLINKLIKE_ADDRESS") or local_addresses(environment) or DEFAULT_ADDRESS


def local_addresses(environment: Mapping[str, str] = os.environ) -> str:
    """What the JobManagers said that were started from the local run directory; empty when there is none."""
    said = _said(environment)
    return ",".join(one.get("url") or f"http://{one['address']}" for one in said if "address" in one)


def local_ca(environment: Mapping[str, str] = os.environ) -> str:
    """The file of the CAs of their REST, as they said; empty where it is in plain text, or there is none."""
    return next((one["ca"] for one in _said(environment) if one.get("ca")), "")


def _said(environment: Mapping[str, str]) -> list[dict[str, str]]:
    found = []
    for file in sorted((_run_directory(environment) / "pid").glob("jobmanager-*.json")):
        with suppress(OSError, ValueError, TypeError, KeyError):
            found.append({str(key): str(value) for key, value in dict(parse_json(file.read_bytes())).items()})
    return found


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token that is read again when its file changes (R47). Compared by its path."""

    path: Path

    @property
    def name(self) -> str:
        """Where it is."""
        return str(self.path)

    def read(self) -> str:
        """What it holds now; what it has held before when it is empty or cannot be read. Raises OSError, ValueError."""
        now = time.monotonic()  # noqa: TID251 - a client has no other clock
        with _lock:
            known = _read.get(self.path)
            if known is not None and now < known[0] + LOOK_SECONDS:
                return known[1]
        try:
            text = _first_line(self.path)
        except (OSError, ValueError):
            if known is None:
                raise
            text = known[1]
        with _lock:
            _read[self.path] = (now, text)
        return text


@dataclass(frozen=True, slots=True)
class TokenVariable:
    """The token of a variable of the environment."""

    name: str
    token: str = field(repr=False)

    def read(self) -> str:
        """It stays as it is."""
        return self.token


Credential = str | TokenFile | TokenVariable | None
_lock = threading.Lock()
_read: dict[Path, tuple[float, str]] = {}
_told: set[Path] = set()


def _begin_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_begin_fork)
_OF_OTHERS = 0o044
_UNNAMED = (
    "the certificate {} was named, and no token, so none was shown: `--token-file`, FLINKLIKE_TOKEN_FILE or "
    "FLINKLIKE_TOKEN name one"
)


def find_token(environment: Mapping[str, str] = os.environ, *, token_file: str | None = None) -> str | None:
    """The token that `find_credential` finds, as it is now."""
    return token_of(find_credential(environment, token_file=token_file))


def token_of(credential: Credential) -> str | None:
    """As it is now."""
    return credential.read() if isinstance(credential, TokenFile | TokenVariable) else credential


def find_credential(
    environment: Mapping[str, str] = os.environ,
    *,
    token_file: str | None = None,
    installed: str | None = None,
    certificate: str = "",
) -> Credential:
    """The token of `token_file`, FLINKLIKE_TOKEN, FLINKLIKE_TOKEN_FILE, or the installation's; None if there is none.

    The installation's is in the file `installed`, or in its run directory. With a `certificate`, which somebody has
    named, it is left alone. FLINKLIKE_NO_TOKEN: only `token_file`. Raises AuthenticationError when a file that was
    named cannot be read.
    """
    if token_file is None and is_without_token(environment):
        return None
    if token_file is None and environment.get("FLINKLIKE_TOKEN"):
        return TokenVariable("FLINKLIKE_TOKEN", environment["FLINKLIKE_TOKEN"])
    named = token_file or environment.get("FLINKLIKE_TOKEN_FILE")
    if not named and certificate:
        return None
    if named or installed:
        return _named(str(named or installed))
    try:
        return _readable(_run_directory(environment) / "token")
    except (OSError, ValueError):
        return None


def is_without_token(environment: Mapping[str, str] = os.environ) -> bool:
    """Has somebody said that no token is to be shown? Raises AuthenticationError for what is neither yes nor no."""
    said = environment.get(NO_TOKEN, "").strip().lower()
    if said not in {"", "false", "true"}:
        message = f"{NO_TOKEN} is {said[:40]!r}, expected true or false"
        raise AuthenticationError(message)
    return said == "true"


def shown_in_words(credential: Credential, certificate: str) -> str:
    """What a request has shown, and where that came from: for who is refused. "" for what the caller knows best."""
    if credential is None:
        return _UNNAMED.format(certificate) if certificate else ""
    if isinstance(credential, str):
        return ""
    shown = f"shown was the token of {credential.name}"
    if certificate:
        shown += f", which counts for more than the certificate {certificate}: `flinklike --no-token` shows that alone"
    return shown


def _named(file: str) -> TokenFile:
    try:
        return _readable(Path(file))
    except OSError as error:
        message = f"the token file {file} cannot be read: {error.strerror}"
        raise AuthenticationError(message) from error
    except ValueError as error:
        message = f"the token file {file} does not hold a token"
        raise AuthenticationError(message) from error


def _readable(path: Path) -> TokenFile:
    with _lock:
        _read.pop(path, None)
    found = TokenFile(path)
    _ = found.read()
    _warn_of_others(path)
    return found


def _warn_of_others(path: Path) -> None:
    """A warning, and no refusal: files of secrets that containers are given have modes that nobody there chooses."""
    mode = stat.S_IMODE(path.stat().st_mode)
    with _lock:
        is_news = bool(mode & _OF_OTHERS) and path not in _told
        _told.update({path} if is_news else ())
    if is_news:
        logger.warning("others can read the token file %s (mode %04o): chmod 600 it", path, mode)


def _first_line(file: Path) -> str:
    """The token to send; the cluster accepts those of further lines too. Raises OSError, ValueError for none."""
    found = file.read_text(encoding="utf-8").strip().partition("\n")[0].strip()
    if not found:  # who writes it without a rename leaves it so for a moment
        message = f"{file} is empty"
        raise ValueError(message)
    return found


def _run_directory(environment: Mapping[str, str]) -> Path:
    home = environment.get("FLINKLIKE_HOME") or Path(__file__).resolve().parents[2]
    return Path(environment.get("FLINKLIKE_RUN_DIR") or Path(home) / "run")


class _Bearer(httpx.Auth):
    """The newest token with each request."""

    def __init__(self, file: TokenFile) -> None:
        self._file = file

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Its header."""
        request.headers.update(authorization(self._file.read()))
        yield request


class _Fixed(httpx.Auth):
    """One token, or none."""

    def __init__(self, token: str | None) -> None:
        self._headers = authorization(token)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Its header."""
        request.headers.update(self._headers)
        yield request


def bearer(credential: Credential) -> httpx.Auth:
    """What each request shows. Raises AuthenticationError for what cannot be a token."""
    if isinstance(credential, TokenFile):
        _ = authorization(credential.read())
        return _Bearer(credential)
    return _Fixed(token_of(credential))


def authorization(token: str | None) -> dict[str, str]:
    """The header of every request. Raises AuthenticationError for what cannot be a token."""
    if not token:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        message = "the cluster's token must be one word of ASCII characters: is the right file named?"
        raise AuthenticationError(message)
    return {"authorization": f"Bearer {token}"}
