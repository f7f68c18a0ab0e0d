"""The root of all our errors and the three answers a caller can give to one.

Retryability is the class, never a test on the text. A message says what we were doing, with identifiers, in
lower case and without the cause's text; the cause travels by `from`.
"""

from __future__ import annotations


class FlinklikeError(Exception):
    """Root of every error this system raises on purpose."""


class RetryableError(FlinklikeError):
    """Try again later, with the same request id: nothing is known to be wrong with the request."""


class PermanentError(FlinklikeError):
    """Tell the caller: the same request will fail again."""


class BugError(FlinklikeError):
    """Our own mistake. Ends the endpoint in which it happens."""


class InvalidInputError(PermanentError):
    """Input from outside that cannot be used. `problems` lists everything that is wrong with it at once."""

    def __init__(self, message: str, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems or (message,)


class NotFoundError(PermanentError):
    """The named thing does not exist (any more)."""


class ConflictError(PermanentError):
    """The request contradicts what is stored: same job id with another digest, cancel of a finished job."""


class StaleTokenError(PermanentError):
    """R1: the call carries a term that is over, or was meant for another incarnation or cluster."""


class UnauthenticatedError(PermanentError):
    """The call does not carry the cluster's token."""


class ForbiddenError(PermanentError):
    """The principal is known and may not do this (R48). The message names the role that may."""


class MessageTooLargeError(PermanentError):
    """A message above the transport's limit was refused before it was sent."""


class UnavailableError(RetryableError):
    """The peer cannot be reached, is starting, or is not the leader. The call was not executed."""


class OutcomeUnknownError(RetryableError):
    """The call may or may not have been executed (R2): decide nothing on it, repeat it identically."""


class BackpressureError(RetryableError):
    """A bounded queue is full. Come back after `retry_after` seconds."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StorageExhaustedError(RetryableError):
    """A store is full: etcd at its quota, or the storage directory without space (REST 507)."""


class NonRecoverableError(Exception):
    """For user code to raise: the task would fail again in the same way, so the job fails without a restart."""
