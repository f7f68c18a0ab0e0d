"""Keys of the objects in the blob store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlobKey:
    """One stored object (R19): the content's sha256 plus the upload that brought it. Immutable."""

    sha256: str
    upload_id: str

    def __str__(self) -> str:
        return f"{self.sha256}-{self.upload_id}"
