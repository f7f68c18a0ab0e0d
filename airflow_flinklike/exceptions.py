"""What can go wrong, as users meet it. One root; the class says whether trying again can help.

Retry rules (Airflow's `retry_policy`) may name these classes: JobFailedError, JobCanceledError, JobRefusedError,
ClusterUnavailableError, JobNotFoundError, WorkerStoppedError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runtime.common.errors import InvalidInputError
from runtime.common.printable import printable


class FlinklikeClientError(Exception):
    """Root of all errors of the client side."""


class PipelineError(FlinklikeClientError, InvalidInputError):
    """A pipeline or job was described wrongly; found while it was built, before anything was sent.

    `problems` lists everything that is wrong with it.
    """


class SourceMissingError(PipelineError):
    """A file or module that the job names is not there, or cannot be read: a later try may find it."""


class UnpicklableError(PipelineError):
    """A function cannot be sent to the cluster; the message names the object to blame."""


class LocalClusterError(FlinklikeClientError):
    """`run_local()` could not start its little cluster."""


class ClusterUnavailableError(FlinklikeClientError):
    """No JobManager answered in time, or none leads. Nothing is known to be wrong with the job."""


class ForeignAnswerError(ClusterUnavailableError):
    """What answers is no JobManager of a release that this client knows. Nothing is known of the job."""


class HandshakeRefusedError(ClusterUnavailableError):
    """Every JobManager is there, and none comes to TLS with this client: certificates or addresses are wrong."""


class AuthenticationError(FlinklikeClientError):
    """The cluster's token is missing or wrong."""


class JobRefusedError(FlinklikeClientError):
    """The cluster will never take this job. `problems` lists everything that is wrong with it."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class JobNotFoundError(FlinklikeClientError):
    """The cluster does not know this job (any more)."""


class JobConflictError(FlinklikeClientError):
    """The job id is taken by another program, or the job has ended otherwise."""


class JobFailedError(FlinklikeClientError):
    """The job FAILED. The message starts with the root cause; `failure` is Flink's failure-cause."""

    def __init__(self, job_id: str, failure: Mapping[str, Any]) -> None:
        self.job_id = job_id
        self.failure = dict(failure)
        super().__init__(f"{printable(self.root_cause)}\n(job {job_id} FAILED)")

    def __reduce__(self) -> tuple[type[JobFailedError], tuple[str, dict[str, Any]]]:
        return type(self), (self.job_id, self.failure)

    @property
    def root_cause(self) -> str:
        """`ClassName: message` of what failed first."""
        message = self.failure.get("message") or self.failure.get("stack-trace") or "no cause was reported"
        return f"{self.failure.get('class', 'unknown error')}: {message}"

    @property
    def stack_trace(self) -> str:
        """The full text, as the process that failed wrote it."""
        return str(self.failure.get("stack-trace", ""))

    @property
    def kind(self) -> str:
        """USER, SYSTEM or RESOURCE."""
        return str(self.failure.get("kind", ""))

    @property
    def labels(self) -> dict[str, str]:
        """What the cluster's failure enrichers say about it, and its kind."""
        given = self.failure.get("failure-labels")
        labels = {str(key): str(value) for key, value in given.items()} if isinstance(given, Mapping) else {}
        return {"kind": self.kind, **labels}

    @property
    def is_recoverable(self) -> bool:
        """False when the job would fail again in the same way: code that cannot be loaded, NonRecoverableError, ..."""
        return bool(self.failure.get("recoverable", True))


class WorkerStoppedError(FlinklikeClientError):
    """The worker of a task goes away while its job goes on; the next try adopts the job."""


class ResultTooLargeError(FlinklikeClientError):
    """The job has FINISHED with a value that is too large for an XCom."""

    def __init__(self, job_id: str, size_bytes: int, limit: int) -> None:
        self.job_id, self.size_bytes, self.limit = job_id, size_bytes, limit
        super().__init__(
            f"the value of job {job_id} has {size_bytes} bytes, and xcom_limit is {limit}: have the job write it with "
            "ctx.output_path() and return the path, raise xcom_limit, or set do_xcom_push=False"
        )

    def __reduce__(self) -> tuple[type[ResultTooLargeError], tuple[str, int, int]]:
        return type(self), (self.job_id, self.size_bytes, self.limit)


class JobCanceledError(FlinklikeClientError):
    """The job was CANCELED. `reason`: why the cluster did it, "" when a person did."""

    def __init__(self, job_id: str, reason: str = "") -> None:
        super().__init__(f"job {job_id} was canceled" + (f": {printable(reason)}" if reason else ""))
        self.job_id = job_id
        self.reason = reason

    def __reduce__(self) -> tuple[type[JobCanceledError], tuple[str, str]]:
        return type(self), (self.job_id, self.reason)
