"""Metadata of asset events: the known size of a job's output goes with the events of its task's outlets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_METRICS = {"rows": "write-records", "files": "write-files", "bytes": "write-bytes"}


def written(details: Mapping[str, Any]) -> dict[str, int]:
    """Rows, files and bytes that the sinks of a job wrote, from `/jobs/:id`, without unknown ones."""
    sources = {edge["id"] for node in details["plan"]["nodes"] for edge in node.get("inputs", ())}
    sinks = [vertex for vertex in details["vertices"] if vertex["id"] not in sources]
    sums = {name: sum(int(sink["metrics"].get(key, 0)) for sink in sinks) for name, key in _METRICS.items()}
    return {name: value for name, value in sums.items() if value}


def stated(value: Any) -> dict[str, int]:
    """Rows, files and bytes in the job's value. The author of the job has set them, so they win over `written`."""
    if not isinstance(value, Mapping):
        return {}
    return {name: value[name] for name in _METRICS if type(value.get(name)) is int}


def tell_outlets(outlets: Iterable[Any], events: Any, facts: Mapping[str, Any]) -> None:
    """Add facts to the events of the assets among `outlets`. Values that the DAG has set stay."""
    from airflow.sdk import Asset  # noqa: PLC0415 - only tasks with outlets import it

    for outlet in outlets:
        if isinstance(outlet, Asset):
            accessor = events[outlet]
            accessor.extra = {**facts, **accessor.extra}
