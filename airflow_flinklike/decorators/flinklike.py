"""`@task.flinklike` runs a function of the DAG file on a warm slot. The return value becomes the XCom.

The slot fills in the parameters `spark` (the warm session), `sc` (its SparkContext) and `ctx` (the TaskContext), which
a call in the DAG leaves out. Parameters named like keys of Airflow's context (`ds`, `run_id`, ...) are filled in when
they are plain values; other objects of the context stay in the worker.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_type_hints

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from airflow_flinklike.airflow_options import given_or_configured
from airflow_flinklike.airflow_version import KNOWN_CONTEXT_KEYS
from airflow_flinklike.api.function import function_job
from airflow_flinklike.api.job_program import JobProgram
from airflow_flinklike.exceptions import PipelineError
from airflow_flinklike.operators.base import FlinklikeJobOperator
from airflow_flinklike.operators.fields import JOB_FIELDS, JobFields, one_of
from airflow_flinklike.operators.resources import resources_of
from airflow_flinklike.operators.spark_parameters import explanations
from airflow_flinklike.operators.tolerant import defaults_of
from runtime.jobgraph.function_call import INJECTED

if TYPE_CHECKING:
    from airflow.sdk import Context

    from runtime.jobgraph.graph import ResourceSpec
    from runtime.jobgraph.restart_strategy import RestartStrategy

FUNCTION_ATTRIBUTE = "flinklike_function"
_POSITIONAL = frozenset({inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD})


class FlinklikeDecoratedOperator(JobFields, DecoratedOperator, FlinklikeJobOperator):
    """The operator behind `@task.flinklike`.

    :param templates_dict: templates whose rendered values the function gets as its parameter `templates_dict`
    :param templates_exts: file endings: an argument or a value of templates_dict with such an ending is the path of a
        template file, which Airflow finds and renders as usual
    :param conf: Spark SQL conf of the session; config_kwargs is another name of this parameter, as in @task.pyspark
    :param packages: and the other parameters of Spark's start, as of FlinklikeSubmitOperator
    :param py_files: Python files that the function imports; files and archives likewise
    :param env_vars: environment variables of the function; environment is another name of this parameter
    :param job_timeout: seconds after which the cluster ends the job, which then is FAILED
    :param secrets: names of the TaskManagers' secrets that the function may read as `ctx.secrets`
    :param resources: what the function needs of its slot: {'cpu_cores': 2, 'memory': '4g'}, also as JSON text;
        job_resources is another name of this parameter
    :param spark_profile: run on a TaskManager with that `taskmanager.spark.profile`
    :param configuration: options of the cluster that the job has for itself, as `flinklike run -D`:
        {'execution.checkpointing.interval': '10s'}
    :param restart_strategy: what the cluster does when the function fails, before Airflow's retries: a strategy of
        `airflow_flinklike`, or a text such as 'none' or 'fixed-delay,attempts=5,delay_seconds=10'
    :param user_failures: what the cluster does when the function's own code fails: 'restart' by the restart
        strategy, 'final', or 'final-when-exclusive'; default 'restart' with a `restart_strategy`, else the cluster's
    """

    custom_operator_name = "@task.flinklike"
    xcom_push: ClassVar[None] = None
    """Airflow 3.0 reads it in the `execute` of every decorated operator, and has none."""
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
        "job_resources": "json",
        "configuration": "json",
    }

    def __init__(
        self,
        *,
        templates_dict: Mapping[str, Any] | None = None,
        templates_exts: Sequence[str] | None = None,
        conf: Mapping[str, Any] | str | None = None,
        config_kwargs: Mapping[str, Any] | str | None = None,
        properties_file: str | None = None,
        packages: str | None = None,
        exclude_packages: str | None = None,
        repositories: str | None = None,
        driver_memory: str | None = None,
        driver_class_path: str | None = None,
        executor_memory: str | None = None,
        executor_cores: int | str | None = None,
        num_executors: int | str | None = None,
        total_executor_cores: int | str | None = None,
        yarn_queue: str | None = None,
        py_files: str | Sequence[str] | None = None,
        files: str | Sequence[str] | None = None,
        archives: str | Sequence[str] | None = None,
        jars: str | Sequence[str] | None = None,
        environment: Mapping[str, Any] | str | None = None,
        env_vars: Mapping[str, Any] | str | None = None,
        job_timeout: float | str | timedelta | None = None,
        secrets: str | Sequence[str] | None = None,
        restart_strategy: RestartStrategy | str | None = None,
        user_failures: str | None = None,
        resources: ResourceSpec | Mapping[str, Any] | str | None = None,
        job_resources: ResourceSpec | Mapping[str, Any] | str | None = None,
        spark_profile: str | None = None,
        configuration: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        self.keep_fields(given)
        self.templates_dict = templates_dict
        if templates_exts:
            self.template_ext = templates_exts
        defaults = defaults_of(kwargs)
        self.conf = one_of(self.task_id, defaults, conf=conf, config_kwargs=config_kwargs)
        self.environment = one_of(self.task_id, defaults, environment=environment, env_vars=env_vars)
        self.job_resources = one_of(self.task_id, defaults, resources=resources, job_resources=job_resources)

    def cluster_function(self) -> Callable[..., Any]:
        """The function that the job calls."""
        function: Callable[..., Any] = getattr(self.python_callable, FUNCTION_ATTRIBUTE, self.python_callable)
        return function

    def build_program(self, context: Context) -> JobProgram:
        """The job of the function with its rendered arguments. Raises PipelineError."""
        function = self.cluster_function()
        seen = {**context, "templates_dict": self.templates_dict} if self.templates_dict else context
        arguments = {**_context_arguments(function, len(self.op_args), seen), **self.op_kwargs}
        return function_job(
            function,
            args=self.op_args,
            kwargs=arguments,
            name=f"{self.dag_id}.{self.task_id}",
            conf=self.spark_conf(),
            resources=resources_of(self.job_resources, self.spark_profile),
            **self.job_options(dict(context.get("params") or {})),
        ).build()


def flinklike_task(
    python_callable: Callable[..., Any] | None = None,
    multiple_outputs: bool | None = None,  # noqa: FBT001 - Airflow's signature of every task decorator
    **kwargs: Any,
) -> TaskDecorator:
    """Run a function on the cluster. Takes the arguments of FlinklikeDecoratedOperator."""
    return decorator_of(FlinklikeDecoratedOperator, python_callable, multiple_outputs=multiple_outputs, **kwargs)


def decorator_of(
    operator: type[FlinklikeDecoratedOperator],
    function: Callable[..., Any] | None,
    *,
    multiple_outputs: bool | None,
    **kwargs: Any,
) -> TaskDecorator:
    """The task decorator of the operator, already applied where there is a function.

    Raises PipelineError for what `on_unsupported` refuses: a mapped task makes its operator when it runs only.
    """
    chosen = given_or_configured("on_unsupported", kwargs.get("on_unsupported"))
    task_id = str(kwargs.get("task_id") or getattr(function, "__name__", ""))
    explanations(kwargs, task_id=task_id, on_unsupported=chosen)

    def decorate(function: Callable[..., Any]) -> TaskDecorator:
        return task_decorator_factory(
            python_callable=without_injected(function),
            multiple_outputs=multiple_outputs,
            decorated_operator_class=operator,
            **kwargs,
        )

    return cast("TaskDecorator", decorate) if function is None else decorate(function)


def without_injected(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Airflow should see it: without the parameters that the slot fills in, at any position."""
    signature = inspect.signature(function)
    rest = [parameter for name, parameter in signature.parameters.items() if name not in INJECTED]

    @functools.wraps(function)
    def visible(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    visible.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]  # what inspect reads first
    visible.__annotations__ = _annotations(function)
    setattr(visible, FUNCTION_ATTRIBUTE, function)
    return visible


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations, with the return type as an object: Airflow cannot resolve names of the function's module.

    From that type Airflow infers `multiple_outputs`. A name that exists for type checkers only is left out.
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
    """Values for parameters that are named like keys of Airflow's context and have no argument."""
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
