"""The errors of the client side. They have one root, and the class says whether a retry can help.

Retry rules (Airflow's `retry_policy`) may name these classes: JobFailedError, JobCanceledError, JobRefusedError,
ClusterUnavailableError, JobNotFoundError, WorkerStoppedError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.common.errors import InvalidInputError
from runtime.common.failure_words import with_class
from runtime.common.printable import printable


class FlinklikeClientError(Exception):
    """Root of all errors of the client side."""


class PipelineError(FlinklikeClientError, InvalidInputError):
    """A pipeline or job is described wrongly. Raised while the job is built, before anything is sent.

    `problems` lists everything that is wrong.
    """


class SourceMissingError(PipelineError):
    """A file or module that the job names does not exist or cannot be read. A later try may find it."""


class UnpicklableError(PipelineError):
    """A function cannot be pickled. The message names the object that prevents it."""


class LocalClusterError(FlinklikeClientError):
    """`run_local()` could not start its cluster."""


class ClusterUnavailableError(FlinklikeClientError):
    """No JobManager answered in time, or no JobManager leads. The job may be in order.

    `is_answered`: one has answered that it cannot do yet what it was asked for.
    """

    def __init__(self, message: str, *, is_answered: bool = False) -> None:
        super().__init__(message)
        self.is_answered = is_answered


class ForeignAnswerError(ClusterUnavailableError):
    """The server that answers is not a JobManager, or one of an unknown release. Nothing is known about the job."""


class HandshakeRefusedError(ClusterUnavailableError):
    """No JobManager completes the TLS handshake with this client: certificates or addresses are wrong."""


class AuthenticationError(FlinklikeClientError):
    """The cluster refuses the token or the certificate, or the client has none that it could show."""


class JobRefusedError(FlinklikeClientError):
    """The cluster will never accept this job. `problems` lists everything that is wrong with it."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class JobNotFoundError(FlinklikeClientError):
    """The cluster does not know this job, or has forgotten it."""


class JobConflictError(FlinklikeClientError):
    """Another program has this job id, or the job has ended in another way than the call wants."""


class SavepointFailedError(FlinklikeClientError):
    """There is no savepoint. The job goes on, also where it was to stop with it, unless it has ended by itself."""

    def __init__(self, job_id: str, cause: str) -> None:
        self.job_id = job_id
        self.cause = cause
        super().__init__(f"{printable(cause)}\n(no savepoint of job {job_id})")

    def __reduce__(self) -> tuple[type[SavepointFailedError], tuple[str, str]]:
        """Let it be pickled."""
        return type(self), (self.job_id, self.cause)


class JobFailedError(FlinklikeClientError):
    """The job FAILED. The message starts with the root cause; `failure` is the failure-cause of Flink's REST API."""

    def __init__(self, job_id: str, failure: Mapping[str, Any]) -> None:
        self.job_id = job_id
        self.failure = dict(failure)
        super().__init__(f"{printable(self.root_cause)}\n(job {job_id} FAILED)")

    def __reduce__(self) -> tuple[type[JobFailedError], tuple[str, dict[str, Any]]]:
        return type(self), (self.job_id, self.failure)

    @property
    def root_cause(self) -> str:
        """`ClassName: message` of the error that made the job fail. `failure` has the class with its module."""
        message = self.failure.get("message") or self.failure.get("stack-trace") or "no cause was reported"
        return with_class(str(self.failure.get("class", "unknown error")), str(message))

    @property
    def stack_trace(self) -> str:
        """The stack trace as the failed process wrote it, "" without one."""
        return str(self.failure.get("stack-trace", ""))

    @property
    def kind(self) -> str:
        """USER, SYSTEM or RESOURCE."""
        return str(self.failure.get("kind", ""))

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the cluster's failure enrichers, and `kind`."""
        given = self.failure.get("failure-labels")
        labels = {str(key): str(value) for key, value in given.items()} if isinstance(given, Mapping) else {}
        return {"kind": self.kind, **labels}

    @property
    def is_recoverable(self) -> bool:
        """False when the same job would fail again: code that cannot be loaded, NonRecoverableError, ..."""
        return bool(self.failure.get("recoverable", True))


class WorkerStoppedError(FlinklikeClientError):
    """The Airflow worker stops while the job runs on. The next try of the task adopts the job."""


class ResultTooLargeError(FlinklikeClientError):
    """The job is FINISHED, and its value is larger than `xcom_limit`. Sizes are in bytes of JSON."""

    def __init__(self, job_id: str, size_bytes: int, limit: int) -> None:
        self.job_id, self.size_bytes, self.limit = job_id, size_bytes, limit
        super().__init__(
            f"the value of job {job_id} has {size_bytes} bytes, and xcom_limit is {limit}: have the job write it with "
            "ctx.output_path() and return the path, raise xcom_limit, or set do_xcom_push=False"
        )

    def __reduce__(self) -> tuple[type[ResultTooLargeError], tuple[str, int, int]]:
        return type(self), (self.job_id, self.size_bytes, self.limit)


class JobCanceledError(FlinklikeClientError):
    """The job was CANCELED. `reason` says why the cluster canceled it; "" when a user did."""

    def __init__(self, job_id: str, reason: str = "") -> None:
        super().__init__(f"job {job_id} was canceled" + (f": {printable(reason)}" if reason else ""))
        self.job_id = job_id
        self.reason = reason

    def __reduce__(self) -> tuple[type[JobCanceledError], tuple[str, str]]:
        return type(self), (self.job_id, self.reason)
