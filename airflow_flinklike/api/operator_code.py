"""Code of operators: a text is a reference 'package.module:function', a callable is always pickled."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from airflow_flinklike.api.artifacts import ArtifactCollector
from airflow_flinklike.api.pickling import pickle_callable
from airflow_flinklike.exceptions import PipelineError
from runtime.jobgraph.graph import (
    INLINE_BYTES_MAX,
    PYTHON_VERSION,
    BlobCode,
    FunctionReference,
    PickledCode,
)

UserFunction = str | Callable[..., Any]

_REFERENCE = re.compile(r"[\w.]+:[\w.]+\Z")


def check_function(name: str, function: object, inputs: int) -> None:
    """Raises PipelineError for an object that is not a function, or does not take `ctx` and its inputs."""
    if isinstance(function, str):
        if not _REFERENCE.match(function):
            message = f"operator {name!r}: {function!r} is not a reference, expected 'package.module:function'"
            raise PipelineError(message)
        return
    called = check_callable(name, function)
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    try:
        signature.bind(*[None] * (1 + inputs))
    except TypeError as error:
        expected = "ctx" if not inputs else f"ctx and {inputs} DataFrame{'s' if inputs > 1 else ''}"
        message = f"operator {name!r}: {_label(called)}{signature} is called with {expected}, in that order: {error}"
        raise PipelineError(message) from error


def check_callable(name: str, function: object) -> Callable[..., Any]:
    """The function. Raises PipelineError for an object that is not callable, and for an asynchronous function."""
    if not callable(function):
        message = (
            f"operator {name!r}: expected a function or 'package.module:function', not a {type(function).__name__}"
        )
        raise PipelineError(message)
    called = (function, type(function).__call__)
    if any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in called):
        message = f"operator {name!r}: {_label(function)} is asynchronous; an operator is a plain function"
        raise PipelineError(message)
    return function


def code_of(
    name: str, function: UserFunction, collector: ArtifactCollector
) -> FunctionReference | PickledCode | BlobCode:
    """The code of an operator, for its JobGraph. Raises UnpicklableError."""
    if isinstance(function, str):
        return FunctionReference(target=function)
    data = pickle_callable(name, function)
    if len(data) <= INLINE_BYTES_MAX:
        return PickledCode.of_bytes(data)
    return BlobCode(blob=collector.of_bytes(f"{name}.pickle", data), python=PYTHON_VERSION)


def _label(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
