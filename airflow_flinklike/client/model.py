"""The values that the client returns."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_flinklike.exceptions import JobCanceledError, JobFailedError
from runtime.common.ids import JobId
from runtime.common.states import JobStatus


def new_job_id() -> JobId:
    """A new job id. The client chooses the id, so that a submit can be repeated."""
    return JobId(secrets.token_hex(16))


@dataclass(frozen=True, slots=True)
class SubmittedJob:
    """A job that the cluster has made durable. `is_new` is False when an earlier submit has done so.

    `warnings`: what looks like a slip to the cluster, in one sentence each.
    """

    job_id: JobId
    is_new: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """Where a job waits for slots: its queue, and its priority there, the highest first.

    Without a `queue` it is the one of `team`, if the principal may use that, else that of the principal.
    """

    queue: str = ""
    priority: int = 0
    team: str = ""


NO_PLACE = QueuePlace()
"""The queue of the principal."""


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a job. A long poll continues from `last_modification`.

    `is_own` is False when another principal has submitted the job.
    """

    job_id: JobId
    status: JobStatus
    last_modification: int
    pending_reason: str
    is_own: bool = True


@dataclass(frozen=True, slots=True)
class JobNews:
    """The answer of a poll for many jobs: those that have changed or ended, and those that the cluster does not know.

    Both are empty when the time of the poll was over, or another poll has replaced it.
    """

    changed: tuple[JobState, ...]
    unknown: frozenset[JobId]


@dataclass(frozen=True, slots=True)
class JobExecutionResult:
    """The end of a job. `value` is the result of a FINISHED job, `failure` Flink's failure-cause of a FAILED one.

    A CANCELED job has a failure-cause when the cluster cancelled it by itself. `accumulators`: by name what its
    finished attempts have counted: an int of `ctx.counter`, else `{"count", "sum", "min", "max"}`.
    """

    job_id: JobId
    status: JobStatus
    value: Any
    failure: Mapping[str, Any]
    net_runtime_millis: int
    accumulators: Mapping[str, Any] = field(default_factory=dict)

    def value_or_raise(self) -> Any:
        """The value of a FINISHED job. Raises JobFailedError or JobCanceledError."""
        if self.status is JobStatus.FAILED:
            raise JobFailedError(self.job_id, self.failure)
        if self.status is JobStatus.CANCELED:
            raise JobCanceledError(self.job_id, str(self.failure.get("message", "")))
        return self.value


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Bytes of the log of an attempt. The next piece begins at `next_offset`."""

    data: bytes
    next_offset: int
    size_bytes: int
    is_truncated: bool
