"""What the client answers, as values."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_flinklike.exceptions import JobCanceledError, JobFailedError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus


def new_job_id() -> JobId:
    """A fresh job id: the client chooses it, so that a submit can be repeated."""
    return JobId(secrets.token_hex(16))


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job that the cluster has made durable. `is_new` is False when it was there already."""

    job_id: JobId
    is_new: bool


@dataclass(frozen=True, slots=True)
class JobState:
    """State of a job; `last_modification` is what a long poll continues from. `is_own`: not somebody else's job."""

    job_id: JobId
    status: JobStatus
    last_modification: int
    pending_reason: str
    is_own: bool = True


@dataclass(frozen=True, slots=True)
class JobNews:
    """What a poll for many jobs has found: those that have changed or ended, and those that the cluster does not know.

    Both are empty when its time was over, or when another poll has taken its place.
    """

    changed: tuple[JobState, ...]
    unknown: frozenset[JobId]


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """How a job ended. `value` is the job's result when FINISHED, `failure` Flink's failure-cause when FAILED.

    A CANCELED job has a failure-cause when it was the cluster that cancelled it.
    """

    job_id: JobId
    status: JobStatus
    value: Any
    failure: Mapping[str, Any]
    net_runtime_millis: int

    def value_or_raise(self) -> Any:
        """The value of a FINISHED job. Raises JobFailedError or JobCanceledError."""
        if self.status is JobStatus.FAILED:
            raise JobFailedError(self.job_id, self.failure)
        if self.status is JobStatus.CANCELED:
            raise JobCanceledError(self.job_id, str(self.failure.get("message", "")))
        return self.value


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of an attempt's log; ask again from `next_offset`."""

    data: bytes
    next_offset: int
    size_bytes: int
    is_truncated: bool
