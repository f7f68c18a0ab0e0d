"""From what a user names as a job to a built one: a reference, a function that makes it, or the job itself."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.program import JobProgram, Program
from runtime.jobgraph.graph import JobGraph

PipelineSource = str | Program | JobGraph | Callable[..., Program | JobGraph]


def build_job(
    source: PipelineSource, params: Mapping[str, Any] | None = None, *, label: str | None = None
) -> JobProgram:
    """Build a job. `params` fill the arguments of a function that take them by name, and all become `ctx.params`.

    `label` is what errors call it. Raises PipelineError.
    """
    given = dict(params or {})
    label = label or (source if isinstance(source, str) else _label(source))
    found: Any = import_reference(source) if isinstance(source, str) else source
    if callable(found) and not isinstance(found, Program):
        found = found(**_arguments(found, label, given))
    if isinstance(found, JobGraph):
        changed = found.model_copy(update={"params": {**found.params, **given}}).without_caches() if given else found
        return JobProgram(changed)
    if not isinstance(found, Program):
        message = f"{label!r} gave a {type(found).__name__}: expected a Pipeline, a script_job or a JobGraph"
        raise PipelineError(message)
    return found.build(given or None)


def import_reference(reference: str) -> Any:
    """The object that 'package.module:name' names. Raises PipelineError that says which part is missing."""
    module_name, separator, attributes = reference.partition(":")
    if not separator or not module_name or not attributes:
        message = f"{reference!r} is not a reference: expected 'package.module:name'"
        raise PipelineError(message)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        message = f"{reference!r}: no module named {error.name!r} can be imported here"
        raise PipelineError(message) from error
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            message = f"{reference!r}: {module_name} has no {attributes!r}"
            raise PipelineError(message)
        found = getattr(found, attribute)
    return found


def _arguments(function: Callable[..., Any], label: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """Those params that the function takes by name; all of them when it takes `**kwargs`."""
    signature = inspect.signature(function)
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())
    arguments = {key: value for key, value in params.items() if takes_all or key in signature.parameters}
    try:
        signature.bind(**arguments)
    except TypeError as error:
        message = f"{label}{signature}: {error}; give it in params (--param on the command line)"
        raise PipelineError(message) from error
    return arguments


def _label(source: object) -> str:
    return str(getattr(source, "__qualname__", type(source).__name__))
