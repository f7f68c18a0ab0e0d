"""Metadata of asset events: what a job wrote, as far as it is known, goes with the events of its task's outlets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_METRICS = {"rows": "write-records", "files": "write-files", "bytes": "write-bytes"}


def written(details: Mapping[str, Any]) -> dict[str, int]:
    """Rows, files and bytes that the sinks of a job wrote, from `/jobs/:id`. What is not known is left out."""
    sources = {edge["id"] for node in details["plan"]["nodes"] for edge in node.get("inputs", ())}
    sinks = [vertex for vertex in details["vertices"] if vertex["id"] not in sources]
    sums = {name: sum(int(sink["metrics"].get(key, 0)) for sink in sinks) for name, key in _METRICS.items()}
    return {name: value for name, value in sums.items() if value}


def stated(value: Any) -> dict[str, int]:
    """What the job's value itself says of rows, files and bytes: it is the author's word, and goes before ours."""
    if not isinstance(value, Mapping):
        return {}
    return {name: value[name] for name in _METRICS if type(value.get(name)) is int}


def tell_outlets(outlets: Iterable[Any], events: Any, facts: Mapping[str, Any]) -> None:
    """Add facts to the events of assets among `outlets`; what a DAG's author has set there is kept."""
    from airflow.sdk import Asset  # noqa: PLC0415 - only tasks with outlets pay for it

    for outlet in outlets:
        if isinstance(outlet, Asset):
            accessor = events[outlet]
            accessor.extra = {**facts, **accessor.extra}
