"""Poke: the function of a sensor as one of a job. It runs on a slot, where there need not be an Airflow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

_KEYS = frozenset({"is_done", "xcom_value"})


class Poke:
    """Calls the function, and returns its answer as a JSON object with `is_done` and `xcom_value`.

    The answer may be a truth value, Airflow's PokeReturnValue, or such an object itself.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        answer = self._function(*args, **kwargs)
        if isinstance(answer, Mapping) and "is_done" in answer and answer.keys() <= _KEYS:
            return {"is_done": bool(answer["is_done"]), "xcom_value": answer.get("xcom_value")}
        if hasattr(answer, "is_done"):
            return {"is_done": bool(answer), "xcom_value": getattr(answer, "xcom_value", None)}
        return {"is_done": bool(answer), "xcom_value": None}
