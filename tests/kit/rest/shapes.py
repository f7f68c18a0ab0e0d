"""Compares a body with its shape: every field, every type, nothing that is not described, and no empty examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from runtime.rest.shapes import Keyed, Maybe, Shape

MAY_BE_EMPTY = ("garbageCollectors", "concurrentExceptions", "unknown", "missing")


def differences(shape: Shape, body: Any, where: str = "body") -> Iterator[str]:
    """One sentence each."""
    if isinstance(shape, Maybe):
        yield from differences(shape.value, body, where)
    elif isinstance(shape, Keyed):
        yield from _of_keyed(shape, body, where)
    elif isinstance(shape, dict):
        yield from _of_object(shape, body, where)
    elif isinstance(shape, list):
        yield from _of_list(shape, body, where)
    elif shape is not None and not _is(shape, body):
        yield f"{where}: {body!r} is no {shape.__name__}"


def _is(kind: type, value: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _of_keyed(shape: Keyed, body: Any, where: str) -> Iterator[str]:
    if not isinstance(body, dict):
        yield f"{where}: no object"
        return
    for key in shape.keys:
        if key not in body:
            yield f"{where}: {key} is missing"
    for key, value in body.items():
        yield from differences(shape.value, value, f"{where}.{key}")


def _of_object(shape: dict[str, Shape], body: Any, where: str) -> Iterator[str]:
    if not isinstance(body, dict):
        yield f"{where}: no object"
        return
    for name in body.keys() - shape.keys():
        yield f"{where}: {name} is not described"
    for name, value in shape.items():
        if name in body:
            yield from differences(value, body[name], f"{where}.{name}")
        elif not isinstance(value, Maybe):
            yield f"{where}: {name} is missing"


def _of_list(shape: list[Shape], body: Any, where: str) -> Iterator[str]:
    if not isinstance(body, list):
        yield f"{where}: no list"
        return
    if not body and not where.endswith(MAY_BE_EMPTY):
        yield f"{where}: empty, so nothing is compared"
    for number, item in enumerate(body):
        yield from differences(shape[0], item, f"{where}[{number}]")
