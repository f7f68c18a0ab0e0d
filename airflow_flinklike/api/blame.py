"""Finds the object that prevents a function from being pickled, and the references that lead to it."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from functools import partial

_DEPTH_MAX = 12
_OBJECTS_MAX = 2_000


def find_blame(value: object, dump: Callable[[object], bytes]) -> str:
    """A sentence about the innermost object that `dump` refuses; "" when `dump` accepts `value`."""
    search = _Search(dump)
    if search.error_of(value) is None:
        return ""
    path = [_name_of(value)]
    current = value
    while len(path) < _DEPTH_MAX:
        step = search.failing_part(current)
        if step is None:
            break
        label, current = step
        path.append(label)
    error = search.error_of(current)
    return f"{', '.join(reversed(path))}: {_describe(current)} cannot be pickled ({error})"


class _Search:
    """A search through the parts of objects. It visits each part once, and at most _OBJECTS_MAX of them."""

    def __init__(self, dump: Callable[[object], bytes]) -> None:
        self._dump = dump
        self._seen: dict[int, object] = {}

    def error_of(self, value: object) -> str | None:
        try:
            self._dump(value)
        except Exception as error:  # noqa: BLE001 - reduce functions of arbitrary objects raise what they like
            return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else 'no message'}"
        return None

    def failing_part(self, value: object) -> tuple[str, object] | None:
        for label, part in parts_of(value):
            if id(part) in self._seen or len(self._seen) >= _OBJECTS_MAX:
                continue
            self._seen[id(part)] = part
            if self.error_of(part) is not None:
                return label, part
        return None


def parts_of(value: object) -> Iterator[tuple[str, object]]:
    """Labels and objects that are pickled together with `value`."""
    if isinstance(value, types.FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, types.MethodType):
        yield "its object", value.__self__
        yield "its function", value.__func__
    elif isinstance(value, partial):
        yield "the function of the partial", value.func
        yield from ((f"argument {position} of the partial", part) for position, part in enumerate(value.args))
        yield from ((f"argument {name!r} of the partial", part) for name, part in value.keywords.items())
    elif isinstance(value, dict):
        yield from ((f"item {key!r}"[:80], part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"element {position}", part) for position, part in enumerate(value))
    else:
        owner = type(value).__name__
        attributes = value.__dict__ if hasattr(value, "__dict__") else {}
        yield from ((f"attribute {name!r} of a {owner}", part) for name, part in dict(attributes).items())


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    name = function.__qualname__
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"variable {variable!r} in the closure of {name}()", cell.cell_contents
        except ValueError:  # a cell that is not filled yet
            continue
    for variable in _global_names(function.__code__):
        if variable in function.__globals__:
            yield f"global {variable!r} used by {name}()", function.__globals__[variable]
    for position, default in enumerate(function.__defaults__ or ()):
        yield f"default {position} of {name}()", default
    for variable, default in (function.__kwdefaults__ or {}).items():
        yield f"default of {variable!r} of {name}()", default
    for variable, attribute in function.__dict__.items():
        yield f"attribute {variable!r} of {name}()", attribute


def _global_names(code: types.CodeType) -> Iterator[str]:
    """Names that the code, or a function within it, may look up in its globals."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _name_of(value: object) -> str:
    name = getattr(value, "__qualname__", type(value).__name__)
    return f"needed by {name}()" if callable(value) else f"in {name}"


def _describe(value: object) -> str:
    kind = type(value)
    return f"a {kind.__qualname__}" if kind.__module__ == "builtins" else f"a {kind.__module__}.{kind.__qualname__}"
