"""The cluster's token: the secret that REST (bearer) and gRPC (metadata) require, because a submit executes code.

The token file has mode 0600 and is made once, by whichever process comes first; a file that others may read is
refused. The value never shows in a repr, a log line or an error.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path

from runtime.common.errors import InvalidInputError, UnauthenticatedError

TOKEN_SIZE_MAX = 4096
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,}\Z")


@dataclass(frozen=True, slots=True, repr=False)
class ClusterToken:
    """A secret. `reveal()` is the only way to its value."""

    _value: str = field(compare=True)

    def __post_init__(self) -> None:
        if not _TOKEN.match(self._value):
            message = "a cluster token has at least 16 characters out of A-Z a-z 0-9 . _ ~ + / = -"
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
        return hmac.compare_digest(self._value.encode(), raw)

    def require(self, presented: str | bytes | None) -> None:
        """Raises UnauthenticatedError unless `presented` is this token."""
        if not self.matches(presented):
            message = "the cluster's token is missing" if presented is None else "that is not the cluster's token"
            raise UnauthenticatedError(message)


def new_cluster_token() -> ClusterToken:
    """A fresh secret of 256 bits."""
    return ClusterToken(secrets.token_urlsafe(32))


def read_cluster_token(path: Path) -> ClusterToken:
    """Read a token file. Raises InvalidInputError when it is missing, readable by others, or no token."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        message = f"cannot read the token file {path}: {error.strerror}"
        raise InvalidInputError(message) from error
    with os.fdopen(descriptor, "rb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            message = f"the token file {path} can be read by others (mode {mode:04o}): chmod 600 it or replace it"
            raise InvalidInputError(message)
        content = file.read(TOKEN_SIZE_MAX + 1)
    try:
        return ClusterToken(content.decode("ascii").strip())
    except (UnicodeDecodeError, InvalidInputError) as error:
        message = f"the token file {path} holds no token"
        raise InvalidInputError(message) from error


def load_or_create_cluster_token(path: Path) -> ClusterToken:
    """Read the token file, or make it. Of several processes that come at once, all get the same token."""
    if not path.exists():
        _create(path, new_cluster_token())
    return read_cluster_token(path)


def _create(path: Path, token: ClusterToken) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(token.reveal() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # A link fails if the name exists, a rename would replace what another process is already using.
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()
