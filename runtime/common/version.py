"""The version of this distribution and of the schemas it speaks."""

from __future__ import annotations

VERSION = "0.1.0"
"""Version of the distribution; `pyproject.toml` reads it from here."""

PROTOCOL_VERSION = 2
"""Version of the gRPC messages. Raised only when a peer without the change could not do its part: a field or a message
that an older one may ignore does not raise it."""

OLDEST_PROTOCOL_VERSION = 2
"""The oldest one that this release still speaks. Peers of others are refused at registration."""


def speaks(protocol_version: int) -> bool:
    """True if a process of that protocol can work with this release: an older one, never a newer one."""
    return OLDEST_PROTOCOL_VERSION <= protocol_version <= PROTOCOL_VERSION


JOB_GRAPH_SCHEMA_VERSION = 1
"""Version of the JobGraph's JSON schema."""
