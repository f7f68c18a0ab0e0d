"""`run_local()`: a job on a little cluster of this process's own, for trying things out."""

from __future__ import annotations

from typing import Any

from airflow_flinklike.exceptions import LocalClusterError
from airflow_flinklike.program import JobProgram


def run_local(program: JobProgram, *, slots: int) -> Any:
    """Run `program` and return the job's value. Raises JobFailedError, LocalClusterError."""
    message = (
        f"job {program.graph.name!r} cannot run on {slots} local slots: this installation has no local cluster yet; "
        "start one with bin/start-cluster.sh and use submit()"
    )
    raise LocalClusterError(message)
