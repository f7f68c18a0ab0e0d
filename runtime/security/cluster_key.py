"""The cluster's key: it seals the cluster's records in etcd (R38). Clients and slots never get it.

Its file has mode 0600, lies beside the token's file, and is made in the same way: once, by the first process.
"""

from __future__ import annotations

import hmac
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from runtime.common.errors import InvalidInputError
from runtime.security.private_files import create_private, read_private

_SIZE = 32
_HEX = re.compile(rb"[0-9a-f]{64}\s*\Z")


@dataclass(frozen=True, slots=True, repr=False)
class ClusterKey:
    """256 bits. They are never used directly: each purpose has a key that is derived from them."""

    _value: bytes

    def __repr__(self) -> str:
        return "ClusterKey(***)"

    def derived(self, purpose: str) -> bytes:
        """A key for one purpose, from which neither this key nor those of other purposes can be computed."""
        return hmac.digest(self._value, purpose.encode(), "sha256")


def read_cluster_key(path: Path) -> ClusterKey:
    """The key in a file. Raises InvalidInputError when the file is missing, readable by others, or holds no key."""
    content = read_private(path, "cluster key", size_max=2 * _SIZE + 2, is_own=True)
    if not _HEX.match(content):
        message = f"the cluster key file {path} does not hold the 64 hex digits of a key"
        raise InvalidInputError(message)
    return ClusterKey(bytes.fromhex(content.decode()))


def load_or_create_cluster_key(path: Path) -> ClusterKey:
    """Read the file, or make it. Processes that call it at the same time get the same key."""
    if not path.exists():
        create_private(path, f"{secrets.token_hex(_SIZE)}\n".encode())
    return read_cluster_key(path)
