"""Fields of operators, where templates may have left texts: their meaning, and the options of a job among them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_flinklike.api.properties_file import parse_properties
from airflow_flinklike.api.spark_start import CONF_OF
from airflow_flinklike.exceptions import PipelineError, SourceMissingError

if TYPE_CHECKING:
    from airflow_flinklike.api.job_program import JobOptions
    from runtime.jobgraph.graph import ResourceSpec
    from runtime.jobgraph.restart_strategy import RestartStrategy

logger = logging.getLogger(__name__)

JOB_FIELDS = (
    "conf",
    "properties_file",
    *CONF_OF,
    "py_files",
    "files",
    "archives",
    "jars",
    "environment",
    "job_timeout",
    "secrets",
    "restart_strategy",
    "user_failures",
    "job_resources",
    "spark_profile",
    "configuration",
)
"""The template fields of JobFields."""

_OF_SEVERAL_NAMES = frozenset({"conf", "environment", "job_resources"})
"""Fields whose parameter has another name in some operator."""


class JobFields:
    """Options of a job that FlinklikeSubmitOperator and `@task.flinklike` share.

    Each of the two operators names them in its `__init__`, for type checkers, editors and Airflow's `default_args`.
    """

    task_id: str
    default_conf: Mapping[str, str]
    conf: Mapping[str, Any] | str | None
    properties_file: str | None
    py_files: str | Sequence[str] | None
    files: str | Sequence[str] | None
    archives: str | Sequence[str] | None
    jars: str | Sequence[str] | None
    environment: Mapping[str, Any] | str | None
    job_timeout: float | str | timedelta | None
    secrets: str | Sequence[str] | None
    restart_strategy: RestartStrategy | str | None
    user_failures: str | None
    job_resources: ResourceSpec | Mapping[str, Any] | str | None
    spark_profile: str | None
    configuration: Mapping[str, Any] | str | None

    def keep_fields(self, given: Mapping[str, Any]) -> None:
        """Set the fields that have the value of their parameter, by name in `given`."""
        for name in JOB_FIELDS:
            if name not in _OF_SEVERAL_NAMES:
                setattr(self, name, given[name])
        if isinstance(self.configuration, Mapping):
            configuration_of(self.configuration)

    def spark_conf(self) -> dict[str, Any]:
        """The conf that the rendered fields mean, over that of the connection. Raises PipelineError."""
        start = {key: getattr(self, name) for name, key in CONF_OF.items()}
        return {
            **self.default_conf,
            **self._properties(),
            **mapping_of("conf", self.conf),
            **{key: str(value) for key, value in start.items() if value not in {None, ""}},
        }

    def _properties(self) -> dict[str, str]:
        """Spark's settings of the properties file. Raises SourceMissingError."""
        if not self.properties_file:
            return {}
        try:
            text = Path(self.properties_file).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            message = f"task {self.task_id!r}: properties_file {self.properties_file!r} cannot be read: {error}"
            raise SourceMissingError(message) from error
        found, others = parse_properties(text)
        if others:
            logger.warning("%s: ignored, as none of Spark's: %s", self.properties_file, ", ".join(others))
        return found

    def job_options(self, params: Mapping[str, Any]) -> JobOptions:
        """The options that the rendered fields mean, without `conf`. Raises PipelineError."""
        return {
            "params": params,
            "py_files": self.py_files or (),
            "files": self.files or (),
            "archives": self.archives or (),
            "jars": self.jars or (),
            "environment": environment_of(self.environment),
            "execution_timeout": timeout_of(self.job_timeout),
            "secrets": self.secrets or (),
            "restart_strategy": self.restart_strategy,
            "user_failures": self.user_failures,
            "configuration": configuration_of(self.configuration),
        }


def one_of(task_id: str, default_args: Mapping[str, Any], **given: Any) -> Any:
    """The value among several names of one parameter, else None.

    What the task itself has wins over `default_args`; of several there, the first name wins. Raises PipelineError for
    several that the task itself has.
    """
    named = {name: value for name, value in given.items() if value is not None}
    own = {name: value for name, value in named.items() if not is_shared(name, value, default_args)}
    if len(own) > 1:
        message = f"task {task_id!r}: {' and '.join(own)} are two names for the same: give one of them"
        raise PipelineError(message)
    return next(iter((own or named).values()), None)


