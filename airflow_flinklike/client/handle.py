"""JobHandle: a submitted job, as `Program.submit` returns it."""

from __future__ import annotations

from typing import Any

from airflow_flinklike.client.model import JobExecutionResult, JobState, new_job_id
from airflow_flinklike.client.sync import FlinklikeClient
from airflow_flinklike.client.token import find_address, find_token
from airflow_flinklike.program import JobProgram
from runtime.common.ids import JobId, parse_job_id


class JobHandle:
    """One job of one cluster. Every call opens what it needs and leaves nothing behind."""

    def __init__(self, client: FlinklikeClient, job_id: JobId) -> None:
        self._client = client
        self.job_id = job_id

    def status(self) -> JobState:
        """What the job is doing now."""
        return self._client.status(self.job_id)

    def wait(self) -> JobExecutionResult:
        """Wait for the end, however it ends."""
        return self._client.wait_for_result(self.job_id)

    def result(self) -> Any:
        """Wait for the end; the job's value. Raises JobFailedError or JobCanceledError."""
        return self.wait().value_or_raise()

    def cancel(self) -> None:
        """Ask for cancellation."""
        self._client.cancel(self.job_id)


def submit_program(
    program: JobProgram,
    *,
    address: str | None = None,
    token: str | None = None,
    token_file: str | None = None,
    job_id: str | None = None,
) -> JobHandle:
    """Submit a built program. `address` may list several, separated by commas; the default is the local cluster."""
    client = FlinklikeClient((address or find_address()).split(","), token or find_token(token_file=token_file))
    chosen = parse_job_id(job_id) if job_id else new_job_id()
    client.submit(program.graph, job_id=chosen, contents=program.uploads, client="airflow_flinklike")
    return JobHandle(client, chosen)
