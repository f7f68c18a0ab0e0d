"""The stored form of records: JSON `{"v": 1, "record": {...}}`, bytes as base64, by pydantic TypeAdapters.

Fields that a newer release has added are ignored by an older one. A record that cannot be read raises
UnreadableRecordError, which names its key; callers fail the job or process of the record, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from pydantic import ConfigDict, PydanticSchemaGenerationError, TypeAdapter, ValidationError

from runtime.common.errors import PermanentError
from runtime.common.json_text import parse_json

RecordT = TypeVar("RecordT")

RECORD_VERSION = 1


class UnreadableRecordError(PermanentError):
    """The value of `key` is not a record that this version can read. `reason` says why, without the key."""

    def __init__(self, message: str, *, key: str, reason: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.reason = reason or message


_REFUSED = b"\xffrefused: "
"""Prefix of the value that takes the place of a refused one: neither JSON nor text."""


def refused(reason: str) -> bytes:
    """A value that no reader can decode, with the reason for its error (R38)."""
    return _REFUSED + reason.encode()


@dataclass(frozen=True, slots=True)
class _Envelope(Generic[RecordT]):
    # Nested plain dataclasses inherit this: their bytes travel as base64 too.
    __pydantic_config__ = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    v: int
    record: RecordT


def encode_record(record: Any) -> bytes:
    """The record as JSON. Equal records give equal bytes."""
    return _adapter(type(record)).dump_json(_Envelope(RECORD_VERSION, record))


def decode_record(record_type: type[RecordT], data: bytes, *, key: str) -> RecordT:
    """The inverse of `encode_record`. Raises UnreadableRecordError."""
    try:
        envelope = cast("_Envelope[RecordT]", _adapter(record_type).validate_json(data))
    except ValidationError as error:
        raise _unreadable(record_type, data, key=key) from error
    if envelope.v != RECORD_VERSION:
        raise _unreadable(record_type, data, key=key)
    return envelope.record


def _adapter(record_type: type[Any]) -> TypeAdapter[Any]:
    found = _ADAPTERS.get(record_type)
    if found is None:
        try:
            found = TypeAdapter(_Envelope[record_type])  # type: ignore[valid-type]  # a type made at run time
        except PydanticSchemaGenerationError as error:
            message = f"{record_type.__name__} is not a record"
            raise TypeError(message) from error
        _ADAPTERS[record_type] = found
    return found


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}


def _unreadable(record_type: type[Any], data: bytes, *, key: str) -> UnreadableRecordError:
    if data.startswith(_REFUSED):
        shown = key if key.isascii() and key.isprintable() else ascii(key)
        reason = data.removeprefix(_REFUSED).decode()
        return UnreadableRecordError(f"{shown} is refused: {reason}", key=key, reason=reason)
    reason = _version_of(data)
    message = f"{key} does not hold a readable {record_type.__name__} (version {RECORD_VERSION}): {reason}"
    return UnreadableRecordError(message, key=key, reason=reason)


def _version_of(data: bytes) -> str:
    try:
        document = parse_json(data)
    except ValueError:
        return f"{len(data)} bytes that are no JSON"
    if not isinstance(document, dict) or "v" not in document:
        return "no version in it"
    return f"it has version {repr(document['v'])[:80]}"
