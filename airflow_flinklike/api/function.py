"""Function jobs: one Python function runs on a warm slot, and its return value is the result of the job."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from airflow_flinklike.api.artifacts import ArtifactCollector
from airflow_flinklike.api.job_program import JobOptions
from airflow_flinklike.api.operator_code import check_callable, code_of
from airflow_flinklike.api.program import Program
from airflow_flinklike.exceptions import PipelineError
from runtime.jobgraph.function_call import INJECTED, FunctionCall
from runtime.jobgraph.graph import (
    DEFAULT_RESOURCES,
    JobEdge,
    JobVertex,
    Operator,
    OperatorKind,
    ResourceSpec,
    vertex_id_of,
)
from runtime.jobgraph.limits import NAME_LENGTH_MAX

__all__ = ["INJECTED", "FunctionCall", "FunctionJob", "bind_call", "function_job", "function_name"]
# Clients of earlier releases have pickled FunctionCall under the name of this module.

_LAMBDA = (lambda: None).__name__
_FILE_LENGTH_MAX = 100
_ORDINARY = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


class FunctionJob(Program):
    """A job of one vertex with one operator, which calls the function."""

    def __init__(
        self,
        name: str,
        call: FunctionCall,
        resources: ResourceSpec,
        spark_conf: Mapping[str, Any] | None,
        options: JobOptions,
    ) -> None:
        super().__init__(name, spark_conf, options)
        self._call = call
        self._resources = resources

    def _graph(self, collector: ArtifactCollector) -> tuple[list[JobVertex], list[JobEdge]]:
        operator = Operator(name=self.name, kind=OperatorKind.FUNCTION, code=code_of(self.name, self._call, collector))
        vertex = JobVertex(
            id=vertex_id_of(self.name),
            name=self.name,
            operators=(operator,),
            max_parallelism=1,
            resources=self._resources,
        )
        return [vertex], []


def function_job(
    function: Callable[..., Any],
    *,
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    conf: Mapping[str, Any] | None = None,
    resources: ResourceSpec = DEFAULT_RESOURCES,
    **options: Unpack[JobOptions],
) -> FunctionJob:
    """`function(*args, **kwargs)` as a job. The slot fills in parameters named `ctx`, `spark` and `sc`.

    `conf` is the Spark SQL configuration of the session; `resources` are those that the function needs of its slot.
    """
    call = bind_call(function, tuple(args), dict(kwargs or {}))
    return FunctionJob(name or function_name(function), call, resources, conf, options)


def function_name(function: Callable[..., Any]) -> str:
    """The default name of a job: that of the function. A lambda is named by its variable, else by its line."""
    while isinstance(function, partial):
        function = function.func
    if inspect.ismethod(function):
        return ".".join(function.__qualname__.split(".")[-2:])[:NAME_LENGTH_MAX]
    name = str(getattr(function, "__name__", type(function).__name__))
    if inspect.isfunction(function) and name == _LAMBDA:
        variables = (key for key, value in function.__globals__.items() if value is function)
        code = function.__code__
        name = next(variables, f"lambda at {Path(code.co_filename).name[-_FILE_LENGTH_MAX:]}:{code.co_firstlineno}")
    return name[:NAME_LENGTH_MAX]


def bind_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> FunctionCall:
    """Bind arguments to all parameters but the injected ones, at any position. Raises PipelineError."""
    check_callable(function_name(function), function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        message = f"{function!r} does not tell its parameters: wrap it in a function"
        raise PipelineError(message) from error
    parameters = signature.parameters
    injected = tuple(name for name in INJECTED if name in parameters and name not in kwargs)
    label = f"{getattr(function, '__qualname__', function)}{signature}"
    if any(parameters[name].kind not in _ORDINARY for name in injected):
        message = f"{label}: {' and '.join(injected)} are passed by name, so they must be ordinary parameters"
        raise PipelineError(message)
    rest = [parameter for name, parameter in parameters.items() if name not in injected]
    try:
        bound = signature.replace(parameters=rest).bind(*args, **kwargs)
    except (TypeError, ValueError) as error:
        message = f"{label}: {error}"
        raise PipelineError(message) from error
    if not injected:
        return FunctionCall(function, bound.args, bound.kwargs, ())
    return FunctionCall(function, (), _by_name(label, bound), injected)


def _by_name(label: str, bound: inspect.BoundArguments) -> dict[str, Any]:
    """All arguments by name, since injected parameters may stand before or between them."""
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif kind in _ORDINARY:
            named[name] = value
        else:
            names = " or ".join(INJECTED)
            message = f"{label}: with {names} all other arguments are passed by name, which {name!r} cannot be"
            raise PipelineError(message)
    return named
