"""JobHandle: the submitted job that `Program.submit` returns."""

from __future__ import annotations

import logging
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
from airflow_flinklike.client.model import NO_PLACE, QueuePlace
from airflow_flinklike.client.retrying import needs_tls
from runtime.common.ids import JobId, parse_job_id

logger = logging.getLogger(__name__)


class JobHandle:
    """One job on one cluster. The job id is its only state, so another handle can replace a lost one."""

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
        """Close the connection. The job runs on."""
        self._client.close()

    def status(self) -> JobState:
        """The current state, with the reason when the job waits."""
        return self._client.status(self.job_id)

    def wait(self) -> JobExecutionResult:
        """Wait for the end of the job, also for a failure."""
        return self._client.wait_for_result(self.job_id)

    def result(self) -> Any:
        """Wait for the end and return the job's value. Raises JobFailedError or JobCanceledError."""
        return self.wait().value_or_raise()

    def cancel(self) -> None:
        """Ask the cluster to cancel the job. Idempotent. Raises JobConflictError when the job has ended otherwise."""
        self._client.cancel(self.job_id)

    def details(self) -> Mapping[str, Any]:
        """The answer of `GET /jobs/:id`: vertices with their subtasks, progress and metrics."""
        details: Mapping[str, Any] = self._client.get(f"/jobs/{self.job_id}")
        return details


def submit_program(
    program: JobProgram,
    address: str | None,
    *,
    job_id: str | None = None,
    token: str | None = None,
    token_file: str | None = None,
    place: QueuePlace = NO_PLACE,
) -> JobHandle:
    """Upload the content that the cluster lacks, and submit. Raises JobRefusedError, ClusterUnavailableError, ..."""
    chosen = new_job_id() if job_id is None else parse_job_id(job_id)
    addresses, tls = (address or find_address()).split(","), find_tls(local_ca=local_ca())
    certificate = tls.cert if needs_tls(addresses) else ""
    found = token if token is not None else find_credential(token_file=token_file, certificate=certificate)
    client = FlinklikeClient(addresses, found, tls=tls)
    try:
        submitted = client.submit(program.graph, job_id=chosen, contents=program.uploads, client="python", place=place)
        for warning in submitted.warnings:
            logger.warning("%s", warning)
    except BaseException:
        client.close()
        raise
    handle = JobHandle(client, chosen)
    weakref.finalize(handle, client.close)  # only this handle uses the client
    return handle
