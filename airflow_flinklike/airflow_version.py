"""The names of Airflow that moved between 3.0 and 3.3. Each is looked up at its first use, at the newest place first.

All other modules import these names from here, and what has one place in all versions from `airflow.sdk`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from airflow.sdk import BaseHook, conf, timezone
    from airflow.sdk.bases.branch import BranchMixIn
    from airflow.sdk.definitions.context import KNOWN_CONTEXT_KEYS
    from airflow.sdk.exceptions import (
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferralError,
        TaskDeferralTimeout,
        TaskDeferred,
    )
    from airflow.sdk.plugins_manager import AirflowPlugin

__all__ = [
    "KNOWN_CONTEXT_KEYS",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowPlugin",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "BaseHook",
    "BranchMixIn",
    "TaskDeferralError",
    "TaskDeferralTimeout",
    "TaskDeferred",
    "conf",
    "timezone",
]

_EXCEPTIONS: Final = ("airflow.sdk.exceptions", "airflow.exceptions")  # the second one below 3.2
_PLACES: Mapping[str, tuple[str, ...]] = {
    "BaseHook": ("airflow.sdk", "airflow.hooks.base"),  # 3.0
    "conf": ("airflow.sdk", "airflow.configuration"),  # below 3.2
    "timezone": ("airflow.sdk", "airflow.utils"),  # 3.0
    "BranchMixIn": ("airflow.sdk.bases.branch", "airflow.providers.standard.operators.branch"),  # below 3.2
    "KNOWN_CONTEXT_KEYS": ("airflow.sdk.definitions.context", "airflow.utils.context"),  # 3.0
    "AirflowPlugin": ("airflow.sdk.plugins_manager", "airflow.plugins_manager"),  # below 3.2
    "AirflowFailException": _EXCEPTIONS,
    "AirflowNotFoundException": _EXCEPTIONS,
    "AirflowSkipException": _EXCEPTIONS,
    "AirflowTaskTimeout": _EXCEPTIONS,
    "TaskDeferralError": _EXCEPTIONS,
    "TaskDeferralTimeout": _EXCEPTIONS,
    "TaskDeferred": _EXCEPTIONS,
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    for place in _PLACES[name]:
        found = _found(place, name)
        if found is not None:
            globals()[name] = (
                found  # each operator of a DAG file asks for `conf`, and a place without it costs a search
            )
            return found
    message = f"this Airflow has no {name} in {' or '.join(_PLACES[name])}: airflow_flinklike needs Airflow 3.0 to 3.3"
    raise ImportError(message)


def _found(place: str, name: str) -> Any:
    """The name, which may be a module, at that place; None without it."""
    try:
        module = importlib.import_module(place)
        return getattr(module, name, None) or importlib.import_module(f"{place}.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.{name}".startswith(error.name):
            raise
        return None