def is_shared(name: str, value: Any, default_args: Mapping[str, Any]) -> bool:
    """True if the value comes from `default_args`, so that the task itself does not name the parameter."""
    return name in default_args and default_args[name] is value


def environment_of(value: Any) -> dict[str, str]:
    """Environment variables as texts, of any scalars; None leaves a variable out. Raises PipelineError."""
    found = {str(name): one for name, one in mapping_of("environment", value).items() if one is not None}
    problems = tuple(
        f"environment variable {name} is a {type(one).__name__}: expected a text, a number or a truth value"
        for name, one in found.items()
        if not isinstance(one, str | int | float)
    )
    if problems:
        raise PipelineError("; ".join(problems), problems)
    return {name: str(one) for name, one in found.items()}


def configuration_of(value: Any) -> dict[str, str]:
    """Options of the cluster that a job has for itself, as texts. The cluster checks them. Raises PipelineError."""
    found = {str(key): one for key, one in mapping_of("configuration", value).items() if one is not None}
    problems = tuple(
        f"configuration: {key} is a {type(one).__name__}: expected a text or a number, '10 s'"
        for key, one in found.items()
        if isinstance(one, bool) or not isinstance(one, str | int | float)
    )
    if problems:
        raise PipelineError("; ".join(problems), problems)
    return {key: str(one) for key, one in found.items()}


def check_poll_interval(seconds: float) -> None:
    """Raises ValueError, when the DAG is parsed, unless it is above 0."""
    if seconds <= 0:
        message = f"poll_interval is {seconds:g}: it must be above 0"
        raise ValueError(message)


def check_directory(task_id: str, directory: Any) -> None:
    """Raises PipelineError for a directory of savepoints that is none. A template is looked at when it is rendered."""
    if not isinstance(directory, str) or not directory or "{{" in directory or "{%" in directory:
        return  # an XCom of another task, or the cluster's directory
    path = directory.removeprefix("file://") if directory.startswith("file:///") else directory.removeprefix("file:")
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        message = (
            f"task {task_id!r}: {directory[:200]!r} is no directory for savepoints: name an absolute path, or a file: "
            "URL, that all TaskManagers reach under one name"
        )
        raise PipelineError(message)


def check_not_negative(**given: float | timedelta | None) -> None:
    """Raises ValueError, when the DAG is parsed, for a parameter below 0. None: the parameter is not given."""
    for name, value in given.items():
        if value is not None and (value.total_seconds() if isinstance(value, timedelta) else value) < 0:
            message = f"{name} is {value}: it must not be negative"
            raise ValueError(message)


def mapping_of(name: str, value: Any) -> dict[str, Any]:
    """A mapping, also as the text of a JSON object. Raises PipelineError."""
    found = _json_of(value) if isinstance(value, str) else value
    if not found:
        return {}
    if not isinstance(found, Mapping):
        message = (
            f"{name} is {value!r:.200}: expected a mapping or the text of a JSON object (`| tojson` in a template)"
        )
        raise PipelineError(message)
    return dict(found)


def arguments_of(value: Any) -> list[Any]:
    """A list, also as the text of a JSON array. Raises PipelineError for any other text."""
    found = _json_of(value) if isinstance(value, str) else value
    if not found:
        return []
    if isinstance(found, str | Mapping) or not hasattr(found, "__iter__"):
        message = f"application_args is {value!r:.200}: expected a list or the text of a JSON array"
        raise PipelineError(message)
    return list(found)


def timeout_of(value: float | str | timedelta | None) -> float | timedelta | None:
    """Seconds, also as text. Raises PipelineError."""
    if not isinstance(value, str):
        return value
    try:
        return float(value) if value.strip() else None
    except ValueError as error:
        message = f"job_timeout is {value!r}: expected seconds"
        raise PipelineError(message) from error


def _json_of(text: str) -> Any:
    try:
        return json.loads(text) if text.strip() else None
    except ValueError:
        return text
