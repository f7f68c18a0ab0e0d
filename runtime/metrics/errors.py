"""The kind of an error, for labels: its class, so that their number is bounded."""

from __future__ import annotations

import asyncio

from runtime.common import errors

_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (errors.UnavailableError, "unavailable"),
    (errors.OutcomeUnknownError, "outcome_unknown"),
    (errors.BackpressureError, "backpressure"),
    (errors.StorageExhaustedError, "storage_exhausted"),
    (errors.StaleTokenError, "stale_token"),
    (errors.UnauthenticatedError, "unauthenticated"),
    (errors.ForbiddenError, "forbidden"),
    (errors.InvalidInputError, "invalid_input"),
    (errors.NotFoundError, "not_found"),
    (errors.ConflictError, "conflict"),
    (errors.MessageTooLargeError, "too_large"),
    (errors.PermanentError, "permanent"),
    (errors.RetryableError, "unavailable"),
    # Whoever asked does not wait any more.
    (asyncio.CancelledError, "outcome_unknown"),
    (TimeoutError, "outcome_unknown"),
)


def error_kind(error: BaseException) -> str:
    """One of `table.ERROR_KINDS`."""
    return next((kind for known, kind in _KINDS if isinstance(error, known)), "bug")
