"""One table: our error classes <-> gRPC status, and the details that carry an error to its caller.

An error crosses by class: the caller catches what the endpoint raised. A class that the table does not have crosses
as its nearest ancestor that it has. A bug (BugError, or any exception that is not ours) crosses as
RemoteFailureError: it has ended the endpoint over there and must not end the one here.
"""

from __future__ import annotations

from collections.abc import Mapping

import grpc

from runtime.common.errors import (
    BackpressureError,
    BugError,
    ConflictError,
    FlinklikeError,
    InvalidInputError,
    MessageTooLargeError,
    NotFoundError,
    OutcomeUnknownError,
    PermanentError,
    RetryableError,
    StaleTokenError,
    StorageExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)
from runtime.rpc.frames import ErrorDetails

ERROR_KEY = "flinklike-error-bin"
_MESSAGE_SIZE_MAX = 2500
_PROBLEMS_SIZE_MAX = 2500
"""gRPC refuses metadata above 8 KiB by default, and base64 adds a third."""


class RemoteFailureError(PermanentError):
    """The peer failed by a mistake of its own while it handled the call; its log has the story."""


STATUS_OF_ERROR: Mapping[type[FlinklikeError], grpc.StatusCode] = {
    InvalidInputError: grpc.StatusCode.INVALID_ARGUMENT,
    NotFoundError: grpc.StatusCode.NOT_FOUND,
    ConflictError: grpc.StatusCode.ALREADY_EXISTS,
    StaleTokenError: grpc.StatusCode.FAILED_PRECONDITION,
    UnauthenticatedError: grpc.StatusCode.UNAUTHENTICATED,
    MessageTooLargeError: grpc.StatusCode.OUT_OF_RANGE,
    UnavailableError: grpc.StatusCode.UNAVAILABLE,
    OutcomeUnknownError: grpc.StatusCode.UNKNOWN,
    BackpressureError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    StorageExhaustedError: grpc.StatusCode.DATA_LOSS,
    RemoteFailureError: grpc.StatusCode.INTERNAL,
    RetryableError: grpc.StatusCode.ABORTED,
    PermanentError: grpc.StatusCode.PERMISSION_DENIED,
}
"""A one-to-one table: the status alone names the class, for peers that cannot read the details."""

_BY_NAME = {error_class.__name__: error_class for error_class in STATUS_OF_ERROR}
_BY_STATUS = {status: error_class for error_class, status in STATUS_OF_ERROR.items()}


def is_bug(error: BaseException) -> bool:
    """True for errors that are not raised on purpose for a caller: they must be logged where they happen."""
    return not isinstance(error, FlinklikeError) or isinstance(error, BugError)


def error_details(error: Exception) -> ErrorDetails:
    """The part of an error that is sent to the caller."""
    if is_bug(error):
        name, message = RemoteFailureError.__name__, f"the peer failed with {type(error).__name__}: {error}"
    else:
        ancestors = (base.__name__ for base in type(error).__mro__ if base.__name__ in _BY_NAME)
        name = next(ancestors, RemoteFailureError.__name__)
        message = str(error)
    retry_after = error.retry_after if isinstance(error, BackpressureError) else 0.0
    problems = _bounded(error.problems) if isinstance(error, InvalidInputError) else ()
    return ErrorDetails(name, _cut(message, _MESSAGE_SIZE_MAX), retry_after, problems)


def _cut(text: str, size_max: int) -> str:
    return text.encode("utf-8", "backslashreplace")[:size_max].decode("utf-8", "ignore")


def _bounded(problems: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    size = 0
    for problem in problems:
        size += len(problem.encode("utf-8", "backslashreplace")) + 4
        if size > _PROBLEMS_SIZE_MAX:
            kept.append(f"and {len(problems) - len(kept)} more problems")
            break
        kept.append(problem)
    return tuple(kept)


def status_of(details: ErrorDetails) -> grpc.StatusCode:
    """The gRPC status of an error that is sent to the caller."""
    error_class = _BY_NAME.get(details.class_name)
    return grpc.StatusCode.UNKNOWN if error_class is None else STATUS_OF_ERROR[error_class]


def error_from(details: ErrorDetails) -> FlinklikeError:
    """The error as the caller sees it. An unknown class name (a newer peer) is a RemoteFailureError."""
    error_class = _BY_NAME.get(details.class_name, RemoteFailureError)
    if error_class is BackpressureError:
        return BackpressureError(details.message, retry_after=details.retry_after)
    if error_class is InvalidInputError:
        return InvalidInputError(details.message, details.problems)
    return error_class(details.message)


_REASONS = {
    "Hostname Verification Check failed": "its certificate does not name this address: flinklike certs issue --host "
    "and --ip do",
    "certificate has expired": "its certificate has expired",
    "certificate is not yet valid": "its certificate is not valid yet: do the clocks differ?",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is of no CA in security.ssl.internal.ca",
    "WRONG_VERSION_NUMBER": "it speaks no TLS: security.ssl.internal.enabled has to be the same for all",
    "Socket closed": "it has ended the handshake: it does not accept our certificate (its CA, its dates), or "
    "the two differ in security.ssl.internal.enabled",
}
"""gRPC's messages about failed handshakes (R46), the special before the general."""


def _why_not_reached(text: str) -> str:
    """A sentence about a failed handshake that says what to do, "" for other failures."""
    return next((f" ({words})" for found, words in _REASONS.items() if found in text), "")


def error_without_details(what: str, status: grpc.StatusCode, text: str) -> FlinklikeError:
    """The error of a call that failed in the transport, or at a peer that is no process of the cluster.

    UnavailableError only when the call was surely not executed; otherwise the outcome is unknown (R2).
    """
    if status is grpc.StatusCode.UNAVAILABLE and "failed to connect" in text.lower():
        return UnavailableError(f"{what}: the peer cannot be reached{_why_not_reached(text)}")
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text.lower():
        return MessageTooLargeError(f"{what}: {text}")
    if status is grpc.StatusCode.UNIMPLEMENTED:
        return PermanentError(f"{what}: the peer does not know this call")
    error_class = _BY_STATUS.get(status, OutcomeUnknownError)
    is_certain = status in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT}
    if is_certain and error_class is not OutcomeUnknownError:
        return error_class(f"{what}: {text}")
    return OutcomeUnknownError(f"{what}: ended with {status.name} ({text[:200]})")
