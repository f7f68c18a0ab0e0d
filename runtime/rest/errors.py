"""Errors as HTTP: one table of status codes, and Flink's body `{"errors": [...]}`."""

from __future__ import annotations

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from runtime.common.errors import (
    BackpressureError,
    BugError,
    ConflictError,
    FlinklikeError,
    ForbiddenError,
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
from runtime.rest.answers import JsonAnswer

STATUS: dict[type[FlinklikeError], int] = {
    InvalidInputError: 400,
    UnauthenticatedError: 401,
    ForbiddenError: 403,
    NotFoundError: 404,
    ConflictError: 409,
    MessageTooLargeError: 413,
    BackpressureError: 429,
    StaleTokenError: 503,
    UnavailableError: 503,
    OutcomeUnknownError: 503,
    StorageExhaustedError: 507,
    RetryableError: 503,
    PermanentError: 500,
    BugError: 500,
    FlinklikeError: 500,
}


def status_of(error: FlinklikeError) -> int:
    """The HTTP status of an error: that of the nearest class in the table."""
    return next(STATUS[cls] for cls in type(error).__mro__ if cls in STATUS)


def error_response(status: int, *sentences: str, headers: dict[str, str] | None = None) -> JsonAnswer:
    """Flink's error body."""
    return JsonAnswer({"errors": list(sentences)}, status_code=status, headers=headers)


async def on_flinklike_error(_: Request, error: Exception) -> Response:
    """Handler for everything we raise on purpose."""
    assert isinstance(error, FlinklikeError)
    sentences = error.problems if isinstance(error, InvalidInputError) else (str(error),)
    headers: dict[str, str] = {}
    if isinstance(error, BackpressureError):
        headers["retry-after"] = f"{max(1, round(error.retry_after))}"
    if isinstance(error, UnauthenticatedError):
        headers["www-authenticate"] = "Bearer"
    return error_response(status_of(error), *sentences, headers=headers)


async def on_invalid_request(_: Request, error: Exception) -> Response:
    """Path or query parameters that do not parse: all of them in one answer."""
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}" for item in error.errors()]
    return error_response(400, *problems)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Unknown paths and methods, as Flink words them (404 for both)."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return error_response(404, f"Unable to load requested file {request.url.path}.")
    if error.status_code == 405:
        return error_response(404, f"Not found: {request.url.path}")
    return error_response(error.status_code, str(error.detail))


async def on_unexpected_error(_: Request, error: Exception) -> Response:
    """A bug in a handler: 500 with the class only; the log has the rest."""
    return error_response(500, "Internal server error.", f"{type(error).__name__}: see the JobManager's log")
