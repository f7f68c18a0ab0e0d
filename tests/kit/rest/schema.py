"""Compares an answer with the type that is documented for it: every field, nothing more, and no empty examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

_MAY_BE_EMPTY = {"garbageCollectors", "concurrentExceptions", "unknown", "missing"}


def check_answer(described: Any, body: Any) -> None:
    """Raises ValidationError or AssertionError. pydantic leaves out what a type does not describe."""
    assert TypeAdapter(described).validate_python(body, strict=True) == body, "has fields that are not described"
    empty = [name for name, items in _lists(body, "body") if not items and name not in _MAY_BE_EMPTY]
    assert not empty, f"nothing is compared: {empty} are empty"


def _lists(value: Any, name: str) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _lists(item, key)
    elif isinstance(value, list):
        yield name, value
        for item in value:
            yield from _lists(item, name)
