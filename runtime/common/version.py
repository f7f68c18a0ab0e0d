"""The version of this distribution and of the schemas it speaks."""

from __future__ import annotations

VERSION = "0.1.0"
"""Version of the distribution; `pyproject.toml` reads it from here."""

PROTOCOL_VERSION = 2
"""Version of the gRPC messages. A field or a message that an older peer may ignore does not raise it; a change without
which a peer could not work does."""

OLDEST_PROTOCOL_VERSION = 2
"""The oldest protocol version that this release speaks. Peers with an older one are refused at registration."""


def speaks(protocol_version: int) -> bool:
    """True if a process with that version can work with this release: an older one may, a newer one may not."""
    return OLDEST_PROTOCOL_VERSION <= protocol_version <= PROTOCOL_VERSION


JOB_GRAPH_SCHEMA_VERSION = 1
"""Version of the JobGraph's JSON schema."""
