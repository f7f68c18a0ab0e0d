"""JobHandle: a submitted job, as `Program.submit` returns it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.client import (
    FlinklikeClient,
    JobExecutionResult,
    JobState,
    find_address,
    find_credential,
    find_tls,
    local_ca,
    new_job_id,
)
from airflow_flinklike.client.retrying import needs_tls
from runtime.common.ids import JobId, parse_job_id


class JobHandle:
    """One job on one cluster. Losing the handle loses nothing: the job id is all there is to it."""

    def __init__(self, client: FlinklikeClient, job_id: JobId) -> None:
        self._client = client
        self.job_id = job_id

    def __repr__(self) -> str:
        return f"JobHandle({self.job_id!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the job goes on."""
        self._client.close()

    def status(self) -> JobState:
        """The state now, and why the job waits when it does."""
        return self._client.status(self.job_id)

    def wait(self) -> JobExecutionResult:
        """Wait for the end, however it ends."""
        return self._client.wait_for_result(self.job_id)

    def result(self) -> Any:
        """Wait for the end and return the job's value. Raises JobFailedError or JobCanceledError."""
        return self.wait().value_or_raise()

    def cancel(self) -> None:
        """Ask for cancellation. Idempotent."""
        self._client.cancel(self.job_id)

    def details(self) -> Mapping[str, Any]:
        """Vertices, their subtasks, progress and metrics, as `GET /jobs/:id` answers."""
        details: Mapping[str, Any] = self._client.get(f"/jobs/{self.job_id}")
        return details


def submit_program(
    program: JobProgram,
    address: str | None,
    *,
    job_id: str | None = None,
    token: str | None = None,
    token_file: str | None = None,
) -> JobHandle:
    """Upload what the cluster lacks and submit. Raises JobRefusedError, ClusterUnavailableError, ..."""
    chosen = new_job_id() if job_id is None else parse_job_id(job_id)
    addresses, tls = (address or find_address()).split(","), find_tls(local_ca=local_ca())
    certificate = tls.cert if needs_tls(addresses) else ""
    found = token if token is not None else find_credential(token_file=token_file, certificate=certificate)
    client = FlinklikeClient(addresses, found, tls=tls)
    try:
        client.submit(program.graph, job_id=chosen, contents=program.uploads, client="python")
    except BaseException:
        client.close()
        raise
    handle = JobHandle(client, chosen)
    weakref.finalize(handle, client.close)  # the client was made for this handle alone
    return handle
