"""The form of delegation tokens in files, command output and messages: bounded, and never quoted in errors (R51)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from runtime.common.errors import InvalidInputError
from runtime.gateways.delegation_tokens import ObtainedTokens

CONTENT_BYTES_MAX = 64 * 1024
VALUES_MAX = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,254}\Z")
_MILLIS_MAX = 253_402_300_799_000  # the end of the year 9999
_EXAMPLE = '{"values": {"token": "..."}, "expires_at": "2030-01-31T12:00:00Z"}'


def read_tokens(data: bytes, *, must_end: bool) -> ObtainedTokens:
    """From `{"values": {name: text}, "expires_at": time}`: ISO 8601 with its offset, or seconds since the epoch.

    Raises InvalidInputError, which shows nothing of the values.
    """
    if len(data) > CONTENT_BYTES_MAX:
        raise _error(f"it has more than {CONTENT_BYTES_MAX} bytes")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise _error("it is not JSON") from None  # the error would quote it
    if not isinstance(content, dict):
        raise _error("it is not a JSON object")
    if unknown := sorted(set(content) - {"values", "expires_at"}):
        raise _error(f"it has {len(unknown)} other fields than values and expires_at")
    values = checked_values(content.get("values"))
    if must_end and "expires_at" not in content:
        raise _error("it has no expires_at, by which the next ones would be obtained in time")
    return ObtainedTokens(values, _end(content["expires_at"]) if "expires_at" in content else 0)


def checked_values(values: Any) -> Mapping[str, str]:
    """The values as they are. Raises InvalidInputError unless they are names and texts within bounds."""
    if not isinstance(values, Mapping) or not values or len(values) > VALUES_MAX:
        raise _error(f"its values are not an object of 1 to {VALUES_MAX} texts")
    for name, value in values.items():
        if not isinstance(name, str) or not _NAME.match(name):
            raise _error("the name of a value has other characters than letters, digits, '_', '.' and '-'")
        if not isinstance(value, str):
            raise _error(f"the value {name} is not text")
    if len(encode_values(values)) > CONTENT_BYTES_MAX:
        raise _error(f"its values have more than {CONTENT_BYTES_MAX} bytes")
    return dict(values)


def encode_values(values: Mapping[str, str]) -> bytes:
    """The values' form in messages and files of tasks."""
    return json.dumps(dict(values), separators=(",", ":")).encode()


def decode_values(content: bytes) -> Mapping[str, str]:
    """The inverse of `encode_values`. Raises InvalidInputError."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        raise _error("it is not JSON") from None
    return checked_values(values)


def _end(said: Any) -> int:
    millis = -1.0
    if isinstance(said, int | float) and not isinstance(said, bool):
        millis = said * 1000
    elif isinstance(said, str):
        try:
            time = datetime.fromisoformat(said)
        except ValueError:
            raise _error("its expires_at is no time") from None
        if time.tzinfo is None:
            raise _error("its expires_at does not say its offset (Z, +01:00)")
        millis = time.astimezone(UTC).timestamp() * 1000
    if not 0 < millis <= _MILLIS_MAX:  # also not a number
        raise _error("its expires_at is no time")
    return int(millis)


def _error(why: str) -> InvalidInputError:
    return InvalidInputError(f"what should be tokens cannot be used: {why}; it has to be {_EXAMPLE}")
