"""Seals: what is read from the store was written by a process of this cluster, under that very key (R38).

The seal is an HMAC-SHA256 of the store's key and the value, under a key that is derived from the cluster's, as one more
field of the record's JSON: `{"v":1,"record":{...},"mac":"..."}`. Releases before it ignore the field. The store's key
names cluster, kind and subject, so a record that was moved or copied is refused as one that was changed. Not covered:
an earlier value of the same key that is put back, and keys that are deleted or kept from us.
"""

from __future__ import annotations

import base64
import hmac
import logging

from runtime.highavailability.record_codec import refused
from runtime.security.cluster_key import ClusterKey

logger = logging.getLogger(__name__)

_PURPOSE = "records in the store, 1"
_FIELD = b',"mac":"'
_END = b'"}'
_MAC_CHARACTERS = 43
_SUFFIX = len(_FIELD) + _MAC_CHARACTERS + len(_END)
_TOLD_MAX = 1000

_UNSEALED = (
    "it carries no seal of this cluster, so it is damaged, or was written by somebody else who can write to etcd, or "
    "by an earlier release (docs/operations.md, Upgrades)"
)
_FOREIGN = (
    "its seal is not that of this cluster, so it is damaged, or was written, changed or moved by somebody else who can "
    "write to etcd; or the file of security.cluster-key-file is not the same for all processes"
)


class RecordSeal:
    """Seals what is written and opens what is read. `accepts_unsealed`: also what carries no seal at all (D-029)."""

    def __init__(self, key: ClusterKey, *, accepts_unsealed: bool = False) -> None:
        self._begun = hmac.new(key.derived(_PURPOSE), digestmod="sha256")
        self.accepts_unsealed = accepts_unsealed
        self._told: set[str] = set()
        """Keys, until they can be used again: who writes one again and again fills no log."""

    def sealed(self, key: str, value: bytes) -> bytes:
        """The value as it is stored under that key."""
        assert value.endswith(b"}"), f"{key}: only records can be sealed"
        return value[:-1] + _FIELD + self._mac(key, value) + _END

    def opened(self, key: str, stored: bytes) -> bytes:
        """The value as it was sealed. What was not is told, and becomes what no reader takes for a record."""
        value, mac = _split(stored)
        if mac is None:
            if self.accepts_unsealed:
                return stored
            return self._refused(key, _UNSEALED)
        if not hmac.compare_digest(mac, self._mac(key, value)):
            return self._refused(key, _FOREIGN)
        self._told.discard(key)
        return value

    def _mac(self, key: str, value: bytes) -> bytes:
        name = key.encode("utf-8", "surrogateescape")
        text = b"%d:%b%b" % (len(name), name, value)
        mac = self._begun.copy()  # unlike `hmac.digest`, whose every call lets other threads run first
        mac.update(text)
        return base64.urlsafe_b64encode(mac.digest()).rstrip(b"=")

    def _refused(self, key: str, reason: str) -> bytes:
        if key not in self._told:
            if len(self._told) >= _TOLD_MAX:
                self._told.clear()
            self._told.add(key)
            logger.error("%a in etcd is refused: %s", key, reason)
        return refused(reason)


def _split(stored: bytes) -> tuple[bytes, bytes | None]:
    """The value and its seal, None where there is none."""
    if not stored.endswith(_END) or stored[-_SUFFIX : -_SUFFIX + len(_FIELD)] != _FIELD:
        return stored, None
    return stored[:-_SUFFIX] + b"}", stored[-_SUFFIX + len(_FIELD) : -len(_END)]
