"""The needs of a task of its slot, as people write them: `{"memory": "4g"}`, and `memory=4g,cpu_cores=2`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_flinklike.exceptions import PipelineError
from runtime.common.labels import label_problems, sorted_labels
from runtime.jobgraph.graph import DEFAULT_RESOURCES, ResourceSpec

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_KEYS = ("cpu_cores", "memory", "memory_bytes", "spark_profile", "labels")


def resource_spec(given: Mapping[str, Any]) -> ResourceSpec:
    """The ResourceSpec of its fields, of which each may be a text. Raises PipelineError."""
    if unknown := sorted(str(key) for key in given if key not in _KEYS):
        message = f"resources has {', '.join(unknown)}: expected {', '.join(_KEYS)}"
        raise PipelineError(message)
    return ResourceSpec(
        cpu_cores=_cores(given.get("cpu_cores")),
        memory_bytes=_bytes(given),
        spark_profile=str(given.get("spark_profile") or ""),
        labels=_labels(given.get("labels")),
    )


def resource_spec_of_texts(texts: Sequence[str]) -> ResourceSpec:
    """That of `key=value` texts, each with one pair or several with commas. Raises PipelineError."""
    given: dict[str, str] = {}
    for pair in (one.strip() for text in texts for one in text.split(",") if one.strip()):
        key, separator, value = (part.strip() for part in pair.partition("="))
        if not separator or not key or not value:
            message = f"{pair!r}: expected key=value with {', '.join(_KEYS)}, such as memory=4g,cpu_cores=2"
            raise PipelineError(message)
        if key in given:
            message = f"{key} is given twice"
            raise PipelineError(message)
        given[key] = value
    spec = resource_spec(given)
    return DEFAULT_RESOURCES if spec == DEFAULT_RESOURCES else spec


def _labels(value: Any) -> tuple[str, ...]:
    if value is not None and not isinstance(value, Mapping):
        message = f"labels of resources is {value!r:.200}: expected a mapping; flinklike run has --label key=value"
        raise PipelineError(message)
    labels = sorted_labels({str(key): str(one) for key, one in (value or {}).items()})
    if problems := tuple(label_problems(labels)):
        raise PipelineError("; ".join(problems), problems)
    return labels


def _cores(value: Any) -> float:
    try:
        cores = float(value or 0)
    except (TypeError, ValueError):
        cores = math.nan
    if isinstance(value, bool) or not 0 <= cores < math.inf:
        message = f"cpu_cores of resources is {value!r}: expected a number, not below 0"
        raise PipelineError(message)
    return cores


def _bytes(given: Mapping[str, Any]) -> int:
    values = [given[key] for key in ("memory", "memory_bytes") if given.get(key) not in {None, ""}]
    if len(values) > 1:
        message = "resources has memory and memory_bytes: give one of them"
        raise PipelineError(message)
    if not values:
        return 0
    match = _MEMORY.fullmatch(str(values[0]).strip())
    if match is None:
        message = f"memory of resources is {values[0]!r}: expected bytes, or a text such as '4g' or '512m'"
        raise PipelineError(message)
    number, unit = match.groups()
    return int(float(number) * _UNITS[unit.lower()])
