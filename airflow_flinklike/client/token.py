"""Where a client finds the address and the token of the cluster: the environment, then the local installation.

A client that is configured with a certificate shows no token, unless a token is configured too.

JobManagers of this host write their addresses into the run directory: `pid/jobmanager-<n>.json`, and the cluster of one
job `pid/standalonejob-<n>.json`.
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
_SERVE_REST = ("jobmanager", "standalonejob")
"""Processes with the REST of a cluster."""


def find_address(environment: Mapping[str, str] = os.environ) -> str:
    """FLINKLIKE_ADDRESS, else the JobManagers of this host, else DEFAULT_ADDRESS. Commas separate several addresses."""
    return environment.get("FLINKLIKE_ADDRESS") or local_addresses(environment) or DEFAULT_ADDRESS


def local_addresses(environment: Mapping[str, str] = os.environ, *, process: str = "jobmanager") -> str:
    """The addresses of the JobManagers, or history servers, of the local run directory; "" without one."""
    said = _said(environment, *((process,) if process != "jobmanager" else _SERVE_REST))
    return ",".join(one.get("url") or f"http://{one['address']}" for one in said if "address" in one)


def local_ca(environment: Mapping[str, str] = os.environ) -> str:
    """The CA file of these JobManagers' REST; "" when it is plain http, or there is no JobManager."""
    return next((one["ca"] for one in _said(environment, *_SERVE_REST) if one.get("ca")), "")


def _said(environment: Mapping[str, str], *processes: str) -> list[dict[str, str]]:
    found = []
    folder = _run_directory(environment) / "pid"
    for file in (file for name in processes for file in sorted(folder.glob(f"{name}-*.json"))):
        with suppress(OSError, ValueError, TypeError, KeyError):
            found.append({str(key): str(value) for key, value in dict(parse_json(file.read_bytes())).items()})
    return found


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token in a file, which is read again every few seconds (R47). Two are equal when their paths are."""

    path: Path

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    def read(self) -> str:
        """The token; while the file is empty or unreadable, the last one that was read. Raises OSError, ValueError."""
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
    """A token in an environment variable."""

    name: str
    token: str = field(repr=False)

    def read(self) -> str:
        """The token."""
        return self.token


Credential = str | TokenFile | TokenVariable | None
_lock = threading.Lock()
_read: dict[Path, tuple[float, str]] = {}
_told: set[Path] = set()


def _begin_fork() -> None:
    global _lock  # noqa: PLW0603 - a thread of the parent may have held it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_begin_fork)
_OF_OTHERS = 0o044
_UNNAMED = (
    "the certificate {} was named, and no token, so none was shown: `--token-file`, FLINKLIKE_TOKEN_FILE or "
    "FLINKLIKE_TOKEN name one"
)


def find_token(environment: Mapping[str, str] = os.environ, *, token_file: str | None = None) -> str | None:
    """The current token of the credential that `find_credential` finds."""
    return token_of(find_credential(environment, token_file=token_file))


def token_of(credential: Credential) -> str | None:
    """The current token of a credential."""
    return credential.read() if isinstance(credential, TokenFile | TokenVariable) else credential


def find_credential(
    environment: Mapping[str, str] = os.environ,
    *,
    token_file: str | None = None,
    installed: str | None = None,
    certificate: str = "",
) -> Credential:
    """The token of `token_file`, else FLINKLIKE_TOKEN, FLINKLIKE_TOKEN_FILE, or the local installation; else None.

    The token of the installation is in the file `installed`, or in the run directory. It is not used beside a
    configured `certificate`. With FLINKLIKE_NO_TOKEN only `token_file` is used. Raises AuthenticationError for a
    configured file that cannot be read.
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
    """True if FLINKLIKE_NO_TOKEN says so. Raises AuthenticationError for a value other than true and false."""
    said = environment.get(NO_TOKEN, "").strip().lower()
    if said not in {"", "false", "true"}:
        message = f"{NO_TOKEN} is {said[:40]!r}, expected true or false"
        raise AuthenticationError(message)
    return said == "true"


def shown_in_words(credential: Credential, certificate: str) -> str:
    """The credential of a request and its source, for the message of a refusal; "" when the caller passed the token."""
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
    """Only a warning: the user of a container cannot choose the mode of a mounted secret."""
    mode = stat.S_IMODE(path.stat().st_mode)
    with _lock:
        is_news = bool(mode & _OF_OTHERS) and path not in _told
        _told.update({path} if is_news else ())
    if is_news:
        logger.warning("others can read the token file %s (mode %04o): chmod 600 it", path, mode)


def _first_line(file: Path) -> str:
    """The token to send. The cluster accepts those of further lines too. Raises OSError, ValueError."""
    found = file.read_text(encoding="utf-8").strip().partition("\n")[0].strip()
    if not found:  # a writer that does not rename leaves the file empty for a moment
        message = f"{file} is empty"
        raise ValueError(message)
    return found


def _run_directory(environment: Mapping[str, str]) -> Path:
    home = environment.get("FLINKLIKE_HOME") or Path(__file__).resolve().parents[2]
    return Path(environment.get("FLINKLIKE_RUN_DIR") or Path(home) / "run")


class _Bearer(httpx.Auth):
    """Shows the current token with each request."""

    def __init__(self, file: TokenFile) -> None:
        self._file = file

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Its header."""
        request.headers.update(authorization(self._file.read()))
        yield request


class _Fixed(httpx.Auth):
    """Shows one token, or none."""

    def __init__(self, token: str | None) -> None:
        self._headers = authorization(token)

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Its header."""
        request.headers.update(self._headers)
        yield request


def bearer(credential: Credential) -> httpx.Auth:
    """The authentication of requests by that credential. Raises AuthenticationError for a malformed token."""
    if isinstance(credential, TokenFile):
        _ = authorization(credential.read())
        return _Bearer(credential)
    return _Fixed(token_of(credential))


def authorization(token: str | None) -> dict[str, str]:
    """The header of a request with that token. Raises AuthenticationError for a malformed token."""
    if not token:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        message = "the cluster's token must be one word of ASCII characters: is the right file named?"
        raise AuthenticationError(message)
    return {"authorization": f"Bearer {token}"}
