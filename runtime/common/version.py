"""The version of this distribution and of the schemas it speaks."""

from __future__ import annotations

VERSION = "0.1.0"
"""Version of the distribution; `pyproject.toml` reads it from here."""

PROTOCOL_VERSION = 1
"""Version of the gRPC messages and durable records. Peers with another one are refused at registration."""

JOB_GRAPH_SCHEMA_VERSION = 1
"""Version of the JobGraph's JSON schema."""
