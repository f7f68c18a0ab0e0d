"""Errors after which a retry is no use, in the form that Airflow does not retry. They keep their types for rules."""

from __future__ import annotations

from typing import Any, Protocol

from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import AirflowFailException

from airflow_flinklike.exceptions import (
    FlinklikeClientError,
    JobFailedError,
    JobRefusedError,
    PipelineError,
    ResultTooLargeError,
    SourceMissingError,
)


class FinalPipelineError(PipelineError, AirflowFailException):
    """The job is described wrongly, and will be when it is built again."""


class FinalJobRefusedError(JobRefusedError, AirflowFailException):
    """The cluster will never take this job."""


class FinalJobFailedError(JobFailedError, AirflowFailException):
    """The job FAILED, and would fail again in the same way."""


class FinalResultTooLargeError(ResultTooLargeError, AirflowFailException):
    """The job's value does not fit, and a retry would find the same one."""


class _RetryPolicy(Protocol):
    def evaluate(self, *, exception: BaseException, try_number: int, max_tries: int, context: Any) -> Any: ...


def final_form(error: FlinklikeClientError) -> FlinklikeClientError | None:
    """The same error for Airflow not to retry; None when a retry may help."""
    if isinstance(error, AirflowFailException):
        return None
    if isinstance(error, PipelineError) and not isinstance(error, SourceMissingError):
        return FinalPipelineError(str(error), error.problems)
    if isinstance(error, JobRefusedError):
        return FinalJobRefusedError(str(error), error.problems)
    # What the cluster could not go on with (an exclusive task whose TaskManager was lost) may go well next time.
    if isinstance(error, JobFailedError) and not error.is_recoverable and error.kind != "SYSTEM":
        return FinalJobFailedError(error.job_id, error.failure)
    if isinstance(error, ResultTooLargeError):
        return FinalResultTooLargeError(error.job_id, error.size_bytes, error.limit)
    return None


def is_ruled(error: BaseException, policy: _RetryPolicy | None, context: Any) -> bool:
    """Whether the task's own `retry_policy` has a rule for it. Airflow does not ask it about errors in final form."""
    if policy is None:
        return False
    instance = context["ti"]
    decision = policy.evaluate(
        exception=error,
        try_number=int(getattr(instance, "try_number", 1) or 1),
        max_tries=int(getattr(instance, "max_tries", 0) or 0),
        context=context,
    )
    return decision.action is not RetryAction.DEFAULT
