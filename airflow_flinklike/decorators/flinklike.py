"""`@task.flinklike`: a function of the DAG file runs on a warm slot; its return value becomes the XCom.

A parameter named `spark` gets the slot's warm session, `sc` its SparkContext, `ctx` the TaskContext; they are left out
when the task is called in the DAG. Parameters with names of Airflow's context (`ds`, `run_id`, ...) are filled in when
they are plain values; objects that live in the worker cannot travel.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_type_hints

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory
from airflow.sdk.definitions.context import KNOWN_CONTEXT_KEYS

from airflow_flinklike.api.function import function_job
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.base import FlinklikeJobOperator
from airflow_flinklike.operators.fields import JOB_FIELDS, JobFields, mapping_of, one_of
from runtime.jobgraph.function_call import INJECTED

if TYPE_CHECKING:
    from airflow.sdk import Context

    from runtime.jobgraph.restart_strategy import RestartStrategy

_FUNCTION_ATTRIBUTE = "flinklike_function"
_POSITIONAL = frozenset({inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD})


class FlinklikeDecoratedOperator(JobFields, DecoratedOperator, FlinklikeJobOperator):
    """The operator behind `@task.flinklike`.

    :param templates_dict: templates whose values the function gets as its parameter `templates_dict`
    :param templates_exts: endings of files: arguments and values of templates_dict with one are read from that file,
        which is searched for as Airflow searches for templates, and rendered
    :param conf: Spark SQL configuration of the session; config_kwargs says the same, as for @task.pyspark
    :param py_files: Python files that the function imports; files and archives likewise
    :param env_vars: environment variables of the function; environment says the same
    :param job_timeout: seconds after which the cluster ends the job by itself
    :param secrets: names of the TaskManagers' secrets that the function finds in `ctx.secrets`
    :param restart_strategy: what the cluster does when the function fails, before Airflow's retries: a strategy of
        `airflow_flinklike`, or a text such as 'none' or 'fixed-delay,attempts=5,delay_seconds=10'
    :param user_failures: what it does when it is the task's own code that fails: 'restart' by the restart
        strategy, 'final', or 'final-when-exclusive'; default 'restart' with a `restart_strategy`, else what the cluster
        says
    """

    custom_operator_name = "@task.flinklike"
    template_fields: Sequence[str] = (  # type: ignore[mutable-override]  # Airflow narrows it just so
        "templates_dict",
        *DecoratedOperator.template_fields,
        *JOB_FIELDS,
        "flinklike_conn_id",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DecoratedOperator.template_fields_renderers,
        "templates_dict": "json",
        "conf": "json",
        "environment": "json",
    }

    def __init__(
        self,
        *,
        templates_dict: Mapping[str, Any] | None = None,
        templates_exts: Sequence[str] | None = None,
        conf: Mapping[str, Any] | str | None = None,
        config_kwargs: Mapping[str, Any] | str | None = None,
        py_files: str | Sequence[str] | None = None,
        files: str | Sequence[str] | None = None,
        archives: str | Sequence[str] | None = None,
        environment: Mapping[str, str] | str | None = None,
        env_vars: Mapping[str, str] | str | None = None,
        job_timeout: float | str | timedelta | None = None,
        secrets: str | Sequence[str] | None = None,
        restart_strategy: RestartStrategy | str | None = None,
        user_failures: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.templates_dict = templates_dict
        if templates_exts:
            self.template_ext = templates_exts
        self.conf = one_of(self.task_id, conf=conf, config_kwargs=config_kwargs)
        self.py_files = py_files
        self.files = files
        self.archives = archives
        self.environment = one_of(self.task_id, environment=environment, env_vars=env_vars)
        self.job_timeout = job_timeout
        self.secrets = secrets
        self.restart_strategy = restart_strategy
        self.user_failures = user_failures

    def build_program(self, context: Context) -> JobProgram:
        """The function with its rendered arguments. Raises PipelineError."""
        function = getattr(self.python_callable, _FUNCTION_ATTRIBUTE, self.python_callable)
        seen = {**context, "templates_dict": self.templates_dict} if self.templates_dict else context
        arguments = {**_context_arguments(function, len(self.op_args), seen), **self.op_kwargs}
        return function_job(
            function,
            args=self.op_args,
            kwargs=arguments,
            name=f"{self.dag_id}.{self.task_id}",
            conf={**self.default_conf, **mapping_of("conf", self.conf)},
            **self.job_options(dict(context.get("params") or {})),
        ).build()


def flinklike_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,  # noqa: FBT001 - Airflow's signature of every task decorator
    **kwargs: Any,
) -> TaskDecorator:
    """Run a function on the cluster. Takes the arguments of FlinklikeDecoratedOperator."""

    def decorate(function: Callable[..., Any]) -> TaskDecorator:
        return task_decorator_factory(
            python_callable=without_injected(function),
            multiple_outputs=multiple_outputs,
            decorated_operator_class=FlinklikeDecoratedOperator,
            **kwargs,
        )

    return cast("TaskDecorator", decorate) if python_callable is None else decorate(python_callable)


def without_injected(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Airflow should see it: without what is filled in on the slot, wherever that stands."""
    signature = inspect.signature(function)
    rest = [parameter for name, parameter in signature.parameters.items() if name not in INJECTED]

    @functools.wraps(function)
    def visible(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    visible.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]  # what inspect reads first
    visible.__annotations__ = _annotations(function)
    setattr(visible, _FUNCTION_ATTRIBUTE, function)
    return visible


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """With the type of the result as an object: Airflow cannot look names up in the module of the function.

    It tells from that type whether there are multiple outputs; a name that only type checkers see tells nothing.
    """
    annotations = dict(getattr(function, "__annotations__", {}))
    if not isinstance(annotations.get("return"), str):
        return annotations

    def probe() -> None: ...

    probe.__annotations__ = {"return": annotations.pop("return")}
    with suppress(NameError, TypeError, SyntaxError):
        annotations["return"] = get_type_hints(probe, getattr(function, "__globals__", {}))["return"]
    return annotations


def _context_arguments(function: Callable[..., Any], given: int, context: Mapping[str, Any]) -> dict[str, Any]:
    """Values for parameters that are named like keys of Airflow's context and were not given."""
    parameters = [one for name, one in inspect.signature(function).parameters.items() if name not in INJECTED]
    taken = [one.name for one in parameters if one.kind in _POSITIONAL][:given]
    names = [one.name for one in parameters if one.name not in taken]
    found: dict[str, Any] = {}
    for name in names:
        if name not in KNOWN_CONTEXT_KEYS or name not in context:
            continue
        value: Any = dict(context[name]) if name == "params" else context[name]
        if not isinstance(value, str | int | float | bool | dict | None):
            message = (
                f"parameter {name!r}: Airflow's {name} is a {type(value).__name__} and stays in the worker; "
                "pass what the function needs of it as an argument"
            )
            raise PipelineError(message)
        found[name] = value
    return found
