"""Bodies of /blobs."""

from __future__ import annotations

from typing_extensions import TypedDict


class MissingBlobs(TypedDict):
    """The sha256 of files that must be uploaded, and the keys of the others."""

    missing: list[str]
    keys: dict[str, str]


class StoredBlob(TypedDict):
    """The key by which a job refers to an uploaded file."""

    key: str
