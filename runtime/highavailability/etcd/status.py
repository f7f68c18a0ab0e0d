"""The meaning of a failed call: one table from gRPC status and etcd's messages to our errors.

For a write the table decides whether it was surely not executed, or whether its outcome is unknown (R2).
"""

from __future__ import annotations

import re
from enum import Enum

import grpc

from runtime.common.errors import (
    FlinklikeError,
    InvalidInputError,
    MessageTooLargeError,
    OutcomeUnknownError,
    StorageExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)
from runtime.highavailability.kv.key_value_store import CompactedError, LeaseNotFoundError

_RELOGIN = ("invalid auth token", "revision of auth store is old", "user name is empty")

# Messages of requests that were not proposed, or did not leave this process.
_NOT_EXECUTED = (
    "failed to connect",
    "Connection refused",
    "no leader",
    "too many requests",
    "not capable",
    "name resolver",
    "DNS resolution failed",
    "Ssl handshake failed",
)

_DETAILS_MAX = 300

_COMPACTED = re.compile(r"required revision has been compacted")


class Verdict(Enum):
    """The next step after a failed try."""

    RELOGIN = "RELOGIN"
    NEXT_ENDPOINT = "NEXT_ENDPOINT"
    UNKNOWN = "UNKNOWN"
    FINAL = "FINAL"


def needs_login(text: str) -> bool:
    """True for etcd's messages about a token that is missing, expired, or older than a change of rights."""
    return any(words in text for words in _RELOGIN)


def judge(error: grpc.aio.AioRpcError) -> Verdict:
    """The meaning of a failed try. FINAL: etcd has answered, and another try would give the same answer."""
    code, details = error.code(), error.details() or ""
    if needs_login(details):
        return Verdict.RELOGIN
    if any(words in details for words in _NOT_EXECUTED):
        return Verdict.NEXT_ENDPOINT
    if code in _UNKNOWN_CODES:
        return Verdict.UNKNOWN
    return Verdict.FINAL


_UNKNOWN_CODES = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.ABORTED,
    }
)


def translate(error: grpc.aio.AioRpcError, what: str, *, is_write: bool) -> FlinklikeError:
    """The error to raise, without another try. The caller chains the cause."""
    details = error.details() or ""
    match judge(error):
        case Verdict.RELOGIN:
            return UnauthenticatedError(f"{what}: etcd refuses the login")
        case Verdict.NEXT_ENDPOINT:
            return UnavailableError(f"{what}: no etcd endpoint is reachable{_said(details)}")
        case Verdict.UNKNOWN if is_write:
            return OutcomeUnknownError(f"{what}: etcd's answer was lost{_said(details)}")
        case Verdict.UNKNOWN:
            return UnavailableError(f"{what}: etcd does not answer{_said(details)}")
        case Verdict.FINAL:
            return _final(error.code(), details, what)


def _said(details: str) -> str:
    return f" ({details[:_DETAILS_MAX]})" if details else ""


def _final(code: grpc.StatusCode, details: str, what: str) -> FlinklikeError:
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        if "database space exceeded" in details:
            return StorageExhaustedError(f"{what}: etcd is at its quota")
        return MessageTooLargeError(f"{what}: {details}")
    if code is grpc.StatusCode.OUT_OF_RANGE and _COMPACTED.search(details):
        return CompactedError(f"{what}: the revision is compacted", compact_revision=0)
    if code is grpc.StatusCode.NOT_FOUND and "lease" in details:
        return LeaseNotFoundError(f"{what}: the lease has ended")
    if code in {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED} or "authentication" in details:
        return UnauthenticatedError(f"{what}: {details}")
    return InvalidInputError(f"{what}: {details}")
