"""Bounds of the parallelism of a running job, as calls of the client. A call may be repeated."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_flinklike.client.protocol import Operation, ask, json_request
from runtime.common.ids import JobId


def set_bounds(job_id: JobId, bounds: Mapping[str, tuple[int, int]]) -> Operation[None]:
    """Give vertices, by their ids, a lower and an upper bound. Durable when this returns. Raises JobConflictError."""
    document = {
        vertex_id: {"parallelism": {"lowerBound": lower, "upperBound": upper}}
        for vertex_id, (lower, upper) in bounds.items()
    }
    yield from ask(json_request("PUT", f"/jobs/{job_id}/resource-requirements", document))
