"""The JobGraph's JSON schema, for tools that build graphs without our Python API."""

from __future__ import annotations

from typing import Any

from runtime.common.version import JOB_GRAPH_SCHEMA_VERSION
from runtime.jobgraph.graph import JobGraph


def job_graph_schema() -> dict[str, Any]:
    """The JSON schema of this schema version. What a schema cannot say is in `runtime.jobgraph.validate`."""
    schema = JobGraph.model_json_schema(mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:flinklike:job-graph:{JOB_GRAPH_SCHEMA_VERSION}",
        **schema,
    }
