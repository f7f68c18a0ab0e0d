"""The public names. Each is loaded at its first use, so that `import airflow_flinklike` costs nothing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from runtime.common.version import VERSION

if TYPE_CHECKING:
    from airflow_flinklike.api.application import jar_job
    from airflow_flinklike.api.file_splits import files_in
    from airflow_flinklike.api.function import function_job
    from airflow_flinklike.api.handle import JobHandle
    from airflow_flinklike.api.pipeline import Edge, Pipeline, Stream
    from airflow_flinklike.api.script import script_job
    from airflow_flinklike.client import AsyncFlinklikeClient, FlinklikeClient
    from runtime.common.errors import NonRecoverableError
    from runtime.jobgraph.graph import JobGraph, ResourceSpec
    from runtime.jobgraph.restart_strategy import (
        ExponentialDelayRestartStrategy,
        FailureRateRestartStrategy,
        FixedDelayRestartStrategy,
    )
    from runtime.jobgraph.task_accumulators import task_counter, task_gauge, task_histogram
    from runtime.jobgraph.task_context import TaskContext
    from runtime.jobgraph.task_credentials import task_credentials
    from runtime.jobgraph.task_secrets import task_secrets

__version__ = VERSION

_HOMES = {
    "AsyncFlinklikeClient": "airflow_flinklike.client",
    "Edge": "airflow_flinklike.api.pipeline",
    "ExponentialDelayRestartStrategy": "runtime.jobgraph.restart_strategy",
    "FailureRateRestartStrategy": "runtime.jobgraph.restart_strategy",
    "FixedDelayRestartStrategy": "runtime.jobgraph.restart_strategy",
    "FlinklikeClient": "airflow_flinklike.client",
    "JobGraph": "runtime.jobgraph.graph",
    "JobHandle": "airflow_flinklike.api.handle",
    "NonRecoverableError": "runtime.common.errors",
    "Pipeline": "airflow_flinklike.api.pipeline",
    "ResourceSpec": "runtime.jobgraph.graph",
    "Stream": "airflow_flinklike.api.pipeline",
    "TaskContext": "runtime.jobgraph.task_context",
    "files_in": "airflow_flinklike.api.file_splits",
    "function_job": "airflow_flinklike.api.function",
    "jar_job": "airflow_flinklike.api.application",
    "script_job": "airflow_flinklike.api.script",
    "task_counter": "runtime.jobgraph.task_accumulators",
    "task_credentials": "runtime.jobgraph.task_credentials",
    "task_gauge": "runtime.jobgraph.task_accumulators",
    "task_histogram": "runtime.jobgraph.task_accumulators",
    "task_secrets": "runtime.jobgraph.task_secrets",
}

__all__ = [
    "AsyncFlinklikeClient",
    "Edge",
    "ExponentialDelayRestartStrategy",
    "FailureRateRestartStrategy",
    "FixedDelayRestartStrategy",
    "FlinklikeClient",
    "JobGraph",
    "JobHandle",
    "NonRecoverableError",
    "Pipeline",
    "ResourceSpec",
    "Stream",
    "TaskContext",
    "files_in",
    "function_job",
    "jar_job",
    "script_job",
    "task_counter",
    "task_credentials",
    "task_gauge",
    "task_histogram",
    "task_secrets",
]


if not TYPE_CHECKING:  # for a type checker this would make every name exist

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
