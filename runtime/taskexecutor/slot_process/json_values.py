"""JSON values that tasks return: checked with the path of what is to blame, bounded, encoded."""

from __future__ import annotations

import json
import math
from collections.abc import Generator
from typing import Any

from runtime.taskexecutor.slot_process.causes import TaskError
from runtime.taskexecutor.slot_protocol.sizes import format_bytes

DEPTH_MAX = 64
_SCALARS = (str, bool, int, type(None))


def encode_value(value: Any, *, bytes_max: int, what: str, limit: str = "") -> bytes:
    """JSON text. Raises TaskError: not JSON (with the path of the element), or larger than `bytes_max`.

    `limit` says whose limit it is; "": that of the option for values.
    """
    if problem := json_problem(value):
        message = f"{what} is not a JSON value: {problem}"
        raise TaskError(message)
    data = _encode(value)
    if len(data) > bytes_max:
        advice = "(exchange.inline.max-size): write it with ctx.output_path(), or return a DataFrame to a consumer"
        size = f"{what} has {format_bytes(len(data))} as JSON, the limit is {format_bytes(bytes_max)}"
        message = f"{size} {limit or advice}"
        raise TaskError(message)
    return data


def _encode(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only the escaped form can carry
        return json.dumps(value, separators=(",", ":")).encode()


def json_problem(value: Any, path: str = "$", depth: int = 0) -> str:
    """The first element that JSON cannot hold, with its path; "" when there is none."""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{path} is {value!r}, and JSON has no such number"
    if isinstance(value, _SCALARS):
        return ""
    if depth >= DEPTH_MAX:
        return f"{path} is nested deeper than {DEPTH_MAX} levels"
    if isinstance(value, dict):
        return _dict_problem(value, path, depth)
    if isinstance(value, list | tuple):
        problems = (json_problem(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value))
        return next(filter(None, problems), "")
    return f"{path} is a {_type_name(value)}{_hint(value)}"


def _dict_problem(value: dict[Any, Any], path: str, depth: int) -> str:
    for key, item in value.items():
        if not isinstance(key, str):
            return f"{path} has the key {key!r}, a {_type_name(key)}; JSON keys are strings"
        if problem := json_problem(item, f"{path}[{key!r}]", depth + 1):
            return problem
    return ""


def _type_name(value: Any) -> str:
    cls = type(value)
    return cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"


def _hint(value: Any) -> str:
    if hasattr(value, "item") and type(value).__module__ == "numpy":
        return " (use .item() for a number, .tolist() for an array)"
    if hasattr(value, "isoformat"):
        return " (use .isoformat())"
    if type(value).__name__ in {"DataFrame", "Series"}:
        return " (to hand on rows, return a Spark DataFrame: ctx.spark.createDataFrame(...), or .to_spark())"
    if isinstance(value, set | frozenset):
        return " (use sorted(...))"
    if isinstance(value, Generator):
        return " (only a source with splits_on_demand=True may yield: return a DataFrame or a JSON value)"
    return ""
