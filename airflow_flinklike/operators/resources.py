"""The needs of a script or function of its slot, as the fields `resources` and `spark_profile` give them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.fields import mapping_of
from runtime.jobgraph.graph import DEFAULT_RESOURCES, ResourceSpec

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_KEYS = ("cpu_cores", "memory", "memory_bytes", "spark_profile")


def resources_of(resources: Any, spark_profile: str | None) -> ResourceSpec:
    """The ResourceSpec of the rendered fields. Raises PipelineError."""
    if isinstance(resources, ResourceSpec):
        found = resources
    else:
        given = mapping_of("resources", resources)
        if unknown := sorted(str(key) for key in given if key not in _KEYS):
            message = f"resources has {', '.join(unknown)}: expected {', '.join(_KEYS)}"
            raise PipelineError(message)
        found = ResourceSpec(
            cpu_cores=_cores(given.get("cpu_cores")),
            memory_bytes=_bytes(given),
            spark_profile=str(given.get("spark_profile") or ""),
        )
    profile = spark_profile or ""
    if profile and found.spark_profile not in {"", profile}:
        message = f"spark_profile is {profile!r}, and resources has {found.spark_profile!r}: give one of them"
        raise PipelineError(message)
    spec = found.model_copy(update={"spark_profile": profile}) if profile else found
    return DEFAULT_RESOURCES if spec == DEFAULT_RESOURCES else spec


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
