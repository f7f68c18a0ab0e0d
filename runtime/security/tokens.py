"""The cluster's token: the secret that REST (bearer) and gRPC (metadata) require, because a submit executes code.

The token file has mode 0600 and is made once, by the first process; a file that others may read is refused. No repr,
log line or error shows the value.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from runtime.common.clock import Clock
from runtime.common.errors import InvalidInputError, UnauthenticatedError
from runtime.common.watched import Watched
from runtime.security.private_files import create_private, read_private

logger = logging.getLogger(__name__)

_FORM = "a cluster token has at least 16 characters out of A-Z a-z 0-9 . _ ~ + / = -"
TOKEN_SIZE_MAX = 4096
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,}\Z")


class Token(Protocol):
    """A secret that a client shows and a server compares."""

    def reveal(self) -> str:
        """The secret itself, for the request that carries it."""

    def matches(self, presented: str | bytes | None) -> bool:
        """Compare in constant time."""

    def require(self, presented: str | bytes | None) -> None:
        """Raises UnauthenticatedError unless `presented` is this token."""


@dataclass(frozen=True, slots=True, repr=False)
class ClusterToken:
    """A secret. Only `reveal()` returns its value.

    `_others` are accepted too, and never sent: while a new token replaces an old one (R47).
    """

    _value: str = field(compare=True)
    _others: tuple[str, ...] = field(default=(), compare=True)

    def __post_init__(self) -> None:
        if not all(_TOKEN.match(value) for value in (self._value, *self._others)):
            message = _FORM
            raise InvalidInputError(message)

    def __repr__(self) -> str:
        return "ClusterToken(***)"

    def reveal(self) -> str:
        """The secret itself, for the request that carries it."""
        return self._value

    def matches(self, presented: str | bytes | None) -> bool:
        """Compare in constant time."""
        if presented is None:
            return False
        raw = presented.encode("utf-8", "surrogatepass") if isinstance(presented, str) else presented
        return any(hmac.compare_digest(value.encode(), raw) for value in (self._value, *self._others))

    def require(self, presented: str | bytes | None) -> None:
        """Raises UnauthenticatedError unless `presented` is this token."""
        if not self.matches(presented):
            message = "the cluster's token is missing" if presented is None else "that is not the cluster's token"
            raise UnauthenticatedError(message)


def new_cluster_token() -> ClusterToken:
    """A fresh secret of 256 bits."""
    return ClusterToken(secrets.token_urlsafe(32))


def read_cluster_token(path: Path) -> ClusterToken:
    """Read a token file: a line for each accepted token, and the one to send first.

    Raises InvalidInputError when it is missing, readable by others, or no token.
    """
    content = read_private(path, "token", size_max=TOKEN_SIZE_MAX, is_own=True)
    try:
        first, *others = [line.strip() for line in content.decode("ascii").splitlines() if line.strip()] or [""]
        return ClusterToken(first, tuple(others))
    except (UnicodeDecodeError, InvalidInputError) as error:
        message = f"the token file {path} holds no token: {_FORM}, and has a line for itself"
        raise InvalidInputError(message) from error


def load_or_create_cluster_token(path: Path) -> ClusterToken:
    """Read the token file, or make it. Processes that call it at the same time get the same token."""
    if not path.exists():
        create_private(path, f"{new_cluster_token().reveal()}\n".encode())
    return read_cluster_token(path)


class WatchedClusterToken:
    """A `Token` in a file, which is made when it is missing, and read again when it changes (R47)."""

    def __init__(self, path: Path, clock: Clock) -> None:
        _ = load_or_create_cluster_token(path)
        self._watched = Watched(
            "cluster's token", [path], lambda: read_cluster_token(path), now=clock.monotonic, log=logger
        )

    def __repr__(self) -> str:
        return "WatchedClusterToken(***)"

    def reveal(self) -> str:
        """The first token in the file."""
        return self._watched.value.reveal()

    def matches(self, presented: str | bytes | None) -> bool:
        """True for any token in the file."""
        return self._watched.value.matches(presented)

    def require(self, presented: str | bytes | None) -> None:
        """Raises UnauthenticatedError unless `presented` is a token in the file."""
        self._watched.value.require(presented)
