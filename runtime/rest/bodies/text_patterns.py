"""Patterns of texts in requests, for /openapi.json. Parsers check by themselves, with clearer messages."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

JOB_ID = "^[0-9a-f]{32}$"
VERTEX_ID = JOB_ID
SHA256 = "^[0-9a-f]{64}$"
BLOB_KEY = "^[0-9a-f]{64}-[0-9a-z]{1,64}$"
PRINCIPAL_NAME = "^[A-Za-z0-9][A-Za-z0-9._@-]{0,126}$"
JAR_ID = "^[0-9a-f]{32}_[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$"
LOG_FILE_NAME = r"^[^/\x00]{1,255}$"
LOGGER = r"^(runtime|jobmaster_process)(\.[A-Za-z0-9_]+)*$"
NAMESPACE = r"^([a-z0-9][a-z0-9_-]{0,62}|\*)$"

JobIdText = Annotated[str, Field(json_schema_extra={"pattern": JOB_ID})]
"""A job's id that has not been looked at yet."""
