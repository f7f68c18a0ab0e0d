"""Building a job of an uploaded program: it runs as a task, since no code of users runs in the JobManager (D-113)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from airflow_flinklike.api.job_source import build_job, import_reference, importable
from airflow_flinklike.api.program import Program
from airflow_flinklike.exceptions import PipelineError
from runtime.jobgraph.graph import JobGraph
from runtime.jobgraph.task_context import TaskContext

logger = logging.getLogger(__name__)


def plan(ctx: TaskContext) -> dict[str, Any]:
    """The JobGraph of `ctx.params["entry"]` as JSON, `graph`, and `warnings` about it, sentences which are logged too.

    Its modules are on the task's import path. `args` are `name=value`, with JSON values, for the parameters of a
    function and for `ctx.params`. A function gets `parallelism` as one of them. Raises PipelineError.
    """
    entry = str(ctx.params["entry"])
    warnings: list[str] = []

    def warn(sentence: str) -> None:
        logger.warning("%s", sentence)
        warnings.append(sentence)

    graph = _built(entry, _params(ctx.params["args"]), ctx.params["parallelism"], warn)
    pending = [one.name for one in graph.artifacts() if one.is_pending]
    if pending:
        message = (
            f"{entry!r} has files or code above 64 KiB ({', '.join(pending[:5])}), which a task cannot store: put the "
            "functions into a module of the archive and name them as 'module:function', or submit with flinklike run"
        )
        raise PipelineError(message)
    return {"graph": graph.document(), "warnings": warnings}


def _params(args: list[str]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for text in args:
        name, separator, value = text.removeprefix("--").partition("=")
        if not separator or not name:
            message = f"argument {text[:200]!r} of a pipeline: expected name=value"
            raise PipelineError(message)
        try:
            params[name] = json.loads(value)
        except ValueError:
            params[name] = value
    return params


def _built(entry: str, params: dict[str, Any], parallelism: int | None, warn: Callable[[str], None]) -> JobGraph:
    if parallelism is None:
        return build_job(entry, params, warn=warn).graph
    with importable(entry):
        found = import_reference(entry)
        if isinstance(found, Program) or not callable(found):
            message = f"parallelism: {entry!r} is built already; make it a function that takes `parallelism`"
            raise PipelineError(message)
        return build_job(found, {**params, "parallelism": parallelism}, label=entry, warn=warn).graph
