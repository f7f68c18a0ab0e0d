"""Seals: they prove that a process of this cluster has written a record under the key where it was read (R38).

The seal is an HMAC-SHA256 of the record's key in etcd and of its value, under a key that is derived from the cluster's
key. It is one more field of the record's JSON: `{"v":1,"record":{...},"mac":"..."}`. Earlier releases ignore the field.
The key in etcd names cluster, kind and subject, so a moved or copied record is refused like a changed one. Not covered:
an earlier value of the same key that is put back, and keys that are deleted or withheld.
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
    "it carries no seal of this cluster, so it is damaged, or was written by another client of etcd, or by an earlier "
    "release (docs/operations.md, Upgrades)"
)
_FOREIGN = (
    "its seal is not that of this cluster, so it is damaged, or was written, changed or moved by another client of "
    "etcd; or the file of security.cluster-key-file is not the same for all processes"
)


class RecordSeal:
    """Seals written values and opens read ones. `accepts_unsealed`: values without a seal are opened too (D-029)."""

    def __init__(self, key: ClusterKey, *, accepts_unsealed: bool = False) -> None:
        self._begun = hmac.new(key.derived(_PURPOSE), digestmod="sha256")
        self.accepts_unsealed = accepts_unsealed
        self._told: set[str] = set()
        """Refused keys that were logged, until they are right again: an attacker in etcd must not fill the log."""

    def sealed(self, key: str, value: bytes) -> bytes:
        """The form in which a value is stored under that key."""
        assert value.endswith(b"}"), f"{key}: only records can be sealed"
        return value[:-1] + _FIELD + self._mac(key, value) + _END

    def opened(self, key: str, stored: bytes) -> bytes:
        """The value without its seal. A wrong seal is logged, and the value replaced by one that no reader decodes."""
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
    """The value and its seal, None when it has none."""
    if not stored.endswith(_END) or stored[-_SUFFIX : -_SUFFIX + len(_FIELD)] != _FIELD:
        return stored, None
    return stored[:-_SUFFIX] + b"}", stored[-_SUFFIX + len(_FIELD) : -len(_END)]
