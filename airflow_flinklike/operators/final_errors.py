"""Final errors: errors after which a retry is useless, as subclasses of AirflowFailException, which ends retries."""

from __future__ import annotations

from typing import Any, Protocol

from airflow_flinklike.airflow_version import AirflowFailException
from airflow_flinklike.exceptions import (
    FlinklikeClientError,
    JobConflictError,
    JobFailedError,
    JobNotFoundError,
    JobRefusedError,
    PipelineError,
    ResultTooLargeError,
    SourceMissingError,
)


class FinalPipelineError(PipelineError, AirflowFailException):
    """The job is described wrongly, and a retry builds the same job."""


class FinalJobRefusedError(JobRefusedError, AirflowFailException):
    """The cluster will never accept this job."""


class FinalJobNotFoundError(JobNotFoundError, AirflowFailException):
    """The cluster does not know the job that the task is about."""


class FinalJobConflictError(JobConflictError, AirflowFailException):
    """The job has ended, so it will never be as the task wants it."""


class FinalJobFailedError(JobFailedError, AirflowFailException):
    """The job FAILED, and the same job would fail again."""


class FinalResultTooLargeError(ResultTooLargeError, AirflowFailException):
    """The job's value is too large, and a retry would get the same value."""


class _RetryPolicy(Protocol):
    def evaluate(self, *, exception: BaseException, try_number: int, max_tries: int, context: Any) -> Any: ...


def final_form(error: FlinklikeClientError) -> FlinklikeClientError | None:
    """The error as a final one; None when a retry may help."""
    if isinstance(error, AirflowFailException):
        return None
    if isinstance(error, PipelineError) and not isinstance(error, SourceMissingError):
        return FinalPipelineError(str(error), error.problems)
    if isinstance(error, JobRefusedError):
        return FinalJobRefusedError(str(error), error.problems)
    # A failure of kind SYSTEM (such as a lost TaskManager of an exclusive task) may not happen to a retry.
    if isinstance(error, JobFailedError) and not error.is_recoverable and error.kind != "SYSTEM":
        return FinalJobFailedError(error.job_id, error.failure)
    if isinstance(error, ResultTooLargeError):
        return FinalResultTooLargeError(error.job_id, error.size_bytes, error.limit)
    return None


def is_ruled(error: BaseException, policy: _RetryPolicy | None, context: Any) -> bool:
    """True if the task's `retry_policy` has a rule for the error. Airflow does not ask it about final errors."""
    if policy is None:
        return False
    from airflow.sdk.definitions.retry_policy import RetryAction  # noqa: PLC0415 - Airflow has policies from 3.3 on

    instance = context["ti"]
    decision = policy.evaluate(
        exception=error,
        try_number=int(getattr(instance, "try_number", 1) or 1),
        max_tries=int(getattr(instance, "max_tries", 0) or 0),
        context=context,
    )
    return decision.action is not RetryAction.DEFAULT
