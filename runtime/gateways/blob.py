"""The BlobServer, as clients in other processes see it. Bytes travel as a stream of chunks, never as one message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BlobKey:
    """One stored object (R19): the content's sha256 plus the upload that brought it. Immutable."""

    sha256: str
    upload_id: str

    def __str__(self) -> str:
        return f"{self.sha256}-{self.upload_id}"


class BlobGateway(Protocol):
    """Reads of stored objects."""

    def download(self, key: BlobKey, /) -> AsyncIterator[bytes]:
        """The object's bytes in chunks. NotFoundError; the reader verifies the digest."""
