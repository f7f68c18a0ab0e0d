"""The needs of a script or function of its slot, as the fields `resources` and `spark_profile` give them."""

from __future__ import annotations

from typing import Any

from airflow_flinklike.api.resource_texts import resource_spec
from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.fields import mapping_of
from runtime.jobgraph.graph import DEFAULT_RESOURCES, ResourceSpec


def resources_of(resources: Any, spark_profile: str | None) -> ResourceSpec:
    """The ResourceSpec of the rendered fields. Raises PipelineError."""
    is_spec = isinstance(resources, ResourceSpec)
    found = resources if is_spec else resource_spec(mapping_of("resources", resources))
    profile = spark_profile or ""
    if profile and found.spark_profile not in {"", profile}:
        message = f"spark_profile is {profile!r}, and resources has {found.spark_profile!r}: give one of them"
        raise PipelineError(message)
    spec: ResourceSpec = found.model_copy(update={"spark_profile": profile}) if profile else found
    return DEFAULT_RESOURCES if spec == DEFAULT_RESOURCES else spec
