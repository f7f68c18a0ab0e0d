"""R19 as arithmetic: until when a new job may refer to an object, and from when on the object may be deleted.

The upload's time is part of the key, so it cannot be lost. The two limits are R apart: the clocks of hosts may differ
by less than that.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from runtime.common.entropy import Entropy
from runtime.common.errors import InvalidInputError
from runtime.gateways.blob import BlobKey

_TIME_DIGITS = 12
_KEY = re.compile(r"[0-9a-f]{64}-[0-9a-f]{32}\Z")
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")

REFERENCE_MILLIS = 24 * 3600 * 1000
"""R."""

_CLIENT_MILLIS = 3600 * 1000
"""Time of a client between the question which blobs are missing and its submit."""


def new_upload_id(epoch_millis: int, entropy: Entropy) -> str:
    """32 hex digits: the time of the upload, then chance."""
    return f"{epoch_millis:0{_TIME_DIGITS}x}{entropy.hex_id()[_TIME_DIGITS:]}"


def parse_blob_key(text: str) -> BlobKey:
    """Validate a key from outside. Raises InvalidInputError."""
    if not _KEY.match(text):
        message = f"{text[:160]!r} is not a blob key: expected <sha256>-<upload id>"
        raise InvalidInputError(message)
    sha256, _, upload_id = text.partition("-")
    return BlobKey(sha256, upload_id)


def check_digest(text: str) -> str:
    """Validate a sha256 from outside. Raises InvalidInputError."""
    if not _DIGEST.match(text):
        message = f"{text[:80]!r} is not a sha256: expected 64 lower-case hex digits"
        raise InvalidInputError(message)
    return text


@dataclass(frozen=True, slots=True)
class Retention:
    """The two limits of R19."""

    reference_millis: int = REFERENCE_MILLIS

    def may_be_referenced(self, key: BlobKey, now_millis: int) -> bool:
        """True within R after the upload."""
        return now_millis - _uploaded_at(key) < self.reference_millis

    def may_be_offered(self, key: BlobKey, now_millis: int) -> bool:
        """True while a client that gets the key now still has time to refer to it."""
        return now_millis - _uploaded_at(key) < self.reference_millis - min(_CLIENT_MILLIS, self.reference_millis // 4)

    def may_be_deleted(self, key: BlobKey, now_millis: int) -> bool:
        """True from 2R after the upload on, for an object without references."""
        return now_millis - _uploaded_at(key) > 2 * self.reference_millis


def _uploaded_at(key: BlobKey) -> int:
    return int(key.upload_id[:_TIME_DIGITS], 16)
